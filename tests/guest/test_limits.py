# SPDX-License-Identifier: Apache-2.0
"""These tests pin what the guard does not stop. docs/limits.md documents it. (For the fence:
tests/fence. For setuid without /etc/ld.so.preload: test_privileged.py. For a file name that is not
found: test_install.py.)"""

import os

from support import guest, harness


class Limits(guest.Case):
    def test_limit_cleared_environment_removes_the_guard(self):
        keep = ["LD_LIBRARY_PATH=" + harness.FAKE_DRIVER]
        for words in (["env", "-i"], ["env", "-u", "LD_PRELOAD"]):
            with self.subTest(words):
                result = harness.run(["sh", "-c", " ".join(
                    [*words, *keep, 'CG_FAKE_LOG="$CG_FAKE_LOG"', guest.STEPS, "ask"])])
                result.assert_reached(self)
                self.assertEqual(result.err, "", result)
        # The same without the scrubbing is guarded.
        result = harness.run(["sh", "-c", "env X=1 " + guest.STEPS + " ask"])
        self.assertEqual(result.answers["cuInit"], "100")
        result.assert_untouched(self)

    def test_limit_static_program_is_not_guarded(self):
        program = guest.binary("steps_static")
        # glibc's static dlopen reads LD_LIBRARY_PATH, not LD_PRELOAD.
        result = harness.run([program, "ask"])
        self.assertEqual(result.answers.get("cuInit"), "0", result)
        result.assert_reached(self)
        self.assertEqual(result.err, "", result)

    def test_limit_program_that_opens_the_device_itself_is_not_stopped(self):
        """The guard should not notice such a program either."""
        script = "import os\ntry: os.open('/dev/nvidiactl', os.O_RDWR)\nexcept OSError: print('none')\n"
        result = harness.run([guest.PYTHON, "-I", "-S", "-c", script])
        self.assertEqual(result.device_opens, ["/dev/nvidiactl"])
        self.assertEqual((result.out, result.err), ("none\n", ""))

    def test_program_reaches_the_driver_under_off(self):
        result = self.steps("ask", "nvml", "touches", env={"CUDAGUARD_POLICY": "OFF"})
        result.assert_reached(self)
        self.assertEqual(result.answers, {"cuInit": "0", "nvmlInit_v2": "0", "touches": "0"})
        self.assertEqual(result.err, "")
        self.assertTrue(all(os.path.dirname(p) == harness.FAKE_DRIVER
                            for p in result.driver_files))
