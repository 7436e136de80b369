# SPDX-License-Identifier: Apache-2.0
"""L8: every message word for word (golden/messages.txt) and the help (golden/help.txt). They fit
100 columns where they do not carry a long path, and have no colour.

CG_GOLDEN=write rewrites the files."""

import os
import platform
import unittest

import harness
import launcher

HERE = os.path.dirname(os.path.abspath(__file__))


class Messages(launcher.Case):
    def golden(self, name, text):
        path = os.path.join(HERE, "golden", name)
        if os.environ.get("CG_GOLDEN") == "write":
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        with open(path, encoding="utf-8") as stream:
            self.assertEqual(text, stream.read())

    def test_help(self):
        done = self.start("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in (["-h"], ["run", "--help"], ["run", "-h"], ["run", "--cpu", "--help", "x"]):
            self.assertEqual(self.start(*words).stdout, done.stdout)
        lines = done.stdout.splitlines()
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertTrue(done.stdout.isascii() and "\x1b" not in done.stdout)
        self.golden("help.txt", done.stdout)

    def test_version(self):
        with open(os.path.join(harness.SOURCE, "CMakeLists.txt"), encoding="utf-8") as stream:
            version = stream.read().split("project(cudaguard VERSION ")[1].split()[0]
        self.assertEqual(self.start("--version").stdout, "cudaguard %s\n" % version)

    def test_a_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for words in (["--help"], ["run", "--print"]):
                done = self.bare("sh", "-c", '"$0" "$@" >/dev/full', launcher.LAUNCHER, *words)
                self.assertEqual(done.returncode, 125, words)
            full.flush()

    @unittest.skipUnless(platform.machine() == "x86_64", "names the machines from there")
    def test_messages(self):
        self.make("script", "#!/no/interpreter\n")
        self.make("text", "text\n")
        self.make("own", "#!/bin/sh\n")
        self.make("plain", "", 0o644)
        self.make("cut", b"\x7fELF")
        self.make("loop", "#!./loop\n")
        self.compile("hello", "int main(void) { return 0; }", "-static")
        self.compile("named", "#include <stdio.h>\nint main(void) { puts(\"libcuda.so\"); }",
                     "-static")
        self.compile("i386", "void _start(void) {}", "-m32", "-nostdlib", "-static")
        broken = self.installed("copy")
        os.unlink(self.path("copy", "lib", "libcudaguard.so"))
        text = ""
        for line in (
                "", "walk", "--bad", "run", "run --bad true", "run --cpu=1 true", "run --gpus",
                "run --gpus 1 --gpus 2 true", "run --cpu --gpus 1 true",
                "run --cpu --children=cpu true", "run --cpu --policy OFF true",
                "run --gpus 1 --policy off true", "run --children=cpu true",
                "run --children=gpu --gpus 1 true", "run --policy= true", "run --policy x true",
                "run --log x true", "run --gpus 1,1 true", "run --gpus all true",
                "run --report ./none/x true", "run --report . true", "run --report ./own ./own",
                "run none", "run ./none", "run .", "run ./plain", "run ./script", "run ./text",
                "run ./cut", "run ./loop", "run ./hello", "run --strict ./hello", "run ./named",
                "run ./i386", "@run true"):
            words = line.split()
            command = launcher.LAUNCHER
            if line.startswith("@"):
                words[0] = words[0][1:]
                command = broken
            done = self.start(*words, launcher=command, cwd=self.folder)
            text += "$ cudaguard %s\n%s-> %d\n" % (
                line, done.stderr.replace(self.folder, "FOLDER"), done.returncode)
        self.assertTrue(text.isascii() and "\x1b" not in text)
        self.golden("messages.txt", text)


if __name__ == "__main__":
    harness.main()
