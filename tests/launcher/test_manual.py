# SPDX-License-Identifier: Apache-2.0
"""The manual, the completion and --help name the same options; the manual has no mistakes of
form; the completion completes, in a real bash on a terminal as well."""

import glob
import os
import pty
import re
import select
import time

from support import harness, launcher

HERE = os.path.join(harness.SOURCE, "shim", "launcher")
MANUAL = os.path.join(HERE, "man", "cudaguard.1")
COMPLETION = os.path.join(HERE, "completion", "cudaguard.bash")
TABLE = os.path.join(harness.SOURCE, "policy", "variables.h")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def read(path):
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def variables():
    """The table of variables: each name with what is accepted, word by word."""
    rows = re.findall(r'\{"(CUDAGUARD_[A-Z_]+)",\s*"([^"]*)"', read(TABLE))
    rows += re.findall(r'= "(CUDAGUARD_[A-Z_]+)"()', read(TABLE))
    return {name: accepted.split(", ") for name, accepted in rows}


COMMANDS = ("run", "verify", "report", "doctor")


# One line of a help page: the option, its value's name, what it does, its default.
ROW = re.compile(r"(?m)^  (--[a-z-]+)([ \[]\S+)?  +(.+?)(?: \[default: (.+)\])?$")


def rows(case, command):
    """The option lines of a command's help page."""
    return ROW.findall(case.start(command, "--help").stdout)


def helped(case):
    """The options of all help pages."""
    return {"--help"}.union(*({row[0] for row in rows(case, command)} for command in COMMANDS))


class Manual(launcher.Case):
    def setUp(self):
        super().setUp()
        self.need("mandoc")

    def rendered(self):
        done = self.unguarded("mandoc", "-T", "utf8", "-O", "width=78", MANUAL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.sub(".\b", "", done.stdout)  # overstruck: bold, underlined

    def test_manual_passes_mandocs_checks(self):
        bad = self.make("bad.1", read(MANUAL).replace(".It Fl -cpu", ".Xx Fl -cpu"), 0o644)
        self.assertNotEqual(self.unguarded("mandoc", "-T", "lint", "-W", "warning", bad).returncode,
                            0)
        done = self.unguarded("mandoc", "-T", "lint", "-W", "style", MANUAL)
        # The last word of a reference to a page that this machine's index does not have.
        complaints = [line for line in done.stdout.splitlines() if "STYLE" in line or
                      "WARNING" in line or "ERROR" in line]
        self.assertEqual([line for line in complaints if "Xr" not in line], [])

    def test_manual_has_every_option(self):
        wanted = helped(self) | {"--version"}
        self.assertLessEqual({"--observe", "--allow", "--by"}, wanted)
        text = self.rendered().lower()
        for command in COMMANDS:
            for option, value, _, _ in rows(self, command):
                self.assertRegex(text, r"(?m)^ +%s(  |$)" % re.escape(option + value.lower()))
        others = re.compile(r"--no[-_]python")  # of torchrun and accelerate launch
        self.assertEqual(set(FLAG.findall(others.sub("", self.rendered()))), wanted)

    def test_manual_has_every_preset(self):
        """The manual has the value of each preset, and --help names it."""
        env = launcher.environment(CUDAGUARD_POLICY=None)
        printed = self.start("run", "--print", env=env).stdout
        text = self.rendered()
        for name in launcher.PRESETS:
            value = re.search(r"\b%s=(\S*)" % name, printed).group(1).strip("'")
            value = value.replace(launcher.HOME, "~").replace(os.uname().machine, "ARCH")
            self.assertRegex(text, r"(?m)^ +%s=%s$" % (name, value))
            self.assertIn(name, self.start("run", "--help").stdout)

    def test_manual_has_every_variable(self):
        """The manual has the table's variables, with their words, and no others."""
        table, text = variables(), self.rendered()
        self.assertIn("CUDAGUARD_ROOT", table)
        self.assertEqual(set(re.findall(r"CUDAGUARD_[A-Z_]+", text)), set(table))
        for name in ("CUDAGUARD_POLICY", "CUDAGUARD_CHILDREN", "CUDAGUARD_LOG"):
            for word in table[name]:
                self.assertRegex(text, r"\b%s\b" % word)
        page = read(os.path.join(harness.SOURCE, "docs", "variables.md"))
        self.assertEqual(set(re.findall(r"(?m)^\| `(CUDAGUARD_\w+)` \|", page)), set(table))
        # Nor has the source.
        for path in glob.glob(HERE + "/**/*.cpp", recursive=True):
            named = re.findall(r'"(CUDAGUARD_(?!VERSION)[A-Z_]+)=?"', read(path))
            self.assertLessEqual(set(named), set(table), path)

    def test_manual_has_the_exit_codes(self):
        for code in ("125", "126", "127"):
            self.assertRegex(self.rendered(), r"(?m)^ +%s +" % code)


class Page(launcher.Case):
    def test_the_tables_are_those_of_the_help(self):
        """docs/cli.md has one table for each command, with the lines of its help page."""
        page = read(os.path.join(harness.SOURCE, "docs", "cli.md")).replace("\\|", "|")
        for command in COMMANDS:
            section = page.split("\n## %s\n" % command)[1].split("\n## ")[0]
            table = re.findall(r"(?m)^\| `(--[^`]+)` \| (.*?) \| (.*?) \|$", section)
            wanted = [(option + value, about, default or "off")
                      for option, value, about, default in rows(self, command)]
            self.assertEqual([(a, b.replace("`", ""), c.replace("`", "")) for a, b, c in table],
                             wanted, command)


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
        offered = {command: self.complete("cudaguard %s --" % command) for command in COMMANDS}
        self.assertEqual(set().union(*offered.values()), helped(self))
        # Each is one that its subcommand takes.
        for command, options in offered.items():
            for option in options:
                printed = self.start(command, option, "--no-such-option").stderr
                self.assertNotIn('unknown option "%s"' % option, printed)
            taken = {option: about for option, _, about, _ in rows(self, command)}
            self.assertEqual(set(options), set(taken) | {"--help"})
            # The words that it offers are those of the help.
            for option, about in taken.items():
                if command == "run" or option == "--fence":
                    for word in self.complete("cudaguard %s %s=" % (command, option)):
                        if word != "cpu" and option != "--report":
                            self.assertIn(word, about)

    def test_completion_offers_commands_values_and_files(self):
        self.make("cg-own-program", "#!/bin/sh\n")
        self.make("file.txt", "", 0o644)
        for line, wanted in (
                ("cudaguard ", [*COMMANDS, "help", "version", "--help", "--version"]),
                ("cudaguard help v", ["verify"]), ("cudaguard help run ", []),
                ("cudaguard d", ["doctor"]),
                ("cudaguard run --policy ", variables()["CUDAGUARD_POLICY"]),
                ("cudaguard run --policy=V", ["VALIDATE"]),
                ("cudaguard run --cpu --log=", variables()["CUDAGUARD_LOG"]),
                ("cudaguard run --children c", ["cpu"]),
                ("cudaguard run --gpus ", []),
                ("cudaguard run --report f", ["file.txt"]),
                ("cudaguard run --log all --obs", ["--observe"]),
                ("cudaguard run --fen", ["--fence"]),
                ("cudaguard run --fence=", ["auto", "require", "off"]),
                ("cudaguard run --cpu --fence=r", ["require"]),
                ("cudaguard verify --fence=o", ["off"]),
                ("cudaguard run --fence cg-own", ["cg-own-program"]),
                ("cudaguard run --fence --obs", ["--observe"]),
                ("cudaguard run --fence=require cg-own", ["cg-own-program"]),
                ("cudaguard run --fence=require cg-own-program f", ["file.txt"]),
                ("cudaguard run --gpus 2,5 cg-own", ["cg-own-program"]),
                ("cudaguard run -- cg-own", ["cg-own-program"]),
                ("cudaguard run -- --", []),
                ("cudaguard run ./cg", ["./cg-own-program"]),
                ("cudaguard doctor cg-own", ["cg-own-program"]),
                ("cudaguard doctor cg-own-program f", []),
                ("cudaguard run cg-own-program f", ["file.txt"]),
                ("cudaguard run --log=all cg-own-program --", []),
                ("cudaguard verify --deny ", ["init", "nvml", "opencl"]),
                ("cudaguard verify --allow m", ["module:"]),
                ("cudaguard verify --json f", ["file.txt"]),
                ("cudaguard verify --allow x --junit=a.xml cg-own", ["cg-own-program"]),
                ("cudaguard verify cg-own-program f", ["file.txt"]),
                ("cudaguard report --by h", ["host"]),
                ("cudaguard report --json f", ["file.txt"]),
                ("cudaguard report --json a f", ["file.txt"]),
                ("cudaguard doctor --json f", ["file.txt"]),
                ("cudaguard doctor --json - --force cg-own", ["cg-own-program"]),
                ("cudaguard walk ", [])):
            with self.subTest(line=line):
                self.assertEqual(self.complete(line), wanted)

    def test_completion_works_on_a_terminal(self):
        """A bash with readline, a tab key, and nothing but this file."""
        child, master = pty.fork()
        if child == 0:
            os.chdir(self.directory)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       launcher.environment(TERM="dumb", PS1="ready> ", INPUTRC="/dev/null"))
        self.addCleanup(os.close, master)
        seen = self.until(master, "ready> ")
        os.write(master, b'. "%s"\r' % COMPLETION.encode())
        self.until(master, "ready> ")
        os.write(master, b"cudaguard run --pol\tCL\t\x15exit\r")
        seen = self.until(master, "exit")
        self.assertIn("--policy CLAMP", seen)
        os.waitpid(child, 0)

    def until(self, master, word):
        seen = ""
        end = time.monotonic() + 30
        while word not in seen and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                try:
                    seen += os.read(master, 4096).decode()
                except OSError:  # the other end is closed
                    break
        return seen
