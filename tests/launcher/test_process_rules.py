# SPDX-License-Identifier: Apache-2.0
"""The rules by program (policy/process_rules.h) against a model in Python, which knows each case
that an unknown fact leaves open."""

import fnmatch
import itertools
import os
import random
import re
import subprocess

import pytest

from support import harness

pytestmark = pytest.mark.all

PROGRAM = os.path.join(harness.BUILD, "tests", "launcher", "decide_rules")

WIDTH = {"FORCE_CPU": 0, "NO_CONTEXT": 1, "VALIDATE": 2, "CLAMP": 2, "OFF": 3}
KEYS = ("program", "args", "user", "group", "cgroup", "gpus", "log", "report", "environment")
PAIR = re.compile(r"""([^=\s;]*)=(?:"([^"\n]*)"(?=[\s;]|\Z)|(?!')([^\s;"#]*)(?=[\s;]|\Z))""")
# A line with one of these is wrong, in a comment, too.
CONTROL = r"[\0-\x08\x0b-\x0c\x0e-\x1f\x7f]|\r(?!\n)"
WRONG_LINE = re.compile(r"[^\n]*?(?:%s)" % CONTROL)
GAP = re.compile(r"(?:[ \t]|\r(?=\n)|;|#[^\n]*|\n)")


class Process:
    """None stands for a fact that is not known."""

    def __init__(self, program, args, cgroup, passwd, group, user, groups):
        self.program, self.args, self.cgroup, self.passwd = program, args, cgroup, passwd
        self.group, self.user, self.groups = group, user, groups


class Rule:
    def __init__(self, policy=None, pairs=None, line=0):
        self.policy, self.pairs, self.line = policy, pairs or {}, line

    @property
    def wrong(self):
        return self.policy is None


def value_is_wrong(policy, key, value, source):
    if value == "":
        return True
    if key == "gpus":
        entries = [entry.strip() for entry in value.split(",")]
        repeated = any(one.lstrip("0") == other.lstrip("0") if one.isdigit() else one.startswith(other)
                       for one, other in itertools.permutations(entries, 2))
        return (WIDTH[policy] not in (1, 2) or value == "-1" or repeated or
                not all(re.fullmatch(r"\d{1,3}|(GPU|MIG)-[0-9a-f-]+", entry) for entry in entries))
    if key == "log":
        return value.lower() not in ("off", "error", "deny", "all")
    if key == "report":
        return value[0] != "/" and value != "syslog:"
    if key in ("user", "group") and re.fullmatch(r"[-+]?\d+", value):
        return not value.isdigit() or int(value) >= (1 << 32) - 1
    return key == "environment" and (source != "file" or value != "may-widen")


def rule_at(text, at, source):
    """Returns the rule that begins here, and where it ends. A wrong one is the rest of its line."""
    end_of_line = (text + "\n").index("\n", at)
    if WRONG_LINE.match(text, at):
        return Rule(), end_of_line
    word = re.compile(r"[^\s;]*").match(text, at)
    policy = word[0].upper().replace("-", "_")
    if policy not in WIDTH:
        return Rule(), end_of_line
    pairs, at = {}, word.end()
    while True:
        at = re.compile(r"[^\S\n]*").match(text, at).end()
        if at == len(text) or text[at] in "\n;#" or (source == "variable" and text[at] == "&"):
            return Rule(policy, pairs), at
        pair = PAIR.match(text, at)
        if pair is None or pair[1] not in KEYS or pair[1] in pairs:
            return Rule(), end_of_line
        pairs[pair[1]] = pair[2] if pair[2] is not None else pair[3]
        if value_is_wrong(policy, pair[1], pairs[pair[1]], source):
            return Rule(), end_of_line
        at = pair.end()


def parse(text, source):
    """Returns lists of rules."""
    lists, at = [[]], 0
    while True:
        while not WRONG_LINE.match(text, at) and (gap := GAP.match(text, at)):
            at = gap.end()
        if at == len(text):
            return lists
        if source == "variable" and text[at] == "&" and not WRONG_LINE.match(text, at):
            lists.append([])
            at += 1
            continue
        rule, end = rule_at(text, at, source)
        rule.line = 1 + text.count("\n", 0, at)
        lists[-1].append(rule)
        at = end


def number(file, name):
    for line in (file or "").split("\n"):
        fields = line.split(":")
        if len(fields) > 2 and fields[0] == name:
            return int(fields[2])
    return None


def glob(pattern, text):
    return None if text is None else fnmatch.fnmatchcase(text, pattern)


def cgroup(pattern, lines):
    """Compares the paths of all hierarchies, but not those above another one."""
    paths = [line.split(":", 2)[2] for line in (lines or "").splitlines()]
    lowest = [path for path in paths
              if not any(other.startswith(path.rstrip("/") + "/") for other in paths if other != path)]
    answers = {glob(pattern, path) for path in lowest}
    return answers.pop() if len(answers) == 1 else None


def identity(value, file, numbers):
    wanted = int(value) if value.isdigit() else number(file, value)
    if numbers is None:
        return None
    if wanted is not None:
        return wanted in numbers
    # The name is that of no process whose numbers have names of their own.
    named = {int(line.split(":")[2]) for line in (file or "").splitlines() if line.count(":") > 1}
    return None if set(numbers) - named else False


def matches(rule, process):
    """True, False, or None if it is not known."""
    answers = []
    for key, value in rule.pairs.items():
        if key == "program":
            path = process.program
            if path is not None and "/" not in value:
                path = os.path.basename(path)
            answers.append(glob(value, path))
        elif key == "args":
            args = process.args
            answers.append(glob(value, None if args is None else args[:-1].replace("\0", " ")))
        elif key == "cgroup":
            answers.append(cgroup(value, process.cgroup))
        elif key == "user":
            user = None if process.user is None else [process.user]
            answers.append(identity(value, process.passwd, user))
        elif key == "group":
            answers.append(identity(value, process.group, process.groups))
    if False in answers:
        return False
    return None if None in answers else True


def possible(rules, process, otherwise):
    """Returns the rules of which each may decide."""
    found = []
    for rule in reversed(rules):
        match = True if rule.wrong else matches(rule, process)
        if match is not False:
            found.append(rule)
        if match:
            return found
    return [*found, Rule(otherwise)]


def check(text, source, process, otherwise, answer):
    """Asserts that the answer allows what the model allows."""
    policy, line, unsure, mistake, gpus = answer.split(" ")
    gpus = gpus[1:]
    lists = parse(text, source)
    what = (text, source, vars(process), otherwise, answer)
    if source == "variable":
        wrong = any(rule.wrong for rules in lists for rule in rules)
        # A rule follows each "&".
        if wrong or not all(lists[1:]):
            assert (policy, mistake) == ("FORCE_CPU", "1"), what
            return
    per_list = [possible(rules, process, otherwise) for rules in lists]
    candidates = [rule for rules in per_list for rule in rules]
    least = min(WIDTH[rule.policy or "FORCE_CPU"] for rule in candidates)
    given = [rule.pairs["gpus"] for rule in candidates if "gpus" in rule.pairs]
    # It is never wider: of no list and of no case.
    assert WIDTH[policy] <= least, what
    if policy != "FORCE_CPU":
        assert bool(gpus) == bool(given), what
        for one in given:
            assert set(gpus.split(",")) <= set(one.split(",")), what
    # And it is no narrower than these cases need.
    whole = any(all(set(one.split(",")) <= set(other.split(",")) for other in given) for one in given)
    if whole or not given:
        assert WIDTH[policy] == least, what
    if len(candidates) == 1:
        (rule,) = candidates
        assert (policy, int(line), unsure, mistake, gpus) == (
            rule.policy or "FORCE_CPU", rule.line, "0", str(int(rule.wrong)),
            rule.pairs.get("gpus", "")), what


def hexadecimal(value):
    return "-" if value is None else "x" + str(value).encode("latin-1").hex()


def words(text, source, process, otherwise):
    groups = None if process.groups is None else " ".join(map(str, process.groups))
    return " ".join(map(hexadecimal, (
        source, text, process.program, process.args, process.cgroup, process.passwd, process.group,
        process.user, groups, otherwise)))


def answers_to(cases):
    lines = "".join(words(*case) + "\n" for case in cases)
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases)
    return answers


def compare(cases):
    """Returns how often the answer was each policy."""
    answers = answers_to(cases)
    for case, answer in zip(cases, answers):
        check(*case, answer)
    return {policy: sum(answer.startswith(policy) for answer in answers) for policy in WIDTH}


PROGRAMS = ("/usr/bin/nvidia-smi", "/usr/bin/python3.11", "/home/a/[x]", "/opt/vllm worker")
ARGS = ("python3\0-m\0jupyter lab\0", "nvidia-smi\0", "a\0\0b\0")
CGROUPS = ("0::/\n", "0::/user.slice/user-1000.slice\n", "0::/system.slice/slurmd.service/job_7\n",
           "4:cpu,cpuacct:/\n2:pids:/slurm\n1:name=systemd:/slurm/job_7\n",
           "2:pids:/user.slice/a\n1:name=systemd:/slurm/job_7\n")
PASSWD = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbroken\nbob:x:1001:44:::\n"
GROUP = "root:x:0:\ngpu:x:44:alice\nal:x:5:\n"
CONDITIONS = [
    *("program=" + glob for glob in ("nvidia-smi", "/usr/bin/*", "*", "python3*", "python3.[0-9]?",
                                     "[[]x]", "[!n]*", '"vllm worker"', "[x", "*]")),
    *("args=" + glob for glob in ("*jupyter*", '"python3 -m *"', "nvidia-smi", "a??b", '"a  b"')),
    *("user=" + name for name in ("alice", "root", "carol", "1000", "01000")),
    *("group=" + name for name in ("gpu", "44", "a", "al", "staff", "0")),
    *("cgroup=" + glob for glob in ("/", "/user.slice/*", "*/job_[0-9]", "*slurm*"))]
ACTIONS = ["gpus=0,1", "gpus=1", "gpus=1,0,2", "gpus=GPU-8932f937", "log=all", "log=DENY",
           "report=/var/log/x", "report=syslog:", "environment=may-widen"]
MISTAKES = ["gpus=-1", "gpus=", "gpus=x", "gpus=1,01", "gpus=GPU-8,GPU-89", "log=loud", "report=x",
            "user=99999999999", "user=4294967295", "group=-1", "usr=a", "user", 'args="a', "=",
            'args="a"b', "user=a user=a", "environment=x", "&", "\0", "\xff", "args=a#b", "args='a'",
            'args=a"', 'program=/"x"', "\r", "# \r", "\x0b", "#\x1b", "\x7f"]
# Some of these are no mistakes.
FRAGMENTS = ['args="\'a#"', "args=a'b", "# 'x\" #", "\r\n", " \t", "\xef\xbb\xbf"]


def some_process(rnd):
    def perhaps(value):
        return None if rnd.random() < 0.15 else value

    return Process(perhaps(rnd.choice(PROGRAMS)), perhaps(rnd.choice(ARGS)),
                   perhaps(rnd.choice(CGROUPS)), perhaps(PASSWD), perhaps(GROUP),
                   perhaps(rnd.choice((0, 1000, 1001))),
                   perhaps(rnd.sample((0, 5, 44, 100), rnd.randrange(4))))


def some_case(rnd):
    source = rnd.choice(("file", "file", "variable"))
    text = ""
    for _ in range(rnd.randrange(7)):
        parts = [rnd.choice(("FORCE_CPU", "force-cpu", "VALIDATE", "Clamp", "no-context", "OFF"))]
        parts += rnd.sample(CONDITIONS, rnd.choice((0, 1, 1, 1, 2)))
        if rnd.random() < 0.3:
            parts.append(rnd.choice(ACTIONS))
        if rnd.random() < 0.03:
            parts.insert(rnd.randrange(len(parts) + 1), rnd.choice(MISTAKES))
        if rnd.random() < 0.02:
            parts.insert(rnd.randrange(len(parts) + 1), rnd.choice(FRAGMENTS))
        blank = rnd.choice((" ", " ", "\t "))
        text += blank.join(parts) + rnd.choice(("\n", "\r\n", "\n", ";", " ; ", " # x\n", "\n\n"))
        if source == "variable" and rnd.random() < 0.25:
            text += rnd.choice(("& ", " &\n", "&"))
    return text, source, some_process(rnd), rnd.choice(list(WIDTH))


def test_each_rule_and_pair_of_rules():
    """Each policy with each condition, and after each other one, for processes of which each fact
    is known, and for one of which nothing is known."""
    rules = [" ".join(filter(None, rule)) for rule in itertools.product(
        ("FORCE_CPU", "VALIDATE", "VALIDATE gpus=0,1", "CLAMP gpus=1", "NO_CONTEXT", "OFF"), ("", *CONDITIONS))]
    if not harness.FULL:
        rules = rules[::5]
    processes = [
        Process("/usr/bin/nvidia-smi", "nvidia-smi\0", CGROUPS[1], PASSWD, GROUP,
                1000, [44]),
        Process("/usr/bin/python3.11", ARGS[0], CGROUPS[3], PASSWD, GROUP, 0, [0, 5]),
        Process(*[None] * 7)]
    texts = rules + ["\n".join(pair) for pair in itertools.product(rules, repeat=2)]
    cases = [(text, "file", process, "FORCE_CPU") for text in texts for process in processes]
    found = compare(cases)
    assert min(found.values()) > 0, found


def test_random_rules():
    rnd = random.Random(41)
    found = dict.fromkeys(WIDTH, 0)
    for _ in range(50 if harness.FULL else 1):
        cases = [some_case(rnd) for _ in range(20000 if harness.FULL else 5000)]
        for policy, times in compare(cases).items():
            found[policy] += times
    assert min(found.values()) > 50, found


def test_fewer_facts_never_allow_more():
    """The rules have bytes that are changed, so the sanitized reader meets any text."""
    rnd = random.Random(42)
    cases = []
    for _ in range(100000 if harness.FULL else 5000):
        text, source, process, otherwise = some_case(rnd)
        text = "".join(chr(rnd.randrange(256)) if rnd.random() < 0.01 else one for one in text)
        less = Process(*(rnd.choice((fact, None)) for fact in vars(process).values()))
        cases += [(text, source, process, otherwise), (text, source, less, otherwise)]
    answers = [answer.split(" ") for answer in answers_to(cases)]
    for case, every, some in zip(cases[::2], answers[::2], answers[1::2]):
        assert WIDTH[some[0]] <= WIDTH[every[0]], (case, every, some)
        assert some[0] == "FORCE_CPU" or some[4] != "x" or every[4] == "x", (case, every, some)
