# SPDX-License-Identifier: Apache-2.0
"""The doctor tests share this: it runs doctor in a sandbox with its own /dev and validates its JSON
against the schema."""

import json
import os
import re
import shutil
import types

from support import harness, launcher, machine, transcript

PROBE = os.path.join(harness.NULL_DRIVER_DIR, "cudaguard-probe")
NAMES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "NVIDIA's OpenCL")
WAIT = {"CUDAGUARD_DOCTOR_TIMEOUT": "1"}


def validate(document):
    harness.Case().validates(document, "launcher", "doctor", "doctor.schema.json")


def sentence(finding):
    return "; ".join([finding["text"], finding.get("remedy", "")]).rstrip("; ")


class Answer:
    """The JSON that doctor printed."""

    def __init__(self, code, document, nodes=()):
        validate(document)
        self.code = code
        self.document = document
        self.line = document["answer"]
        self.nodes = nodes  # the nodes below /dev after the run
        self.problems = [sentence(row) for row in document["findings"] if row["state"] == "problem"]
        self.reasons = [row for row in document["findings"] if row["state"] in ("in part", "no")]

    def facts(self, name):
        """Returns the lines of this row."""
        return [row["text"] for row in self.document["findings"]
                if (row["id"], row["state"]) == (name, "fact")]

    def found(self):
        """Returns the files that ld.so finds, without the targets of links."""
        return [self.facts(name)[0].split(", which is ")[0] for name in NAMES]


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        if harness.jsonschema is None:
            harness.skip(self, "python3-jsonschema is not installed")

    def run_in(self, command, world="none", bwrap=(), env=None, user=None):
        """Returns (code, stdout, stderr, the nodes in /dev after the run)."""
        mark = self.path("out")
        script = ('"$@" >"$0" 2>"$0.err"; code=$?; ls -d /dev/nvidia* /dev/char/195* 2>/dev/null; '
                  'exit $code')
        variables = ["%s=%s" % item for item in sorted((env or {}).items())]
        as_user = ["setpriv", "--reuid", user, "--clear-groups"] if user else []
        done = self.unguarded(*harness.sandbox(world, list(bwrap)), "sh", "-c", script, mark,
                              *as_user, "env", "-i", *variables, *command)
        with open(mark, encoding="utf-8", errors="replace") as out:
            with open(mark + ".err", encoding="utf-8", errors="replace") as err:
                return done.returncode, out.read(), err.read(), done.stdout.split()

    def run_doctor(self, *words, command=launcher.LAUNCHER, world="none", **env):
        """Runs doctor with these words; returns (code, stdout, the nodes in /dev after the run).

        env: variables on top of a clean environment.
        """
        code, out, err, nodes = self.run_in([command, "doctor", *words], world,
                                            env=launcher.environment(**env))
        self.assertEqual(err, "", out)
        self.assertIn(code, (0, 1, 2), out)
        return code, out, nodes

    def doctor(self, *program, **more):
        code, out, nodes = self.run_doctor("--json", "-", *program, **more)
        answer = Answer(code, json.loads(out), nodes)
        self.assertEqual(answer.document["exit_code"], code)
        if not program:
            self.assertEqual(code, 1 if answer.problems else 0, out)
        return answer

    def well(self, **env):
        answer = self.doctor(**env)
        self.assertEqual((answer.code, answer.problems), (0, []))
        return answer

    def problem(self, answer, *meaning):
        """Fails unless there is exactly one problem, which contains these words. The tests' own
        sandbox is a user's namespace unless root runs them, and may explain cuInit's answer."""
        problems = [text for text in answer.problems if not text.startswith("cuInit answers")]
        self.assertEqual(len(problems), 1, answer.problems)
        for word in meaning:
            self.assertIn(word, problems[0])

    def sick(self):
        """Returns a directory with a copy of the fake driver that simulates faults
        (tests/fakes/sick.c)."""
        os.makedirs(self.path("sick"), exist_ok=True)
        shutil.copy(os.path.join(harness.FAKES, "sick", "libcuda.so.1"), self.path("sick"))
        return self.path("sick")

    def transcript(self, name, command, block, world="none"):
        """Compares the text, word for word, for an installation below the test's own directory.
        Each sentence is joined to one line, because the line breaks depend on the length of paths.
        """
        *variables, _, _ = command.split()
        env = dict(variable.split("=", 1) for variable in variables)
        if "LD_LIBRARY_PATH" in env:
            env["LD_LIBRARY_PATH"] = self.path(env["LD_LIBRARY_PATH"])
        code, text, _ = self.run_doctor(command=self.installed(), world=world, **env)
        for line in text.splitlines()[1:]:
            # A long path cannot be wrapped, so it must be alone on its line.
            value = line.strip("- ") if line.startswith("  ") else line[19:]
            self.assertTrue(len(line) <= 100 or " " not in value, line)
        text = re.sub(r"\n {4}(?=\S)|\n {19}(?=/)", " ", text)
        text = text.replace(self.directory, "DIRECTORY")
        own = "(user namespace|seccomp filter)"
        text = re.sub(r"^sandbox +this process is in a %s(, a %s)*\n" % (own, own), "", text,
                      flags=re.MULTILINE)
        if machine.missing("roots_filters"):  # the fence then needs it
            text = re.sub(r"^ {19}sets no_new_privs.*\n", "", text, flags=re.MULTILINE)
        # Whether there is Landlock depends on the kernel.
        text = re.sub(r"^ {19}(also|not) of devices.*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"(?<!\S)/(usr/)?lib\S*/(?=libcuda|libnvidia)", "DRIVER/", text)
        text = re.sub(r"(?<=\.so\.)\d{3}[.\d]*", "VERSION", text)
        text = re.sub(r"after \d+ ms", "after N ms", text)
        done = types.SimpleNamespace(stdout=text, stderr="", returncode=code)
        transcript.check(self, name, command, block, done, str)
