# SPDX-License-Identifier: Apache-2.0
"""The launcher and its libraries work when copied into systems of every age and layout."""

import os
import shutil
import subprocess

import pytest

from support import fixtures, launcher, messages, systems

pytestmark = pytest.mark.full

LAUNCHER = "/mnt/bin/cudaguard"
RUN = [LAUNCHER, "run"]
OPEN = [systems.ENTRY_POINT, "lib=libcuda.so.1"]


class Systems(systems.Case):
    def guards_in(self, root, **more):
        """Checks what the launcher prints and does in this system, each with a control."""
        def run(*words, **also):
            return self.run_inside(root, list(words), **{**more, **also})

        systems.build_programs(root, self.programs)
        version = run(LAUNCHER, "--version")
        self.assertRegex(version.out, r"^cudaguard [\d.]+\n$", version)
        self.assertEqual((version.rc, version.err), (0, ""), version)
        unguarded = run(*OPEN)
        unguarded.assert_reached(self)
        self.assertEqual(unguarded.answers["cuInit"], "0", unguarded)
        guarded = run(*RUN, *OPEN)
        guarded.assert_untouched(self)
        self.guarded(guarded)
        # The program is linked to libcuda, and this system has none.
        unguarded = run(systems.LINKED, driver=False)
        self.assertEqual(unguarded.rc, 127, unguarded)
        self.assertIn("libcuda.so.1: cannot open shared object file", unguarded.err)
        self.guarded(run(*RUN, systems.LINKED, driver=False))
        # doctor's probe finds the driver of this system, or reports that there is none.
        doctor = run(LAUNCHER, "doctor")
        self.assertEqual((doctor.rc, doctor.err), (0, ""), doctor)
        self.assertIn("\ncuInit             0 CUDA_SUCCESS", doctor.out)
        self.assertIn("/mnt/driver/libcuda.so.1", doctor.out)
        doctor = run(LAUNCHER, "doctor", driver=False)
        self.assertEqual((doctor.rc, doctor.err), (0, ""), doctor)
        self.assertIn("\ncuInit             not tried: there is no libcuda.so.1", doctor.out)
        # For a linked program with a driver, the probe maps the driver but runs none of its code.
        run(systems.LINKED).assert_reached(self)
        linked = run(*RUN, systems.LINKED)
        self.assertEqual(linked.driver_files, ["/mnt/driver/libcuda.so.1"], linked)
        self.assertEqual(linked.fake_calls, [], linked)
        self.guarded(linked)

    def guarded(self, result):
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.assertEqual(len(result.err.splitlines()), 1, result)
        self.assertEqual(len(messages.find(result.err, *messages.DENIED)), 1, result)

    def refused(self, result, code, meaning):
        self.assertEqual((result.rc, result.out), (code, ""), result)
        self.assertRegex(result.err, r"\Acudaguard: [ -~]+\n\Z")
        self.assertIn(meaning, result.err)

    def glibc_of(self, suite, directory):
        """Copies the files of the system's glibc to their places in `directory`, without a shell or
        any other file."""
        system = self.system(suite)
        root = os.path.join(self.scratch, directory)
        info = os.path.join(system, "var", "lib", "dpkg", "info")
        lists = [name for name in os.listdir(info)
                 if name in ("libc6.list", "libc6:amd64.list", "libc6:arm64.list")]
        with open(os.path.join(info, lists[0]), encoding="utf-8") as stream:
            names = stream.read().split("\n")[:-1]
        for name in ("lib", "lib64"):
            # The release has either a directory or a link to the directory in /usr.
            os.makedirs(os.path.join(root, "usr", name))
            if os.path.islink(os.path.join(system, name)):
                os.symlink("usr/" + name, os.path.join(root, name))
        for name in names:
            source = system + name
            if "/gconv/" in name or not (os.path.isfile(source) or os.path.islink(source)):
                continue
            os.makedirs(os.path.dirname(root + name), exist_ok=True)
            shutil.copy(source, root + name, follow_symlinks=False)
        for name in ("mnt", "dev", "proc"):
            os.mkdir(os.path.join(root, name))
        self.assertEqual([name for name in ("bin", "sbin", "tmp", "usr/bin", "etc/passwd")
                          if os.path.exists(os.path.join(root, name))], [])
        return root

    def test_launcher_finds_its_directory_without_proc(self):
        """Without /proc, the launcher finds its own directory by the path that the kernel gives it.
        """
        root = self.glibc_of("bullseye", "root")
        self.guards_in(root, mounts=())
        self.guards_in(root, mounts=("dev",))
        os.symlink("cudaguard", os.path.join(self.scratch, "bin", "link"))
        for command in ("/mnt/bin/link", "bin/cudaguard", "./lib/../bin/link"):
            result = self.run_inside(root, [command, "run", *OPEN], mounts=(), directory="/mnt")
            self.guarded(result)
        # If that path leads nowhere, the launcher says so.
        source = os.path.join(launcher.SOURCES, "by_descriptor.c")
        systems.link(root, [source], os.path.join(self.programs, "by_descriptor"), [])
        result = self.run_inside(root, ["/mnt/programs/by_descriptor", LAUNCHER, "run", *OPEN],
                                 mounts=())
        self.refused(result, 125, "no /proc")

    def test_launcher_guards_in_rockys_layout(self):
        """/usr/lib64 is the directory, /lib64 is a link to it, and there is no
        lib/x86_64-linux-gnu. Red Hat's own packages are not available, so the test puts Debian's
        glibc at Red Hat's places."""
        glibc = self.glibc_of("bullseye", "glibc")
        root = os.path.join(self.scratch, "rocky")
        lib = os.path.join(root, "usr", "lib64")
        for directory in (lib, *(os.path.join(root, name) for name in (
                "usr/lib", "usr/bin", "mnt", "dev", "proc", "tmp", "etc"))):
            os.makedirs(directory)
        for name in ("lib", "lib64", "bin"):
            os.symlink("usr/" + name, os.path.join(root, name))
        source = os.path.join(glibc, "lib", systems.ARCH)
        for entry in os.scandir(source):
            if not entry.is_dir():
                shutil.copy(entry.path, lib, follow_symlinks=False)
        # Red Hat's ld.so searches /usr/lib64 by default, but this one needs the setting.
        with open(os.path.join(root, "etc", "ld.so.conf"), "w", encoding="utf-8") as stream:
            stream.write("/usr/lib64\n")
        subprocess.run(["ldconfig", "-r", root], check=True)
        self.assertFalse(os.path.exists(os.path.join(root, "usr", "lib", systems.ARCH)))
        self.guards_in(root)
        self.guards_in(root, mounts=())


make_case = fixtures.lent("case", Systems)


# Ubuntu 16.04 with glibc 2.23 is the oldest release that an archive still has.
@pytest.mark.parametrize("suite", ["bullseye", "trixie", "xenial"])
def test_launcher_guards(case, suite):
    case.guards_in(case.system(suite))


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_launcher_guards_with_glibcs_files_alone(case, suite):
    """The system has only glibc's files, like an image without a distribution."""
    root = case.glibc_of(suite, suite)
    assert case.run_inside(root, ["/bin/sh", "-c", "true"]).rc == 1
    case.guards_in(root)
    case.guards_in(root, mounts=("proc",))
