# SPDX-License-Identifier: Apache-2.0
"""What doctor's tests share: runs it in a sandbox with a /dev and a kernel of its own, as text and
as JSON, and holds both against each other and against the schema."""

import json
import os
import re
import shutil

import harness
import launcher

try:
    import jsonschema
except ImportError:
    jsonschema = None

PROBE = os.path.join(harness.STANDIN_DIR, "cudaguard-probe")
NAMES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-opencl.so.1")
VENDORS = "/etc/OpenCL/vendors"
WAIT = {"CUDAGUARD_DOCTOR_TIMEOUT": "2"}


def schema():
    with open(os.path.join(harness.SOURCE, "shim", "launcher", "doctor", "doctor.schema.json"),
              encoding="utf-8") as stream:
        return json.load(stream)


def words(text):
    """One line, whatever was wrapped."""
    return " ".join(text.split())


class Answer:
    """What doctor said."""

    def __init__(self, code, document, text, nodes):
        self.code = code
        self.machine = document["machine"]
        self.document = document
        self.text = text
        self.nodes = nodes  # below /dev, afterwards
        self.problems = self.machine["problems"]
        self.notes = self.machine["notes"]
        self.cuinit = self.machine["cuinit"]

    def library(self, name):
        return next(row for row in self.machine["libraries"] if row["name"] == name)

    def kinds(self):
        return [row["kind"] for row in self.machine["libraries"]]


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        if jsonschema is None:
            harness.skip(self, "python3-jsonschema is not installed")

    def kernel(self, module=None, nodes=(), modules=()):
        """bubblewrap's arguments: no module or one of this version; device nodes (in truth
        /dev/null) or, with "=", files."""
        extra = ["--tmpfs", "/proc/driver", "--tmpfs", "/sys/module", "--dir", "/sys/module/kernel"]
        if os.path.isdir(VENDORS):
            extra += ["--tmpfs", VENDORS]
        for name in modules:
            extra += ["--dir", "/sys/module/" + name]
        if module:
            line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Jun  5 20:24:16 UTC\n"
            path = self.make("version", line % module, 0o644)
            # Made by itself, this folder would be root's alone.
            extra += ["--dir", "/proc/driver/nvidia",
                      "--ro-bind", path, "/proc/driver/nvidia/version"]
        for node in nodes:
            source = self.make("node", "") if node.endswith("=") else "/dev/null"
            extra += ["--dev-bind", source, "/dev/" + node.rstrip("=")]
        return extra

    def run_in(self, command, world="none", bwrap=(), env=None, user=None):
        """(code, stdout, stderr, what is in /dev afterwards)."""
        mark = self.path("out")
        script = ('"$@" >"$0" 2>"$0.err"; code=$?; ls -d /dev/nvidia* /dev/char/195* 2>/dev/null; '
                  'exit $code')
        variables = ["%s=%s" % item for item in sorted((env or {}).items())]
        as_user = ["setpriv", "--reuid", user, "--clear-groups"] if user else []
        done = self.bare(*harness.sandbox(world, bwrap), "sh", "-c", script, mark, *as_user,
                         "env", "-i", *variables, *command)
        with open(mark, encoding="utf-8", errors="replace") as out:
            with open(mark + ".err", encoding="utf-8", errors="replace") as err:
                return done.returncode, out.read(), err.read(), done.stdout.split()

    def doctor(self, *program, world="none", bwrap=None, command=launcher.LAUNCHER, user=None,
               **env):
        """env: variables on top of a clean environment. user: gets a copy of the launcher, as the
        checkout may be in a directory that only its owner can enter."""
        if user:
            copy = self.path("everybody", "bin", "cudaguard")
            command = copy if os.path.exists(copy) else self.installed("everybody")
        bwrap = self.kernel() if bwrap is None else bwrap
        env = launcher.environment(**env)
        results = [self.run_in([command, "doctor", *words, *program], world, bwrap, env, user)
                   for words in (["--json"], [])]
        for code, out, err, _ in results:
            self.assertEqual(err, "", out)
            self.assertIn(code, (0, 1, 2), out)
        document = json.loads(results[0][1])
        jsonschema.Draft202012Validator(schema()).validate(document)
        self.assertEqual(document["exit_code"], results[0][0])
        self.assertEqual(results[1][0], results[0][0], "text and JSON differ")
        answer = Answer(results[0][0], document, results[1][1], results[0][3] + results[1][3])
        self.check(answer)
        return answer

    def check(self, answer):
        """The text says what the JSON says, and can be read."""
        text = words(answer.text)
        machine = answer.machine
        # Process ids differ from run to run.
        said = re.sub(r"process \d+", "process N", text)
        for sentence in answer.problems + answer.notes:
            self.assertIn("- " + re.sub(r"process \d+", "process N", words(sentence)), said)
        if not answer.document.get("program"):
            self.assertEqual(len(re.findall(r"(?m)^  - ", answer.text)),
                             len(answer.problems) + len(answer.notes), answer.text)
            self.assertEqual(answer.code, 1 if answer.problems else 0, answer.text)
        self.assertEqual("problems: none" in text, not answer.problems)
        for row in machine["libraries"]:
            if row["path"]:
                version = " " + row["version"] if row["version"] else ""
                self.assertIn("%s%s, %s" % (row["kind"], version, row["path"]), text)
        for gpu in (answer.cuinit["gpus"] or []) + (machine["gpus"] or []):
            self.assertIn(gpu["uuid"] or "UUID not known", text)
        if answer.cuinit["code"] is not None:
            self.assertIn("cuInit %d" % answer.cuinit["code"], text)
        for key in ("signal", "where", "reason"):
            self.assertIn(answer.cuinit[key] or "", text)
        self.assertNotIn("\x1b", answer.text)
        for line in answer.text.splitlines():
            # A long path cannot be cut; nothing stands beside it.
            value = line.strip("- ") if line.startswith("  ") else line[19:]
            self.assertTrue(len(line) <= 100 or " " not in value, line)

    def problem(self, answer, *meaning):
        """There is one problem, and it says these words."""
        self.assertEqual(len(answer.problems), 1, answer.text)
        for word in meaning:
            self.assertIn(word, answer.problems[0])

    def sick(self, kind="sick", folder="sick"):
        """A folder with a copy of the fake driver that can be ill: tests/fakes/sick.c."""
        folder = self.path(folder)
        shutil.rmtree(folder, True)
        os.makedirs(folder)
        shutil.copy(os.path.join(harness.FAKES, kind, "libcuda.so.1"), folder)
        return folder

    def library(self, name, code, *options):
        """A library of this name made of this C code, in a folder of its own; the folder."""
        folder = self.path("of-" + re.sub(r"\W", "-", name))
        os.makedirs(folder, exist_ok=True)
        made = self.compile("library", code, "-shared", "-fPIC", *options)
        shutil.move(made, os.path.join(folder, name))
        return folder

    def golden(self, name, *program, **more):
        """The text, word for word, of an installation below the test's own folder. A sentence is
        one line here: where it is cut depends on the length of paths."""
        answer = self.doctor(*program, command=self.installed("golden"), **more)
        text = re.sub(r"\n {4}(?=\S)", " ", answer.text).replace(self.folder, "FOLDER")
        text = re.sub(r"(?<!\S)/(usr/)?lib\S*/(?=libcuda|libnvidia)", "DRIVER/", text)
        text = re.sub(r"after \d+ ms", "after N ms", text)
        version = answer.library("libcuda.so.1")["version"]
        if version:
            text = re.sub(r"up to \d+\.\d+", "up to N", text.replace(version, "VERSION"))
        self.same_as_golden(name, text)
        return answer
