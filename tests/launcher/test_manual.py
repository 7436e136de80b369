# SPDX-License-Identifier: Apache-2.0
"""Docs, the completion, the schema of records and the Python reader have what the rows of the
options, variables and fields give, and the manual is docs/cli.md (scripts/generate-options). The
manual has no mistakes of form. The completion completes, in a real bash on a terminal as well."""

import glob
import os
import re
import sys

import pytest

from launcher import test_terminal
from support import built_rows, fixtures, harness, launcher, policies

HERE = os.path.join(harness.SOURCE, "shim", "launcher")
MANUAL = os.path.join(HERE, "man", "cudaguard.1")
CONF = os.path.join(HERE, "man", "cudaguard.conf.5")
COMPLETION = os.path.join(HERE, "completion", "cudaguard.bash")
TABLES = [os.path.join(harness.SOURCE, "policy", "variables." + end) for end in ("inc", "h")]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def variables():
    """The names in the tables of variables."""
    return set(re.findall(r'"(CUDAGUARD_[A-Z_]+)"', "".join(map(harness.read, TABLES))))


COMMANDS = ("run", "verify", "report", "doctor", "system")


def rows(case, command):
    """The option lines of a command's help page: the option and what it does."""
    return re.findall(r"(?m)^  (--[a-z-]+)(?:[ \[]\S+)?  +(.+)$",
                      case.start(command, "--help").stdout)


def helped(case):
    """The options of all help pages."""
    return {"--help"}.union(*(dict(rows(case, command)) for command in COMMANDS))


class Generated(launcher.Case):
    FILES = ("scripts/generate-options", "docs/cli.md",
             "shim/launcher/man/cudaguard.1", "shim/launcher/completion/cudaguard.bash",
             "shim/python/cudaguard/records.py", "shim/guard/record/record.schema.json")

    def generate(self, checkout, *options):
        return self.unguarded(sys.executable, os.path.join(checkout, self.FILES[0]), "--build",
                              harness.BUILD, *options)

    def test_files_have_what_the_rows_give(self):
        """After a change to a row: scripts/generate-options writes these files."""
        done = self.generate(harness.SOURCE, "--verify")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


class Manual(launcher.Case):
    def setUp(self):
        super().setUp()
        self.need("mandoc")

    def rendered(self):
        done = self.unguarded("mandoc", "-T", "utf8", "-O", "width=78", MANUAL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.sub(".\b", "", done.stdout)  # overstruck: bold, underlined

    def test_manual_passes_mandocs_checks(self):
        bad = self.make("bad.1", harness.read(MANUAL).replace(".Ss Presets", ".Xx Presets"), 0o644)
        self.assertNotEqual(self.unguarded("mandoc", "-T", "lint", "-W", "warning", bad).returncode,
                            0)
        done = self.unguarded("mandoc", "-T", "lint", "-W", "style", MANUAL, CONF)
        # The last word of a reference to a page that this machine's index does not have.
        complaints = [line for line in done.stdout.splitlines() if "STYLE" in line or
                      "WARNING" in line or "ERROR" in line]
        self.assertEqual([line for line in complaints if "Xr" not in line], [])

    def test_manual_has_the_options_and_no_others(self):
        wanted = helped(self) | {"--version"}
        self.assertLessEqual({"--observe", "--allow", "--by"}, wanted)
        self.assertEqual(set(FLAG.findall(self.rendered())), wanted)

    def test_manual_and_docs_have_the_keys_of_a_rule(self):
        source = harness.read("policy", "process_rules.h")
        keys = re.findall(r'"(\w+)"', re.search(r"kRuleKeys\[\]\[\d+\] = \{(.*?)\}", source, re.S)[1])
        self.assertIn("program", keys)
        self.assertEqual(re.findall(r"(?m)^\.It Cm (\w+) Ns =", harness.read(CONF)), keys)
        page = harness.read("docs", "rules.md")
        self.assertEqual(re.findall(r"(?m)^\| `(\w+)=", page), keys)

    def test_manual_has_every_preset(self):
        """The manual has the value of each preset, and --help names it."""
        env = launcher.environment(CUDAGUARD_POLICY=None)
        printed = self.start("run", "--print", env=env).stdout
        text = self.rendered()
        for name in (*launcher.PRESETS, *launcher.ASAN):
            value = re.search(r"\b%s=(\S*)" % name, printed).group(1).strip("'")
            value = value.replace(launcher.HOME, "~").replace(os.uname().machine, "ARCH")
            self.assertRegex(text, r"(?m)^ +%s=%s$" % (name, value))
            self.assertIn(name, self.start("run", "--help").stdout)

    def test_manual_and_source_have_the_variables_and_no_others(self):
        known = variables()
        self.assertIn("CUDAGUARD_ROOT", known)
        self.assertEqual(set(re.findall(r"CUDAGUARD_[A-Z_]+", self.rendered())), known)
        for path in glob.glob(HERE + "/**/*.cpp", recursive=True):
            named = re.findall(r'"(CUDAGUARD_(?!VERSION)[A-Z_]+)=?"', harness.read(path))
            self.assertLessEqual(set(named), known, path)

    def test_manual_has_the_exit_codes(self):
        for code in ("125", "126", "127"):
            self.assertRegex(self.rendered(), r"(?m)^ +%s +" % code)


class Completion(launcher.Case):
    def complete(self, line):
        """What _cudaguard offers for the words of `line`; its last one is being written."""
        words = re.findall(r"=|[^\s=]+", line) + ([""] if line.endswith(" ") else [])
        script = ('. "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  '_cudaguard; printf "%s\\n" "${COMPREPLY[@]}"')
        done = self.unguarded("bash", "--norc", "-c", script, "bash", COMPLETION, *words,
                              cwd=self.directory, env=launcher.environment(
                                  PATH=self.directory + ":" + os.environ["PATH"]))
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return done.stdout.split()

    def test_completion_offers_every_option(self):
        for command in COMMANDS:
            offered = self.complete("cudaguard %s --" % command)
            self.assertEqual(set(offered), {"--help", *dict(rows(self, command))})

    def test_completion_works_on_a_terminal(self):
        """A bash with readline, a tab key, and nothing but this file."""
        terminal = test_terminal.Terminal(
            ["bash", "--norc", "--noprofile", "-i"],
            env=launcher.environment(TERM="dumb", PS1="ready> ", INPUTRC="/dev/null"))
        self.addCleanup(terminal.stop)
        terminal.expect("ready> ")
        terminal.send('. "%s"\r' % COMPLETION)
        terminal.expect("ready> ")
        terminal.send("cudaguard run --pol\tCL\t")
        terminal.expect("--policy CLAMP")


make_completion_case = fixtures.lent("completion_case", Completion)


@pytest.mark.parametrize(("line", "wanted"),
                         [("cudaguard ", [*COMMANDS, "help", "version", "--help", "--version"]),
                          ("cudaguard help v", ["verify"]),
                          ("cudaguard run --policy ", policies.EVERY),
                          ("cudaguard run --cpu --log=", built_rows.words_of("run", "log")),
                          ("cudaguard run --children ", built_rows.words_of("run", "children")),
                          ("cudaguard run --gpus ", []),
                          ("cudaguard run --report f", ["file.txt"]),
                          ("cudaguard run --log all --obs", ["--observe"]),
                          ("cudaguard run --fence=", built_rows.words_of("run", "fence")),
                          ("cudaguard run --fence cg-own", ["cg-own-program"]),
                          ("cudaguard run --fence=require cg-own", ["cg-own-program"]),
                          ("cudaguard run --if-healthy=5 cg-own", ["cg-own-program"]),
                          ("cudaguard run --gpus 2,5 cg-own", ["cg-own-program"]),
                          ("cudaguard run -- cg-own", ["cg-own-program"]),
                          ("cudaguard run ./cg", ["./cg-own-program"]),
                          ("cudaguard doctor cg-own", ["cg-own-program"]),
                          ("cudaguard doctor cg-own-program f", []),
                          ("cudaguard run cg-own-program f", ["file.txt"]),
                          ("cudaguard run --log=all cg-own-program --", []),
                          ("cudaguard verify --deny ", built_rows.DENIED),
                          ("cudaguard verify --json f", ["file.txt"]),
                          ("cudaguard verify --allow x --junit=a.xml cg-own", ["cg-own-program"]),
                          ("cudaguard report --by h", ["host"]),
                          ("cudaguard doctor --json - --force cg-own", ["cg-own-program"]),
                          ("cudaguard system ", ["enable", "disable", "status", "check"]),
                          ("cudaguard system enable --root f", ["file.txt"]),
                          ("cudaguard system enable f", ["file.txt"]),
                          ("cudaguard system check --program f", ["file.txt"]),
                          ("cudaguard walk ", [])])
def test_completion_offers_commands_values_and_files(completion_case, line, wanted):
    completion_case.make("cg-own-program", "#!/bin/sh\n")
    completion_case.make("file.txt", "", 0o644)
    assert completion_case.complete(line) == wanted
