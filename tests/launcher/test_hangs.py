# SPDX-License-Identifier: Apache-2.0
"""An ld.so that hangs, as at a network directory that is gone (here: at a named pipe), is asked for
a while and not longer, by `run` and by `doctor`; what hangs is named."""

import concurrent.futures
import os
import platform
import subprocess
import unittest

from support import doctor, harness, launcher

BOX = os.path.join(harness.FAKES, "lazy")


class Hangs(doctor.Case):
    def pipe(self, name="libcuda.so.1"):
        directory = self.path("pipe")
        os.mkdir(directory)
        os.mkfifo(os.path.join(directory, name))
        return directory

    def test_control_program_hangs_without_doctor(self):
        env = launcher.environment(LD_LIBRARY_PATH=self.pipe())
        with self.assertRaises(subprocess.TimeoutExpired):
            subprocess.run([harness.program("linked_cuda")], env=env, timeout=2, check=False)

    def test_doctor_names_the_library_that_hangs(self):
        """What was found before is kept, and asked."""
        directory = self.pipe("libnvidia-ml.so.1")
        answer = self.doctor(LD_LIBRARY_PATH="%s:%s" % (directory, BOX), LD_PRELOAD="libcudaguard.so",
                             **doctor.WAIT)
        self.assertEqual([len(answer.facts(name)) for name in doctor.NAMES], [1, 1, 0, 0])
        self.problem(answer, "asked for libnvidia-ml.so.1, ld.so gave no answer within 1 s, at %s/"
                     "libnvidia-ml.so.1;" % directory, "CUDAGUARD_DOCTOR_TIMEOUT=60 waits longer")
        self.assertTrue(answer.line.endswith("; driver: answers"), answer.line)

    @unittest.skipUnless(platform.machine() == "x86_64", "closes.c is in its system calls")
    def test_hanging_program_is_asked_for_ten_seconds(self):
        """By run, by doctor, and by run if ld.so has closed its pipes: all three at once."""
        closes = launcher.program("closes_user")
        program = harness.program("linked_cuda")
        directory = self.pipe()
        env = launcher.environment(LD_LIBRARY_PATH=directory)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            run = pool.submit(self.start, "run", program, env=env)
            silent = pool.submit(self.start, "run", closes)
            answer = self.doctor(program, LD_LIBRARY_PATH=directory, **doctor.WAIT)
        why = "its ld.so gave no answer within 10 s, at %s/libcuda.so.1" % directory
        self.refused(run.result(), 125, '"%s" cannot be guarded: %s; to run it without CUDA: '
                     "cudaguard run --fence\n" % (program, why))
        self.refused(silent.result(), 125, "cannot be guarded", "its ld.so gave no answer")
        self.assertEqual(answer.code, 2)
        self.assertIn(why, answer.line)
