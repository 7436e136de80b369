# SPDX-License-Identifier: Apache-2.0
"""The guard of this build loads and guards in the minimal systems of other releases."""

import os

import pytest

from support import harness, matrix, messages, systems

pytestmark = pytest.mark.full

# Each entry has the name, the command, the expected answers and the libraries that follow the guard
# in LD_PRELOAD.
ENTRY_POINTS = [
    ("soname", [systems.ENTRY_POINT, "lib=libcuda.so.1"], matrix.CUDA, ()),
    ("dev name", [systems.ENTRY_POINT, "lib=libcuda.so"], matrix.CUDA, ()),
    ("path", [systems.ENTRY_POINT, "lib=/mnt/driver/libcuda.so.1"], matrix.CUDA, ()),
    ("deepbind", [systems.ENTRY_POINT, "lib=libcuda.so", "flags=now,deepbind"], matrix.CUDA, ()),
    ("deepbind plug-in",
     [systems.ENTRY_POINT, "plugin=/mnt/programs/plugin_open.so", "flags=now,deepbind"], matrix.CUDA, ()),
    ("dlmopen", [systems.ENTRY_POINT, "lib=libcuda.so.1", "space=new"], matrix.CUDA, ()),
    ("dlvsym(RTLD_NEXT)", [systems.ENTRY_POINT, "lib=/mnt/driver/libcuda.so.1", "via=next",
                           "version=old"], matrix.CUDA, ()),
    ("dlvsym(RTLD_DEFAULT)", [systems.ENTRY_POINT, "lib=/mnt/driver/libcuda.so.1", "via=default",
                              "version=old"], matrix.CUDA, ()),
    ("dlvsym of dlmopen", [systems.ENTRY_POINT, "lib=/mnt/driver/libcuda.so.1", "via=default",
                           "version=old", "space=new"], matrix.CUDA, ()),
    ("thread", [systems.ENTRY_POINT, "lib=libcuda.so.1", "when=thread"], matrix.CUDA, ()),
    ("fork", [systems.ENTRY_POINT, "lib=libcuda.so.1", "when=fork"], matrix.CUDA, ()),
    ("nvml", [systems.ENTRY_POINT, "api=nvml", "lib=libnvidia-ml.so.1"], matrix.NVML, ()),
    ("linked", [systems.LINKED, "proc"], {"cuInit": "100", "cuInit1": "1"}, ()),
    ("linked, null driver preloaded", [systems.LINKED, "plt"],
     {"cuInit": "100", "version": "99990"}, ("/mnt/lib/cudaguard/libcuda.so.1",)),
    ("static cudart 12", ["/mnt/programs/runtime_12_static", "count"],
     {"cudaGetDeviceCount": "100"}, ()),
]  # fmt: skip


class Roots(systems.Case):
    def entry_points_in(self, suite, glibc):
        root = self.system(suite)
        systems.build_programs(root, self.programs)
        systems.build_more_programs(root, self.programs)
        version = self.run_inside(root, ["ldd", "--version"])
        self.assertRegex(version.out, r"GLIBC %s|GNU libc\) %s" % (glibc, glibc))
        quiet = self.run_inside(root, ["/bin/true"], ["/mnt/lib/libcudaguard.so"])
        self.assertEqual((quiet.rc, quiet.out, quiet.err), (0, "", ""), quiet)
        for name, argv, expect, preload in ENTRY_POINTS:
            with self.subTest(entry_point=name):
                unguarded = self.run_inside(root, argv)
                unguarded.assert_reached(self)
                guarded = self.run_inside(root, argv,
                                          ("/mnt/lib/libcudaguard.so",) + preload)
                guarded.assert_untouched(self, linked=name == "linked")
                for key, wanted in expect.items():
                    self.assertIn(guarded.answers.get(key),
                                  wanted if isinstance(wanted, tuple) else (wanted,),
                                  "%s\n%s" % (key, guarded))
                self.assertEqual(guarded.rc, 0, guarded)
                self.assertEqual(messages.without(guarded.err, *messages.DENIED), "", guarded)
                self.assertTrue(guarded.err, guarded)

    def forks_in(self, suite):
        """A child that inherits ld.so's lock locked does not wait for it (tests/races)."""
        root = self.system(suite)
        source = os.path.join(harness.SOURCE, "tests", "races", "programs", "phdr_fork.c")
        systems.link(root, [source], os.path.join(self.programs, "phdr_fork"), [])
        for before in ([], ["open:libm.so.6"]):
            for step in ("open:libc.so.6", "null:", "base:libc.so.6", "fail:libcg-none.so",
                         "noload:libc.so.6", "absent:libcuda.so.1"):
                with self.subTest(before=before, step=step):
                    command = ["/mnt/programs/phdr_fork", "block", "2", "30", *before, "--", step]
                    for preload in ((), ("/mnt/lib/libcudaguard.so",)):
                        result = self.run_inside(root, command, preload, driver=False)
                        self.assertEqual(result.out, "ok 2 hung 0 other 0\n", result)
        command = ["/mnt/programs/phdr_fork", "block", "1", "2", "--", "phdr:"]
        result = self.run_inside(root, command, driver=False)
        self.assertEqual(result.out, "ok 0 hung 1 other 0\n", result)  # the control

    def hooks_in(self, suite):
        """As tests/guest/test_hooks.py and test_overclose.py."""
        root = self.system(suite)
        sources = os.path.join(harness.SOURCE, "tests", "guest", "programs")

        def build(source, output, *flags, libdl=True):
            systems.link(root, [os.path.join(sources, source)], os.path.join(self.programs, output), [],
                         flags=flags, libdl=libdl)

        shapes = {"calls": [], "jumps": ["-DTAIL"], "own": ["-DOWN_DLVSYM"], "once": ["-DONCE"]}
        for shape, flags in shapes.items():
            build("counting_hook.c", shape + ".so", "-O2", *flags)
        for program in ("poll", "overclose"):
            build(program + ".c", program, "-fPIE")  # no PLT entry that dlvsym would find
        build("lookups.c", "lookups", "-DPROGRAM")
        build("lookups.c", "lookups.so")
        guard = "/mnt/lib/libcudaguard.so"

        def compare(argv, other, env):
            unguarded = self.run_inside(root, argv, other, env=env)
            self.assertEqual(unguarded.rc, 0, unguarded)
            for preload in ([*other, guard], [guard, *other]):
                with self.subTest(suite=suite, argv=argv, preload=preload, env=env):
                    guarded = self.run_inside(root, argv, preload, env=env)
                    self.assertEqual(guarded.out.replace("libcudaguard.so", libc), unguarded.out, guarded)
            return unguarded.out

        libc = "libdl.so.2" if os.path.islink(systems.find(root, "libc.so.6")) else "libc.so.6"
        for shape in shapes:
            for find in ("next", "default", "version-next", "version-default"):
                if (shape, find) == ("once", "default"):
                    continue
                for via in (None, "default", "self", "version-default", "version-next", "version-self"):
                    env = {"CG_FIND": find, **({"CG_VIA": via} if via else {})}
                    out = compare(["/mnt/programs/poll", "20", "libm.so.6"], ["/mnt/programs/%s.so" % shape],
                                  env)
                    if via is None:
                        calls = 40 if find == "default" else 20
                        self.assertIn("dlmopen %d\n" % calls, out)  # the control
        compare(["/mnt/programs/lookups"], [], None)
        compare(["/mnt/programs/poll", "2", "libm.so.6"], ["/mnt/programs/lookups.so"], {"CG_START": "1"})
        closed = self.run_inside(root, ["/mnt/programs/overclose", "libcuda.so.1", "3"], [guard])
        self.assertIn("failed 2: shared object not open\nclosed yes\nerror no\nagain ok\n", closed.out)

    def test_hooks_see_each_call_in_bullseye(self):
        self.hooks_in("bullseye")

    def test_hooks_see_each_call_in_trixie(self):
        self.hooks_in("trixie")

    def test_hooks_see_each_call_in_xenial(self):
        self.hooks_in("xenial")

    def test_libdl_in_a_local_scope_is_found_in_bullseye(self):
        """libc loads a name service, and so libdl.so.2, where dlsym(RTLD_NEXT) does not look."""
        root = self.system("bullseye")
        source = os.path.join(harness.SOURCE, "tests", "guest", "programs", "late_libdl.c")
        systems.link(root, [source], os.path.join(self.programs, "late.so"), [], flags=["-DLIBRARY"])
        systems.link(root, [source], os.path.join(self.programs, "late"), [], libdl=False)
        for preload in ((), ("/mnt/lib/libcudaguard.so",)):
            result = self.run_inside(root, ["/mnt/programs/late", "/mnt/programs/late.so"], preload)
            self.assertEqual((result.out, result.rc), ("answers 31\n", 0), result)

    def test_forked_child_does_not_wait_in_bullseye(self):
        self.forks_in("bullseye")

    def test_forked_child_does_not_wait_in_trixie(self):
        self.forks_in("trixie")

    def test_forked_child_does_not_wait_in_xenial(self):
        self.forks_in("xenial")

    def test_guard_works_in_bullseye(self):
        self.entry_points_in("bullseye", r"2\.31")

    def test_guard_works_in_trixie(self):
        self.entry_points_in("trixie", r"2\.41")

    def test_guard_works_in_xenial(self):
        """Ubuntu 16.04 is the oldest release that an archive still has."""
        self.entry_points_in("xenial", r"2\.23")
