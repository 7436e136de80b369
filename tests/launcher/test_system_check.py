# SPDX-License-Identifier: Apache-2.0
"""`cudaguard system check` in a small root directory. guest/test_machine_file.py compares its
answers with what the guard does."""

import os
import re
import shutil

import pytest

from support import fixtures, launcher, machine, messages, policies

CONF = "/etc/cudaguard.conf"
MORE = CONF + ".d/10-more.conf"
RULES = """# Login node.
FORCE_CPU
VALIDATE program=/usr/bin/smi
VALIDATE group=gpu gpus=0,1 log=all report=/var/log/gpu.jsonl
OFF user=bob environment=may-widen
"""
FILES = {"/etc/passwd": "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"
                        "bob:x:1001:44::/:/bin/sh\ncarol:x:1002:1002::/:/bin/sh\n",
         "/etc/group": "root:x:0:\ngpu:x:44:alice\n"}
SMI = {"program": "/usr/bin/smi"}
NONE = {"policy": "FORCE_CPU", "gpus": "none", "log": "deny", "report": "none"}


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        machine.need("change_of_root")
        self.root = self.path("root")
        for name, text in FILES.items():
            self.write(name, text)
        for name in ("/usr/bin", "/var/log"):
            os.makedirs(self.inside(name))
        shutil.copy("/bin/true", self.inside("/usr/bin/smi"))
        os.symlink("smi", self.inside("/usr/bin/link"))
        self.write("/usr/bin/script", "#!/usr/bin/link\n", 0o755)

    def inside(self, name):
        return os.path.join(self.root, name.lstrip("/"))

    def write(self, name, text, mode=0o644):
        self.make(self.inside(name), text, mode)

    def check(self, *words, code=0, env=None):
        """Returns the lines before the answer and the rows of the answer."""
        done = self.start("system", "check", "--root", self.root, *words, env=env)
        self.assertEqual((done.returncode, done.stderr), (code, ""), done)
        lines, _, answer = done.stdout.partition("\n\n")
        said = [line for line in lines.splitlines() if line.startswith("A process that no rule ")]
        assert len(said) <= 1, done
        self.others = said[0].partition(" gets ")[2] if said else None
        return ([line for line in lines.splitlines() if line not in said],
                dict(row.split(": ", 1) for row in answer.splitlines()))


make_case = fixtures.lent("case", Case)


def mistake(place, text):
    return messages.text("rule_wrong", place=place, mistake=text)


def no_policy(place):
    return mistake(place, '"OFFF" is not accepted (accepted: %s)' % policies.ACCEPTED)


@pytest.mark.parametrize(("words", "rows"), [
    (["--program", "/usr/bin/smi", "--user", "carol"],
     {**SMI, **NONE, "policy": "VALIDATE", "gpus": "all",
      "rule": CONF + ":3: VALIDATE program=/usr/bin/smi"}),
    (["--program", "/usr/bin/link", "--user", "1002", "--group", "1002"],
     {**SMI, "policy": "VALIDATE"}),
    (["--program", "/usr/bin/script", "--user", "carol"], {**SMI, "policy": "VALIDATE"}),
    (["--program", "/opt/none", "--user", "carol"],
     {**NONE, "program": "/opt/none", "rule": CONF + ":2: FORCE_CPU"}),
    (["--program", "/opt/none", "--user", "alice"],
     {"policy": "VALIDATE", "gpus": "0,1", "log": "all", "report": "/var/log/gpu.jsonl",
      "rule": CONF + ":4: VALIDATE group=gpu gpus=0,1 log=all report=/var/log/gpu.jsonl"}),
    (["--program", "/opt/none", "--user", "carol", "--group", "gpu"], {"gpus": "0,1"}),
    (["--program", "/opt/none", "--user", "bob"],
     {"policy": "OFF", "gpus": "all", "variables": "may allow more"}),
    # What is not given is not known.
    (["--program", "/usr/bin/smi"],
     {"policy": "VALIDATE", "gpus": "0,1",
      "not sure": "rules ask for user=, group=: this is the case that allows less"}),
    (["--args", "smi"],
     {**NONE, "not sure": "rules ask for program=, user=, group=: this is the case that allows less"})])
def test_answer_is_what_the_program_gets(case, words, rows):
    case.write(CONF, RULES)
    lines, answer = case.check(*words)
    assert lines == [CONF + ": 4 rules", "mistakes: none"]
    assert {name: answer.get(name) for name in rows} == rows
    assert ("not sure" in answer) == ("not sure" in rows)
    assert ("variables" in answer) == ("variables" in rows)


SCRIPT = " is a script, whose interpreter runs; use args= instead"
OPEN = " has a [ that is not closed, so it matches only a ["
NAME = (" is not in /etc/%s, so it may mean any %s that is not in it either; write the number, or "
        "remove the rule")
PART = " is no full path, so it matches no %s"
ARGS = ' matches only this whole command line; write args="*%s*" for a part'
NO_DEFAULT = (": no rule matches every process, so FORCE_CPU applies to those that no rule names; write"
              " OFF or FORCE_CPU into the first line")
# A rule after FORCE_CPU, and what follows the value in its warning. None: there is no warning.
WARNINGS = [
    ("program=/usr/bin/smi", None), ("program=/usr/bin/l*k", None), ("program=smi", None),
    ("program=none", None), ("program=*/none", None), ("program=both", None),
    # The kernel knows the file that a link leads to, so such a rule matches nothing.
    ("program=/usr/bin/link", " is a link; write /usr/bin/smi"),
    ("program=link", " is only a link in PATH; write smi"),
    ("program=/opt/none", " does not exist"),
    ("program=/usr/bin/script", SCRIPT), ("program=script", SCRIPT),
    ("program=bin/smi", PART % "program"), ("program=bin/*", PART % "program"),
    ("program=/usr/bin/", " is a directory; write program=/usr/bin/*"),
    ("cgroup=user.slice/*", PART % "process"),
    ("program=/usr/bin/[sm", OPEN), ("args=*[!]*", OPEN), ("cgroup=/[a-b", OPEN),
    ("program=[s]m[]i]", None), ("cgroup=/user*", None),
    ("args=serve", ARGS % "serve"), ("args=*serve", None),
    ("user=dave", NAME % ("passwd", "user")), ("user=alice", None), ("user=1009", None),
    ("group=staff", NAME % ("group", "group")), ("group=gpu", None), ("group=1009", None),
    ("report=/var/log/x/", ": there is no directory /var/log/x"),
    ("report=/var/none/x.jsonl", ": there is no directory /var/none"),
    ("report=/var/log", " is a directory; write report=/var/log/"),
    ("report=/var/log/", None), ("report=/var/log/x.jsonl", None), ("report=syslog:", None),
    ("report=/var/none/%u/x", None), ("report=/dev/stderr", None),
    ("gpus=0,9", ": this machine has no GPU 9"), ("gpus=1,0", None), ("gpus=GPU-12", None)]


def test_rule_that_does_less_than_it_seems_is_a_mistake(case):
    for gpu in ("0000:01:00.0", "0000:02:00.0"):
        os.makedirs(case.inside("/proc/driver/nvidia/gpus/" + gpu))
    os.makedirs(case.inside("/usr/local/bin"))
    os.symlink("/usr/bin/smi", case.inside("/usr/local/bin/both"))
    shutil.copy("/bin/true", case.inside("/usr/bin/both"))
    env = launcher.environment(PATH="/usr/local/bin:/usr/bin")
    pairs = [(*pair.split("=", 1), warning) for pair, warning in WARNINGS]
    rules = "FORCE_CPU\n" + "".join(
        "VALIDATE %s%s=%s\n" % ("cgroup=/* " if key in ("report", "gpus") else "", key, value)
        for key, value, _ in pairs)
    case.write(CONF, rules)
    draft = case.make("draft", rules, 0o644)
    for words, file in (((), CONF), ((draft,), draft)):
        wanted = ['%s:%d: %s="%s"%s' % (file, line, key, value, warning)
                  for line, (key, value, warning) in enumerate(pairs, 2) if warning]
        lines, _ = case.check(*words, code=1, env=env)
        assert lines[1:] == [*wanted, "mistakes: %d" % len(wanted)]


def test_rule_before_one_that_matches_every_process_is_a_mistake(case):
    never = ": never decides, because %s:2 matches every process" % MORE
    case.write(CONF, "OFF program=smi\nFORCE_CPU\nOFFF\n")
    case.write(MORE, "CLAMP args=*x* gpus=0\nVALIDATE gpus=0 log=all\nFORCE_CPU user=alice\n")
    lines, _ = case.check(code=1)
    assert lines[2:] == [CONF + ":1" + never, CONF + ":2" + never, no_policy(CONF + ":3"),
                         MORE + ":1" + never, "mistakes: 4"]


def test_files_without_a_rule_are_a_mistake(case):
    case.write(CONF, "# none\n\n")
    assert case.check(code=1)[0] == [CONF + ": 0 rules",
                                     CONF + ": no rule; FORCE_CPU applies to every process",
                                     "mistakes: 1"]
    case.write(MORE, "OFF\n")
    assert case.check()[0] == [CONF + ": 0 rules", MORE + ": 1 rule", "mistakes: none"]


def test_words_beyond_what_the_guard_reads_are_not_known(case):
    case.write(CONF, "FORCE_CPU\nVALIDATE args=*serve\nVALIDATE cgroup=*/serve\n")
    for option, most in (("--args", 16384), ("--cgroup", 4096)):
        for size, policy in ((most - 64, "VALIDATE"), (most + 64, "FORCE_CPU")):
            _, answer = case.check(option, "/" * (size - 6) + "/serve",
                                   *({"--args": ["--cgroup", "/"]}.get(option, ["--args", "x"])))
            assert answer["policy"] == policy, (option, size)


def test_last_file_decides(case):
    case.write(CONF, RULES)
    case.write(MORE, "\nOFF program=nothing\nCLAMP args=*serve* cgroup=/batch/*\n")
    lines, answer = case.check("--args", "python3 serve.py", "--cgroup", "/batch/7",
                               "--user", "carol", "--program", "/usr/bin/smi")
    assert lines == [CONF + ": 4 rules", MORE + ": 2 rules", "mistakes: none"]
    assert (answer["policy"], answer["rule"]) == (
        "CLAMP", MORE + ":3: CLAMP args=*serve* cgroup=/batch/*")
    assert case.check("--program", "/usr/bin/smi", "--args", "x", "--cgroup", "/",
                      "--user", "carol")[1]["rule"].startswith(CONF + ":3: ")


@pytest.mark.parametrize(("key", "file"), [("user", "passwd"), ("group", "group")])
def test_name_that_no_file_has_is_not_known(case, key, file):
    case.write(CONF, "OFF\nFORCE_CPU %s=dave\n" % key)
    answer = case.check("--user", "carol", "--group", "1009", code=1)[1]
    assert answer["policy"] == ("OFF" if key == "user" else "FORCE_CPU")
    answer = case.check("--user", "1009", "--group", "1009", code=1)[1]
    assert answer["policy"] == "FORCE_CPU"
    assert answer["not sure"].startswith('%s="dave" is not in /etc/%s: ' % (key, file))
    case.write("/etc/group", "root:x:0:\ncarol:x:1002:\n")
    answer = case.check("--user", "carol", code=1)[1]
    assert (answer["policy"], answer.get("not sure")) == ("OFF", None)


def test_name_that_the_guard_does_not_read_is_a_mistake(case):
    """For users beyond this MiB, the guard must assume that the rule matches."""
    case.write(CONF, "OFF\nFORCE_CPU user=bob\nFORCE_CPU user=late\n")
    case.write("/etc/passwd", FILES["/etc/passwd"] + "x:x:9:9::/:/bin/sh\n" * 60000 +
               "late:x:7:7::/:/bin/sh\n")
    assert [line for line in case.check(code=1)[0] if "late" in line] == [
        '%s:3: user="late"%s' % (CONF, NAME.replace("/etc", "the first MiB of /etc", 1) % (
            "passwd", "user"))]
    # The C library skips the blank, and wants more fields.
    case.write("/etc/passwd", " bob:x:1001:44::/:/bin/sh\nlate:x:7\n")
    assert [line for line in case.check(code=1)[0] if "user=" in line] == [
        '%s:2: user="bob"%s' % (CONF, NAME % ("passwd", "user"))]


@pytest.mark.parametrize(("rules", "others"), [
    ("FORCE_CPU user=bob", "FORCE_CPU, because no rule matches every process."),
    ("OFF\nFORCE_CPU user=bob", "OFF, by %s:1." % CONF),
    ("OFF\nFORCE_CPU user=dave", "OFF, by %s:1." % CONF),
    ("FORCE_CPU\nOFF user=bob", "FORCE_CPU, by %s:1." % CONF),
    ("# x\nVALIDATE gpus=0 log=all", "VALIDATE, by %s:2." % CONF),
    ("OFF\nOFFF", "FORCE_CPU, by %s:2." % CONF),
    ("OFFF\nOFF user=bob", "FORCE_CPU, by %s:1." % CONF)])
def test_what_a_process_gets_that_no_rule_names(case, rules, others):
    """The answer for such a process is the same, and `enable` refuses a file that does not say it.
    """
    case.write(CONF, rules + "\n")
    mistakes = [CONF + NO_DEFAULT] if "because" in others or rules.startswith("OFFF") else []
    lines, answer = case.check("--user", "carol", "--program", "/usr/bin/smi",
                               code=1 if mistakes or re.search("OFFF|dave", rules) else 0)
    assert (case.others, answer["policy"]) == (others, others.partition(",")[0])
    assert (answer["rule"] == "no rule of " + CONF) == ("because" in others)
    assert mistakes == [line for line in lines if NO_DEFAULT in line]
    done = case.start("system", "enable", "--dry-run", "--root", case.root, "/lib/none.so")
    assert done.returncode == 125, done
    assert (NO_DEFAULT in done.stderr, '"/lib/none.so" (in --root) cannot' in done.stderr) == (
        bool(mistakes), not mistakes), done
    # It also says what keeps a line from being that rule, such as a letter too many.
    assert all("cudaguard: %s\n" % line in done.stderr for line in lines[1:-1]), done


def test_each_mistake_is_printed_with_its_file_and_line(case):
    case.write(CONF, "OFFF\nOFF\nVALIDATE log=x\nCLAMP gpus=0,00\n")
    case.write(MORE, "\nFORCE_CPU gpus=1\n")
    lines, answer = case.check(code=1)
    assert lines[2:] == [
        no_policy(CONF + ":1"),
        mistake(CONF + ":3", 'log="x" is not accepted (accepted: off, error, deny, all)'),
        mistake(CONF + ":4", 'gpus="0,00": ' + messages.text("entry_repeated", position=2, entry="00")),
        mistake(MORE + ":2", "gpus= needs " + policies.NEEDED), "mistakes: 4"]
    assert answer == {}
    # The line is FORCE_CPU for every process.
    answer = case.check("--user", "carol", code=1)[1]
    assert (answer["policy"], answer["rule"]) == ("FORCE_CPU", MORE + ":2: FORCE_CPU gpus=1")


def not_used(path, why):
    return messages.text("conf_not_used", file=path, reason=why)


# guest/test_machine_file.py has the other reasons.
@pytest.mark.parametrize(("name", "change", "line"), [
    (CONF, lambda path: os.chmod(path, 0o664), not_used(CONF, "others than root can write it")),
    ("/etc", lambda path: os.chmod(path, 0o777),
     not_used(CONF, "others than root can write its directory")),
    (CONF, lambda path: os.truncate(path, 65537), not_used(CONF, "all files are longer than 64 KiB")),
    (MORE, lambda path: os.chmod(path, 0o600), "for users who cannot read it"),
    (CONF + ".d", lambda path: os.chmod(path, 0o700), "for users who cannot read it")])
def test_file_that_is_not_used_is_a_mistake(case, name, change, line):
    case.write(CONF, "OFF\n")
    case.write(MORE, "OFF user=carol\n")
    assert case.check("--user", "carol")[1]["policy"] == "OFF"  # the control
    change(case.inside(name))
    lines, answer = case.check("--user", "carol", code=1)
    assert [one for one in lines if line in one], lines
    assert lines[-1] == "mistakes: 1"
    assert (answer["policy"], answer["rule"]) == ("FORCE_CPU", CONF if name == "/etc" else name)


@pytest.mark.parametrize(("mode", "user", "policy"), [
    (0o600, "root", "OFF"), (0o600, "alice", "FORCE_CPU"), (0o640, "alice", "OFF"),
    (0o640, "carol", "FORCE_CPU"), (0o604, "carol", "OFF"), (0o604, "7", "FORCE_CPU")])
def test_file_that_the_user_cannot_read_is_not_used(case, mode, user, policy):
    case.write(CONF, "OFF\n", mode)
    os.chown(case.inside(CONF), 0, 44)  # alice's group
    answer = case.check("--user", user, code=1)[1]
    assert answer["policy"] == policy
    assert answer["rule"] == (CONF if policy == "FORCE_CPU" else CONF + ":1: OFF")


def test_named_file_is_checked_alone_and_whoever_owns_it(case):
    case.write(CONF, "OFFF\n")
    draft = case.make("draft", "VALIDATE\n", 0o666)
    os.chown(draft, 1000, 1000)
    lines, answer = case.check("--user", "carol", draft)
    assert lines == [draft + ": 1 rule", "mistakes: none"]
    assert answer["rule"] == draft + ":1: VALIDATE"
    wrong = case.make("wrong", "# x\nOFFF\n", 0o644)
    assert case.check(wrong, code=1)[0][1] == no_policy(wrong + ":2")
    piped = case.unguarded("sh", "-c", 'printf OFFF | "$0" system check /dev/stdin', launcher.LAUNCHER)
    assert no_policy("/dev/stdin:1") in piped.stdout.splitlines(), piped
    long = case.make("long", "#" * 65537, 0o644)
    assert case.check(long, code=1)[0][0] == not_used(long, "all files are longer than 64 KiB")


def test_without_a_file_the_variables_decide(case):
    line = CONF + " is not there: no rules are read, and variables alone decide."
    assert case.check("--user", "carol") == ([line], {})
    case.write(CONF + ".d/notes", "OFF\n")
    assert case.check("--user", "carol") == ([line], {})
    case.write(MORE, "OFF\n")
    assert case.check("--user", "carol", code=1) == (
        [line, "The files of %s.d are not read; make %s, which may be empty." % (CONF, CONF),
         "mistakes: 1"], {})


@pytest.mark.parametrize(("words", "meaning"), [
    (["check", "/nothing"], '"/nothing" cannot be read: No such file or directory'),
    (["check", "/"], '"/" cannot be read: Is a directory'),
    (["check", "a", "b"], 'system takes one file, not "b"'),
    (["check", "--user", "dave"], '--user "dave" is not in /etc/passwd; write the number'),
    (["check", "--group", "dave"], '--group "dave" is not in /etc/group; write the number'),
    *((["check", option, number],
       '%s "%s" is not accepted (accepted: a name, or a number from 0 to 4294967294)' % (
           option, number))
      for option, number in (("--user", "99999999999"), ("--group", "4294967295"))),
    (["check", "--program", "no-such-program"], '"no-such-program": No such file or directory'),
    (["enable", "--user", "root"], "are only for check")])
def test_refusals(case, words, meaning):
    case.write(CONF, RULES)
    done = case.start("system", words[0], "--root", case.root, *words[1:])
    assert done.returncode in (125, 127), done
    assert re.search(re.escape(meaning), done.stderr), done
