# SPDX-License-Identifier: Apache-2.0
"""The launcher tests share this: the command, a clean environment and a directory for each test."""

import functools
import os
import shutil
import subprocess

from support import harness, machine, settings

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
HOME = "/home/cudaguard-test"
REGISTRY = "/cudaguard/gstreamer-1.0/registry.%s.bin" % os.uname().machine
# The programs of tests/launcher, and their sources.
PROGRAMS = os.path.join(harness.BUILD, "tests", "launcher", "programs")
SOURCES = os.path.join(harness.SOURCE, "tests", "launcher", "programs")
PRESETS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "MPIR_CVAR_ENABLE_GPU": "0",
           "GST_REGISTRY_1_0": HOME + "/.cache" + REGISTRY}
ASAN = {"ASAN_OPTIONS": "verify_asan_link_order=0"}  # the preset that programs with CUDA get, too


@functools.lru_cache(None)
def public_launcher():
    """The launcher, in an installation that every user can reach."""
    if harness.reachable(LAUNCHER):
        return LAUNCHER
    directory = os.path.join(harness.public_directory(), "bin")
    os.makedirs(directory, exist_ok=True)
    harness.public_guard()
    return shutil.copy(LAUNCHER, directory)


def program(name):
    return os.path.join(PROGRAMS, name)


def source(name):
    return harness.read(os.path.join(SOURCES, name))


def line_of(name, mark):
    """The number of the source's line that has the mark in a comment."""
    text = source(name)
    return 1 + text[:text.index("// " + mark)].count("\n")


def environment(**more):
    """The test's environment without variables that the launcher reads. None in `more` deletes."""
    left_out = (*PRESETS, *ASAN, "GST_REGISTRY", "XDG_CACHE_HOME")
    env = {key: value for key, value in os.environ.items()
           if not harness.SCRUBBED.match(key) and key not in left_out}
    env.update(LC_ALL="C.UTF-8", HOME=HOME)
    env.update(more)
    return {key: value for key, value in env.items() if value is not None}


class Case(harness.DirectoryCase):
    def installed(self, directory="install"):
        """Copies the installed tree for every user to read. Returns the launcher's path."""
        shutil.copytree(harness.LIB, self.path(directory, "lib"), symlinks=True)
        os.mkdir(self.path(directory, "bin"))
        return shutil.copy(LAUNCHER, self.path(directory, "bin"))

    def ordinary_user(self):
        """The launcher's words for a user who is not root."""
        machine.need("ordinary_user")
        return [*machine.AS_NOBODY, self.installed()] if os.geteuid() == 0 else [LAUNCHER]

    def copied(self, name, to=None):
        """Copies a program to where other users find it and the test may change it. Returns its
        path."""
        return shutil.copy(program(name), self.path(to or os.path.basename(name)))

    def compile(self, name, file, *options, compiler="gcc"):
        """For a compiler or options that only the test knows. Takes a file of SOURCES, or a path."""
        done = subprocess.run([compiler, os.path.join(SOURCES, file), "-o", self.path(name),
                               *options], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.path(name)

    def start(self, *words, env=None, text=True, launcher=LAUNCHER, **more):
        """Runs the launcher with these words; env: the whole environment."""
        more.setdefault("stdin", None if "input" in more else subprocess.DEVNULL)
        if more["stdin"] is None:
            del more["stdin"]
        return subprocess.run([launcher, *map(str, words)], capture_output=True, text=text,
                              env=environment() if env is None else env,
                              timeout=settings.PATIENCE, check=False, **more)

    def unguarded(self, *words, env=None, **more):
        return subprocess.run([*map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, env=environment() if env is None else env,
                              timeout=settings.PATIENCE, check=False, **more)

    def same_as_golden(self, name, text):
        """Fails unless golden/NAME has this text. pytest --write-golden rewrites the file."""
        path = os.path.join(harness.SOURCE, "tests", "launcher", "golden", name)
        if settings.WRITE_GOLDEN:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        self.assertEqual(text, harness.read(path), settings.TO_REWRITE % path)

    def refused(self, done, code, *meaning):
        """Fails unless the launcher printed one clear line, returned `code` and ran no program."""
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertRegex(done.stderr, r"\Acudaguard: [ -~]+\n\Z")
        for word in meaning:
            self.assertIn(word, done.stderr)
