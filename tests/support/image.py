# SPDX-License-Identifier: Apache-2.0
"""Builds an image from a Dockerfile's FROM, COPY, ENTRYPOINT and CMD, and runs containers from it.

FROM always means a minimal Debian system (scripts/fetch-roots, as root). A container is a
bubblewrap
sandbox with that system, where the program is process 1. COPY works as in docker build.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from support import harness, systems

SUITE = "trixie"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # docker's default


def instructions(text):
    """Yields the instructions of a Dockerfile in exec form, without continuation lines."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, rest = line.split(None, 1)
            yield name, json.loads(rest) if rest.startswith("[") else rest


def copy_over(source, target):
    """Replaces the file, because writing to it could change the system with which it shares a hard
    link."""
    if os.path.lexists(target):
        os.remove(target)
    return shutil.copy2(source, target, follow_symlinks=False)


class Image:
    def __init__(self, case, text="", context=None):
        fetch = subprocess.run([os.path.join(harness.SOURCE, "scripts", "fetch-roots"),
                                systems.ROOTS, SUITE], capture_output=True, text=True, check=False)
        if fetch.returncode != 0:
            harness.skip(case, fetch.stderr.strip())
        self.directory = tempfile.mkdtemp(prefix=".image-", dir=systems.ROOTS)
        unittest.addModuleCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.root = os.path.join(self.directory, "root")
        self.entrypoint, self.command, self.copied = [], [], []
        subprocess.run(["cp", "-al", os.path.join(systems.ROOTS, SUITE), self.root], check=True)
        for name in ("programs", "out"):
            os.mkdir(os.path.join(self.directory, name))
            os.chmod(os.path.join(self.directory, name), 0o777)
        systems.build_programs(self.root, os.path.join(self.directory, "programs"))
        for name, words in instructions(text):
            if name == "COPY":
                self.copy(context, words)
            elif name == "ENTRYPOINT":
                self.entrypoint, self.command = words, []
            elif name == "CMD":
                self.command = words
            elif name != "FROM":
                case.fail("not understood: %s %s" % (name, words))

    def copy(self, context, words):
        source, target = words.split()
        target = self.root + target
        self.copied.append((source, target))
        if os.path.isdir(os.path.join(context, source)):  # docker copies a directory's contents
            shutil.copytree(os.path.join(context, source), target, symlinks=True,
                            copy_function=copy_over, dirs_exist_ok=True)
        else:
            copy_over(os.path.join(context, source), target)

    def sandbox(self, env=None, init=False, options=()):
        """Returns the bubblewrap command for a container of this image."""
        words = ["bwrap", "--bind", self.root, "/", "--dev", "/dev", "--proc", "/proc",
                 "--tmpfs", "/mnt", "--ro-bind", harness.FAKE_DRIVER, "/mnt/driver",
                 "--ro-bind", os.path.join(self.directory, "programs"), "/mnt/programs",
                 "--bind", os.path.join(self.directory, "out"), "/mnt/out",
                 "--unshare-pid", "--as-pid-1", "--die-with-parent", "--clearenv", *options]
        if init:  # docker run --init does the same
            words += ["--ro-bind", "/usr/bin/tini-static", "/sbin/docker-init"]
        variables = {"PATH": PATH, "HOME": "/root", "LD_LIBRARY_PATH": "/mnt/driver",
                     "CG_FAKE_LOG": "/mnt/out/fake.log", **(env or {})}
        for item in variables.items():
            words += ["--setenv", *item]
        return words + ["--"] + (["/sbin/docker-init", "--"] if init else [])

    def words(self, command=None, entrypoint=None):
        """Returns what docker run starts: entrypoint and command, or their replacements."""
        return [*(self.entrypoint if entrypoint is None else entrypoint),
                *(self.command if command is None else command)]

    def run(self, command=None, entrypoint=None, **more):
        """Runs a container to its end; returns a harness.Result."""
        log = os.path.join(self.directory, "out", "fake.log")
        if os.path.exists(log):
            os.remove(log)
        trace = os.path.join(self.directory, "trace")
        words = self.sandbox(**more) + self.words(command, entrypoint)
        done = subprocess.run(["strace", "-f", "-qq", "-s", "256", "-o", trace, "-e",
                               "trace=" + harness.TRACED, "-e", "signal=none", "--", *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                              check=False)
        result = harness.Result()
        result.words = list(map(str, words))
        result.rc, result.out, result.err = done.returncode, done.stdout, done.stderr
        with open(trace, encoding="utf-8", errors="replace") as stream:
            harness.parse_trace(stream, result)
        result.driver_files = [path for path in result.driver_files
                               if not re.match(r"/usr/local/(bin/\.\./)?lib/cudaguard/", path)]
        if os.path.exists(log):
            with open(log, encoding="utf-8") as stream:
                result.fake_calls = stream.read().split()
        return result
