# SPDX-License-Identifier: Apache-2.0
"""Tests the parts of scripts/lab that need QEMU, as far as this is possible without QEMU."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from lab import driver, kernels, machine, nodes_machine
from support import settings

# strace has logged these lines in a machine with NVIDIA's driver 535.309.01.
LOG = """\
129   openat(-100</root>, "/proc/driver/nvidia/params", 0) = 3</proc/driver/nvidia/params>
129   openat(-100</root>, "/dev/nvidia-caps", 0x90800) = -1 ENOENT (No such file or directory)
129   openat(-100</root>, "/dev/nvidiactl", 0x2) = 3</dev/nvidiactl>
129   ioctl(3</dev/nvidiactl>, 0xc00846d6, 0x7ffea45f40b0) = 0
129   ioctl(3</dev/nvidiactl>, 0xc020462b, 0x7ffea45f4200) = -1 ENODEV (No such device)
129   ioctl(1</dev/ttyS0>, 0x5401, 0x7ffea45f4200) = 0
"""


class Driver(unittest.TestCase):
    def test_log_of_strace_gives_ioctls_and_opened_devices(self):
        self.assertEqual(driver.OPENED.findall(LOG), ["/dev/nvidiactl"])
        self.assertEqual(driver.logged(LOG), [
            driver.Ioctl("/dev/nvidiactl", 0xc00846d6, ""),
            driver.Ioctl("/dev/nvidiactl", 0xc020462b, "ENODEV")])

    def test_fence_knows_the_ioctls_of_the_header_only(self):
        fence = driver.Fence(pathlib.Path(settings.SOURCE))
        self.assertTrue(all(map(fence.knows, driver.logged(LOG))))
        self.assertTrue(all(map(fence.knows, fence.all())))
        self.assertTrue(fence.knows(driver.Ioctl("/dev/nvidia-uvm", 0x30000001, "")))
        for node, number in (("/dev/nvidiactl", 0xc02046ff), ("/dev/nvidiactl", 0x4020462b),
                             ("/dev/nvidia-uvm", 0x27)):
            self.assertFalse(fence.knows(driver.Ioctl(node, number, "")), (node, number))


class Machine(unittest.TestCase):
    def test_commands_of_the_page_name_the_library_of_the_package(self):
        commands = [machine.page(number) for number in range(4)]
        self.assertNotIn("/usr/local", "".join(commands))
        self.assertIn(machine.GUARD, commands[1])

    def test_process_whose_ld_so_is_still_at_work_is_looked_at_again(self):
        """This sleep lets the first process load the guard, and the second one never does."""
        with tempfile.TemporaryDirectory() as proc:
            for number in "12":
                os.mkdir(f"{proc}/{number}")
                os.symlink("/bin/sh", f"{proc}/{number}/exe")
                pathlib.Path(proc, number, "maps").touch()
            sleep = pathlib.Path(proc, "sleep")
            sleep.write_text(f"#!/bin/sh\necho libcudaguard.so >{proc}/1/maps\n")
            sleep.chmod(0o755)
            printed = subprocess.check_output(
                ["sh", "-c", machine.PROCESSES.replace("/proc/", proc + "/")], text=True,
                env={"PATH": f"{proc}:/usr/bin:/bin"})
        self.assertEqual(printed, "guarded /bin/sh\nunguarded /bin/sh\n")

    def test_rows_have_different_names(self):
        for part in (driver, kernels, machine):
            names = [row.name for row in part.rows(None)]
            self.assertEqual(len(names), len(set(names)))


class Kernels(unittest.TestCase):
    def test_kernels_before_5_5_have_their_own_tests(self):
        rows = {row.name: row for row in kernels.rows(None)}
        for name in ("linux-4.15", "linux-5.0", "linux-5.4"):
            self.assertEqual(rows[name].tests, kernels.OLDER)
        self.assertEqual(rows["linux-5.8"].tests, kernels.REPORTING)
        self.assertEqual(rows["linux-5.0"].kernel, "5.0.0-65-generic")

    def test_rows_are_in_the_order_of_the_versions(self):
        names = [row.name for row in kernels.rows(None)]
        self.assertEqual(names[:2] + names[-2:],
                         ["linux-4.15", "linux-5.0", "linux-newest", "nodes-newest"])
        for name in ("5.10", "5.15", "6.1", "6.12", "newest"):
            self.assertIn("linux-" + name, names)
        self.assertLess(names.index("linux-5.8"), names.index("nodes-5.10"))

    def test_kernels_before_5_19_need_a_reason_against_the_fence_of_devices(self):
        reasons = [kernels.reason(version) for version in ((5, 10), (5, 13), (5, 15), (5, 19), (6, 8))]
        self.assertEqual([bool(reason) for reason in reasons], [True, True, True, False, False])
        text = pathlib.Path(settings.SOURCE, "shim/launcher/fence/devices.cpp").read_text()
        for reason in reasons[:3]:
            self.assertIn(f'"{reason}', text)

    def test_rows_name_tests_that_exist(self):
        for word in kernels.OLDER + kernels.REPORTING:
            path, *names = word.replace("--deselect=", "tests/").split("::")
            text = pathlib.Path(settings.SOURCE, path).read_text()
            for name in names:
                self.assertRegex(text, rf"(class|def) {name}\(", word)

    def test_summary_of_pytest_gives_the_tests_that_passed(self):
        summary = "3 failed, 47 passed, 1 skipped, 3 warnings in 289.02s (0:04:49)"
        self.assertEqual(kernels.SUMMARY.search(summary).groups(), ("47", "289.02"))


class Nodes(unittest.TestCase):
    def printed(self, **others):
        """What a machine prints in which all is well but for the sections in `others`."""
        parts = {"fence": ["rc 0"], "mknod": ["rc 1"], "uring": ["setup ENOSYS", "rc 0"],
                 "openat2": ["openat2-3 /dev/nvidia0 ENOSYS", "rc 0"],
                 "others-fenced": ["open-3 /dev/null EACCES", "openat2 /dev/null ENOSYS"],
                 **{name: ["open /dev/kfd opened"] for name in nodes_machine.OPENED},
                 **{name: ["open /dev/kfd EACCES"] for name in nodes_machine.REFUSED}, **others}
        return nodes_machine.sections("".join(
            f"=== {name} the command\n" + "".join(line + "\n" for line in lines)
            for name, lines in parts.items()))

    def test_machine_passes_if_each_open_is_refused_under_the_fence_alone(self):
        self.assertEqual(nodes_machine.faults(self.printed(), ""), [])

    def test_machine_fails_with_what_was_different(self):
        line = "open /dev/kfd opened"
        for name, lines, fault in (
                ("static", [line], f"static: {line}"), ("static", [], "static: nothing"),
                ("control", ["open /dev/kfd errno=2"], "control: open /dev/kfd errno=2"),
                ("user", ["open /dev/kfd EACCES"] * 2,
                 "user: another number of opens than without the fence"),
                ("openat2", ["ioctl ENOTTY", "openat2-3 /dev/nvidia0 opened", "rc 0"],
                 "openat2: ['ioctl ENOTTY', 'openat2-3 /dev/nvidia0 opened', 'rc 0']"),
                ("static", ["openat /dev/kfd ENOSYS"], "static: openat /dev/kfd ENOSYS"),
                ("others-fenced", ["open /dev/null EACCES"], "others-fenced: refused"),
                ("uring", ["uring-3 /dev/kfd opened"], "uring: ['uring-3 /dev/kfd opened']"),
                ("mknod", ["rc 0"], "mknod"), ("fence", ["too old", "rc 125"], "the fence: too old\nrc 125")):
            self.assertIn(fault, nodes_machine.faults(self.printed(**{name: lines}), ""))

    def test_machine_without_the_fence_needs_the_reason(self):
        found = self.printed(fence=["cudaguard: it is too old", "rc 125"])
        self.assertEqual(nodes_machine.faults(found, "too old"), [])
        self.assertEqual(len(nodes_machine.faults(found, "no Landlock")), 1)
        self.assertEqual(len(nodes_machine.faults(self.printed(), "too old")), 1)
