# SPDX-License-Identifier: Apache-2.0
"""The guard of this build loads and guards in the minimal systems of other releases."""

import os
import re

import pytest

from support import harness, matrix, messages, systems

pytestmark = pytest.mark.full

# Each entry has the command, the expected answers and the libraries that follow the guard in
# LD_PRELOAD.
ENTRY_POINTS = [
    *(([systems.ENTRY_POINT, *way.split()], matrix.CUDA, ()) for way in (
        "lib=libcuda.so.1", "lib=libcuda.so", "lib=/mnt/driver/libcuda.so.1",
        "lib=libcuda.so flags=now,deepbind",
        "plugin=/mnt/programs/plugin_open.so flags=now,deepbind", "lib=libcuda.so.1 space=new",
        "lib=/mnt/driver/libcuda.so.1 via=next version=old",
        "lib=/mnt/driver/libcuda.so.1 via=default version=old",
        "lib=/mnt/driver/libcuda.so.1 via=default version=old space=new",
        "lib=libcuda.so.1 when=thread", "lib=libcuda.so.1 when=fork")),
    ([systems.ENTRY_POINT, "api=nvml", "lib=libnvidia-ml.so.1"], matrix.NVML, ()),
    ([systems.LINKED, "proc"], {"cuInit": "100", "cuInit1": "1"}, ()),
    ([systems.LINKED, "plt"], {"cuInit": "100", "version": "99990"},
     ("/mnt/lib/cudaguard/libcuda.so.1",)),  # the null driver
    (["/mnt/programs/runtime_12_static", "count"], {"cudaGetDeviceCount": "100"}, ()),
]

GUARD = "/mnt/lib/libcudaguard.so"
# Each release, and its glibc. Ubuntu 16.04 is the oldest release that an archive still has.
RELEASES = {"bullseye": r"2\.31", "trixie": r"2\.41", "xenial": r"2\.23"}
HOOKS = {"calls": [], "jumps": ["-DTAIL"], "own": ["-DOWN_DLVSYM"], "once": ["-DONCE"]}
TESTS = os.path.join(harness.SOURCE, "tests")


class Root(systems.Case):
    """The system of a release, with programs that are linked to its glibc."""

    def enter(self, release):
        self.root = self.system(release)
        systems.build_programs(self.root, self.programs)
        systems.build_more_programs(self.root, self.programs)
        self.build("races", "phdr_fork.c", "phdr_fork")
        for shape, flags in HOOKS.items():
            self.build("guest", "counting_hook.c", shape + ".so", "-O2", *flags)
        for program in ("poll", "overclose"):
            self.build("guest", program + ".c", program, "-fPIE")  # no PLT entry that dlvsym finds
        self.build("guest", "lookups.c", "lookups", "-DPROGRAM")
        self.build("guest", "lookups.c", "lookups.so")

    def build(self, area, source, output, *flags, libdl=True):
        systems.link(self.root, [os.path.join(TESTS, area, "programs", source)],
                     os.path.join(self.programs, output), [], flags=flags, libdl=libdl)

    def inside(self, *argv, preload=(), **more):
        return self.run_inside(self.root, list(argv), preload, **more)

    def same(self, argv, other, env=None):
        """Fails unless the guard, before and after the other library, changes no answer. Returns
        what the program printed."""
        there = os.path.islink(systems.find(self.root, "libc.so.6"))
        libc = "libdl.so.2" if there else "libc.so.6"
        unguarded = self.inside(*argv, preload=other, env=env)
        self.assertEqual(unguarded.rc, 0, unguarded)
        for preload in ([*other, GUARD], [GUARD, *other]):
            guarded = self.inside(*argv, preload=preload, env=env)
            self.assertEqual(guarded.out.replace("libcudaguard.so", libc), unguarded.out,
                             (preload, str(guarded)))
        return unguarded.out


@pytest.fixture(name="root", scope="module", params=RELEASES)
def make_root(request):
    root = Root()
    for lent in harness.lent(root):
        root.release = request.param
        root.enter(request.param)
        yield lent


def test_release_has_its_glibc_and_the_guard_is_silent(root):
    version = root.inside("ldd", "--version")
    assert re.search(r"GLIBC {0}|GNU libc\) {0}".format(RELEASES[root.release]), version.out)
    quiet = root.inside("/bin/true", preload=[GUARD])
    assert (quiet.rc, quiet.out, quiet.err) == (0, "", ""), str(quiet)


@pytest.mark.parametrize(("argv", "expect", "preload"), ENTRY_POINTS)
def test_guard_works(root, argv, expect, preload):
    root.inside(*argv).assert_reached(root)
    guarded = root.inside(*argv, preload=(GUARD,) + preload)
    guarded.assert_untouched(root, linked=argv[0] == systems.LINKED and not preload)
    for key, wanted in expect.items():
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        assert guarded.answers.get(key) in wanted, "%s\n%s" % (key, guarded)
    assert guarded.rc == 0, str(guarded)
    assert messages.without(guarded.err, *messages.DENIED) == "", str(guarded)
    assert guarded.err, str(guarded)


@pytest.mark.parametrize("before", [[], ["open:libm.so.6"]])
@pytest.mark.parametrize("step", ["open:libc.so.6", "null:", "base:libc.so.6", "fail:libcg-none.so",
                                  "noload:libc.so.6", "absent:libcuda.so.1"])
def test_forked_child_does_not_wait(root, step, before):
    """A child that inherits ld.so's lock locked does not wait for it (tests/races)."""
    command = ["/mnt/programs/phdr_fork", "block", "2", "30", *before, "--", step]
    for preload in ((), (GUARD,)):
        result = root.inside(*command, preload=preload, driver=False)
        assert result.out == "ok 2 hung 0 other 0\n", str(result)


def test_control_forked_child_waits_for_the_lock(root):
    result = root.inside("/mnt/programs/phdr_fork", "block", "1", "2", "--", "phdr:", driver=False)
    assert result.out == "ok 0 hung 1 other 0\n", str(result)


# "once" needs another function at each second call of "default".
@pytest.mark.parametrize(("shape", "find"), [
    (shape, find) for shape in HOOKS
    for find in ("next", "default", "version-next", "version-default")
    if (shape, find) != ("once", "default")])
def test_hook_sees_each_call(root, shape, find):
    """As tests/guest/test_hooks.py."""
    for via in (None, "default", "self", "version-default", "version-next", "version-self"):
        env = {"CG_FIND": find, **({"CG_VIA": via} if via else {})}
        out = root.same(["/mnt/programs/poll", "20", "libm.so.6"],
                        ["/mnt/programs/%s.so" % shape], env)
        if via is None:
            calls = 40 if find == "default" else 20
            assert "dlmopen %d\n" % calls in out  # the control


def test_dlvsym_answers_as_without_the_guard(root):
    root.same(["/mnt/programs/lookups"], [])
    root.same(["/mnt/programs/poll", "2", "libm.so.6"], ["/mnt/programs/lookups.so"],
              {"CG_START": "1"})


def test_handle_that_is_closed_too_often_fails(root):
    """As tests/guest/test_overclose.py."""
    closed = root.inside("/mnt/programs/overclose", "libcuda.so.1", "3", preload=[GUARD])
    assert "failed 2: shared object not open\nclosed yes\nerror no\nagain ok\n" in closed.out


@pytest.mark.parametrize("root", ["bullseye"], indirect=True)
def test_libdl_in_a_local_scope_is_found(root):
    """libc loads a name service, and so libdl.so.2, where dlsym(RTLD_NEXT) does not look."""
    root.build("guest", "late_libdl.c", "late.so", "-DLIBRARY")
    root.build("guest", "late_libdl.c", "late", libdl=False)
    for preload in ((), (GUARD,)):
        result = root.inside("/mnt/programs/late", "/mnt/programs/late.so", preload=preload)
        assert (result.out, result.rc) == ("answers 31\n", 0), str(result)
