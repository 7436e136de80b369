# SPDX-License-Identifier: Apache-2.0
"""`run` finds a program's libraries in ld.so.cache, without a process, or it asks ld.so. The names
and paths are the same for every program of the machine, and for what can lead ld.so elsewhere."""

import os
import shutil
import subprocess

import pytest

from support import fixtures, harness, launcher, machine

pytestmark = pytest.mark.all

ANSWERS = os.path.join(harness.BUILD, "tests", "launcher", "loader_answers")
CACHE = "/etc/ld.so.cache"
DIRECTORIES = ("/usr/bin", "/usr/sbin", "/usr/libexec", *(["/usr/lib"] if harness.FULL else []))
SAME, ASKS, DIFFERENT = "same", "asks ld.so", "DIFFERENT"


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.need("bwrap", "gcc", "ldconfig")
        self.box = []

    def library(self, path, *options, soname="libcg_x.so.1"):
        """Makes a library of no functions."""
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        naming = ["-Wl,-soname," + soname] if soname else []
        self.compile(path, os.devnull, "-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", *naming,
                     "-x", "none", *options)
        return self.path(path)

    def user(self, *options, library="cached/libcg_x.so.1"):
        """Makes a program that is linked to the library."""
        text = self.make("main.c", "int main(void) { return 0; }\n")
        return self.compile("user", text, "-Wl,--no-as-needed", *options, self.path(library),
                            "-Wl,--unresolved-symbols=ignore-all", "-Wl,--allow-shlib-undefined")

    def ldconfig(self, *options):
        words = [*harness.sandbox("real", ["--tmpfs", "/var/cache/ldconfig"]), "ldconfig", "-X",
                 *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done)

    def cache_of(self, *options):
        """Makes the cache of the default directories and of cached/. Returns its path."""
        conf = self.make("ld.so.conf", self.path("cached") + "\n")
        self.ldconfig("-C", self.path("cache"), "-f", conf, *options)
        return self.path("cache")

    def verdict(self, program, cache=None, own=None, **variables):
        """cache: ld.so's; own: the launcher's, if that is another one."""
        os.makedirs(self.path("here"), exist_ok=True)
        box = self.box + ["--chdir", self.path("here")] + (
            ["--ro-bind", cache, CACHE] if cache else [])
        words = [*harness.sandbox("real", box), ANSWERS, harness.GUARD, own or CACHE, program]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={
            key: value for key, value in {**os.environ, **variables}.items()
            if key in variables or not key.startswith(("LD_", "GLIBC_"))})
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.split(":")[0], done.stdout


make_case = fixtures.lent("case", Case)


X = "libcg_x.so.1"
BOTH = ("run/" + X, "cached/" + X)


def made(case, options="", libraries=BOTH, soname=X, more=(), ldconfig=(), change=None):
    """A program with these linker options, and the cache. In the options, RUN is a directory with
    another such library. `more`: further directories or libraries; `change`: of the library."""
    for path in (*libraries, *(path for path in more if not path.endswith("/"))):
        case.library(path, soname=soname)
    for path in more:
        os.makedirs(case.path(os.path.dirname(path)), exist_ok=True)
    program = case.user(*options.replace("RUN", case.path("run")).split())
    cache = case.cache_of(*ldconfig)
    if change:
        change(case.path("cached", X), cache)
    return program, cache


def patched(at, byte):
    """The library has another byte in its ELF header, so ld.so refuses it."""
    def change(library, _):
        with open(library, "r+b") as stream:
            stream.seek(at)
            stream.write(bytes([byte]))
    return change


def of_the_guard(case):
    """The program is linked to the guard, and the cache has a copy of it."""
    case.library("cached/" + X)
    guard = shutil.copy(harness.GUARD, case.path("cached"))
    return case.user(guard), case.cache_of()


def named(*names):
    """The cache has libraries of these names. The program is linked to the first."""
    def make(case):
        for name in names:
            case.library("cached/" + name, soname=name)
        return case.user(library="cached/" + names[0]), case.cache_of()
    return make


def by_a_link(case):
    """The kernel follows the link, so $ORIGIN is not the link's directory."""
    program, cache = made(case, "-Wl,-rpath,$ORIGIN/run")
    os.makedirs(case.path("other"))
    os.symlink(program, case.path("other/user"))
    return case.path("other/user"), cache


def of_a_filter(case):
    case.library("cached/" + X, "-Wl,--filter,libm.so.6")
    return case.user(), case.cache_of()


def of_two_names(case):
    """One needs libcg_x.so.1, another libcg_x.so: a link to that library."""
    library = case.library("cached/" + X)
    os.symlink(library, case.path("cached", "libcg_x.so"))
    case.library("bare/libcg_x.so", soname="libcg_x.so")
    case.library("cached/libcg_y.so.1", case.path("bare", "libcg_x.so"), soname="libcg_y.so.1")
    return case.user(case.path("cached", "libcg_y.so.1")), case.cache_of()


RPATH = {"options": "-Wl,-rpath,RUN"}
OF_PROCESSORS = "/glibc-hwcaps/x86-64-v2/" + X
SHAPES = {
    "in the cache": ({}, SAME),
    "run path": (RPATH, SAME),
    "run path of a missing directory": ({"options": "-Wl,-rpath,/nowhere"}, SAME),
    "run path with slashes at its end": ({"options": "-Wl,-rpath,RUN//"}, ASKS),
    "run path with a colon at its end": ({"options": "-Wl,-rpath,/nowhere:", "more": ["here/" + X]}, ASKS),
    "run path with two colons": ({"options": "-Wl,-rpath,/nowhere::RUN", "more": ["here/" + X]}, ASKS),
    "run path by origin": ({"options": "-Wl,-rpath,$ORIGIN/run"}, SAME),
    "run path by origin, program by a link": (by_a_link, SAME),
    "run path by another token": ({"options": "-Wl,-rpath,$LIB/run"}, ASKS),
    "relative run path": ({"options": "-Wl,-rpath,run"}, ASKS),
    "old run path": ({"options": "-Wl,--disable-new-dtags,-rpath,RUN"}, ASKS),
    "run path with processors": ({**RPATH, "more": ["run" + OF_PROCESSORS]}, ASKS),
    "run path with old processors": ({**RPATH, "more": ["run/tls/"]}, ASKS),
    "run path with a directory": ({**RPATH, "more": ["run/other/"]}, SAME),
    "cache with processors": ({"more": ["cached" + OF_PROCESSORS]}, ASKS),
    "filter": (of_a_filter, ASKS),
    "auditor": ({"options": "-Wl,--audit,/nowhere.so"}, ASKS),
    "no default directories": ({"options": "-Wl,-z,nodefaultlib"}, ASKS),
    "no SONAME": ({"soname": None}, ASKS),
    "stale": ({"change": lambda library, _: os.unlink(library)}, ASKS),
    "two names": (of_two_names, ASKS),
    "equal names": (named("libcg_x.so.01", "libcg_x.so.1"), ASKS),
    "names beyond ASCII": (named("libcg_x.so", "libcg_x.so\u00e9", "libcg_x.soz"), SAME),
    "the guard": (of_the_guard, SAME),
    "32-bit library": ({"change": patched(4, 1)}, ASKS),  # the byte's place in the header, as in elf.h
    "library of GNU": ({"change": patched(7, 3)}, SAME),
    "library of another system": ({"change": patched(7, 9)}, ASKS),
    "old form": ({"ldconfig": ["-c", "compat"]}, ASKS),
    "damaged": ({"change": lambda _, cache: os.truncate(cache, 100)}, ASKS),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_is_found_like_by_ld_so_or_asked(case, shape):
    how, expected = SHAPES[shape]
    program, cache = made(case, **how) if isinstance(how, dict) else how(case)
    verdict, text = case.verdict(program, cache)
    assert verdict == expected, text


@pytest.mark.parametrize("name, value", [
    ("LD_LIBRARY_PATH", "/nowhere"), ("LD_AUDIT", "/nowhere.so"),
    ("GLIBC_TUNABLES", "glibc.malloc.check=0")])
def test_variable_of_ld_so_is_left_to_it(case, name, value):
    program, cache = made(case)
    assert case.verdict(program, cache)[0] == SAME
    assert case.verdict(program, cache, **{name: value})[0] == ASKS


def test_preload_file_is_left_to_ld_so(case):
    program, cache = made(case)
    case.box = ["--tmpfs", "/etc", "--ro-bind", cache, CACHE]
    assert case.verdict(program)[0] == SAME
    case.box += ["--ro-bind", case.make("empty", ""), "/etc/ld.so.preload"]
    assert case.verdict(program)[0] == ASKS


def test_guard_that_cannot_be_executed_is_left_to_ld_so(case):
    machine.need("root", "mounts")
    words = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o noexec none "$1" && cp "$2" "$1" && '
             'exec "$3" "$1/libcudaguard.so" %s /bin/true' % CACHE, "sh", case.path("tmp"),
             harness.GUARD, ANSWERS]
    os.mkdir(case.path("tmp"))
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"]})
    assert done.stdout == "asks ld.so: /bin/true\n", done


def test_control_another_answer_is_noticed(case):
    """The launcher reads a cache that ld.so does not have."""
    program, cache = made(case)
    other = case.make("other", "")
    with open(cache, "rb") as stream:
        text = stream.read()
    place = case.path("cached").encode()
    elsewhere = place[:-1] + b"D"
    assert text.count(place) > 0
    with open(other, "wb") as stream:
        stream.write(text.replace(place, elsewhere))
    shutil.copytree(place, elsewhere)
    verdict, out = case.verdict(program, cache, own=other)
    assert verdict == DIFFERENT, out


def test_every_program_of_this_machine_has_the_libraries_that_ld_so_says(case):
    programs = []
    for top in DIRECTORIES:
        for directory, _, names in os.walk(top):
            paths = (os.path.join(directory, name) for name in names)
            programs += [path for path in paths if os.path.isfile(path) and
                         not os.path.islink(path) and os.access(path, os.R_OK | os.X_OK)]
    out = ""
    for at in range(0, len(programs), 500):
        done = subprocess.run([ANSWERS, harness.GUARD, CACHE, *programs[at:at + 500]],
                              capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"]})
        assert (done.returncode, done.stderr) == (0, "")
        out += done.stdout
    lines = out.splitlines(keepends=True)
    verdicts = [line.split(":")[0] for line in lines if not line.startswith(" ")]
    different = [at for at, line in enumerate(lines) if line.startswith(DIFFERENT)]
    assert not different, "".join(lines[different[0]:different[0] + 400])
    assert verdicts.count(SAME) > verdicts.count(ASKS)


@pytest.mark.parametrize("words, answer", [
    ([], 0),
    ([launcher.LAUNCHER, "run", "--"], 100),
    ([launcher.LAUNCHER, "run", "--policy=OFF", "--"], 0),
], ids=["control", "FORCE_CPU", "OFF"])
def test_program_whose_driver_is_in_the_cache_is_guarded(case, words, answer):
    """No run path, and no LD_LIBRARY_PATH: ld.so finds the fake driver by its cache."""
    shutil.copytree(harness.FAKE_DRIVER, case.path("cached"))
    program = case.compile("linked", "linked.c", "-L" + harness.FAKE_DRIVER, "-l:libcuda.so.1")
    box = harness.sandbox("fake", ["--ro-bind", case.cache_of(), CACHE])
    done = subprocess.run(
        [*box, "strace", "-f", "-qq", "-e", "trace=execve", "-e", "signal=none", "-o",
         case.path("log"), *words, program], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": launcher.HOME})
    assert (done.returncode, done.stdout) == (0, "cuInit=%d\n" % answer), done
    with open(case.path("log"), encoding="utf-8") as stream:
        assert len(stream.readlines()) == (2 if words else 1)  # ld.so is not started
