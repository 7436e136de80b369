# SPDX-License-Identifier: Apache-2.0
"""A process that cannot see the directory of the guard. Nothing is missing there, so nothing is
printed until the program asks for CUDA. Then CUDA is refused, with the reason."""

import os
import shutil

from support import guest, harness, messages

CANNOT = messages.text("file_unreachable", file="%s", library="%s")


MISSING = ("file_broken", "proxy_broken")
NOBODY = 65534


class Jailed(guest.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.skip(self, "needs root for a chroot")
        self.jail = self.path("jail")
        for library in ("libm.so.6", "libcuda.so.1", "libnvidia-ml.so.1"):
            source = self.library(library)
            # Where ld.so looks: the directory of libc.
            directory = self.jail + os.path.dirname(self.library("libm.so.6"))
            os.makedirs(directory, exist_ok=True)
            shutil.copy(source, os.path.join(directory, library))

    def library(self, name):
        if name != "libm.so.6":
            return os.path.join(harness.FAKES, "lazy", name)
        with open("/proc/self/maps", encoding="utf-8") as stream:
            libc = next(line.split()[-1] for line in stream if "libc" in line and ".so" in line)
        return os.path.join(os.path.dirname(libc), name)

    def jailed(self, *names, guard=True, **env):
        result = harness.run([guest.binary("jail"), self.jail, *names], world="none", guard=guard,
                             trace=False, env=env)
        self.assertEqual(result.rc, 0, result)
        return result

    def test_other_library_is_loaded_and_nothing_is_printed(self):
        for policy in ("FORCE_CPU", "VALIDATE", "OFF"):
            with self.subTest(policy):
                result = self.jailed("libm.so.6", CUDAGUARD_POLICY=policy)
                self.assertEqual((result.out, result.err), ("libm.so.6 ok\n", ""), result)

    def test_driver_is_refused_with_the_reason(self):
        result = self.jailed("libm.so.6", "libcuda.so.1", "libnvidia-ml.so.1", "libcuda.so.1")
        self.assertEqual(result.out, "libm.so.6 ok\nlibcuda.so.1 null\nlibnvidia-ml.so.1 null\n"
                                     "libcuda.so.1 null\n", result)
        self.assertEqual(guest.lines_of(result.err), [
            CANNOT % (harness.NULL_DRIVER_CUDA, "CUDA"), CANNOT % (harness.NULL_DRIVER_NVML, "NVML")])

    def test_control_unguarded_program_loads_the_driver(self):
        result = self.jailed("libm.so.6", "libcuda.so.1", guard=False)
        self.assertEqual(result.out, "libm.so.6 ok\nlibcuda.so.1 ok\n", result)


class OtherUser(guest.Case):
    """A program of root that becomes a user who may not look into the guard's directory."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.skip(self, "needs root to become another user")
        os.mkdir(self.path("private"))
        self.guard = harness.copy_install(self.path("private", "lib"))

    def becomes(self, *names, guard=True, **env):
        result = harness.run([guest.binary("jail"), "uid=%d" % NOBODY, *names], guard=False,
                             preload=[self.guard] if guard else [], trace=False, env=env)
        self.assertEqual(result.rc, 0, result)
        return result

    def hide(self, *names):
        os.chmod(self.path("private", *names), 0o700)

    def test_other_library_is_loaded_and_nothing_is_printed(self):
        self.hide()
        for policy in ("FORCE_CPU", "VALIDATE", "CLAMP", "OFF"):
            with self.subTest(policy):
                result = self.becomes("libm.so.6", CUDAGUARD_POLICY=policy)
                self.assertEqual((result.out, result.err), ("libm.so.6 ok\n", ""), result)

    def test_driver_is_refused_with_the_reason(self):
        self.hide()
        for policy in ("FORCE_CPU", "VALIDATE", "CLAMP"):
            with self.subTest(policy):
                result = self.becomes("libm.so.6", "libcuda.so.1", CUDAGUARD_POLICY=policy)
                self.assertEqual(result.out, "libm.so.6 ok\nlibcuda.so.1 null\n", result)
                first = result.err.splitlines()[0]
                self.assertTrue(messages.find(first, "file_unreachable", "proxy_unreachable"), result)
                self.assertEqual(messages.find(result.err, *MISSING), [], result)
                self.assertEqual(result.fake_calls, [], result)

    def test_directory_of_the_other_files_alone_is_hidden(self):
        """The guard's own file can be reached, so these files cannot be read, and none is missing."""
        self.hide("lib", "cudaguard")
        for policy in ("FORCE_CPU", "VALIDATE"):
            with self.subTest(policy):
                result = self.becomes("libcuda.so.1", CUDAGUARD_POLICY=policy)
                self.assertEqual(result.out, "libcuda.so.1 null\n", result)
                first = result.err.splitlines()[0]
                self.assertTrue(messages.find(first, *MISSING, why=messages.text("unreadable")),
                                result)
                self.assertEqual(messages.find(result.err, *MISSING, why=messages.text("missing")),
                                 [], result)

    def test_control_file_that_is_gone_is_missing(self):
        shutil.rmtree(self.path("private", "lib", "cudaguard"))
        for policy in ("FORCE_CPU", "VALIDATE"):
            with self.subTest(policy):
                result = self.becomes("libcuda.so.1", CUDAGUARD_POLICY=policy)
                self.assertTrue(messages.find(result.err.splitlines()[0], *MISSING,
                                              why=messages.text("missing")), result)

    def test_control_directory_that_all_may_see_hides_nothing(self):
        result = self.becomes("libm.so.6", "libcuda.so.1")
        self.assertEqual((result.out, result.err), ("libm.so.6 ok\nlibcuda.so.1 ok\n", ""), result)
        result = self.becomes("libcuda.so.1", guard=False)
        self.assertEqual(result.out, "libcuda.so.1 ok\n", result)
