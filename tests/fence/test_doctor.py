# SPDX-License-Identifier: Apache-2.0
"""doctor on the fence: can there be one here, and what would it do for a program that cannot be
guarded."""

import os

from support import doctor, fence, harness, launcher

NOBODY = "65534"


class Row(doctor.Case):
    def row(self, answer):
        return answer.machine["fence"]

    def test_can_be_had(self):
        answer = self.doctor()
        self.assertEqual(self.row(answer), {"available": True, "stands": False, "witness": True,
                                            "no_new_privs": False, "reason": None})
        self.assertIn("\nfence              can be had (cudaguard run --fence)\n", answer.text)
        self.assertEqual(answer.code, 0)

    def test_no_new_privs(self):
        """Bubblewrap sets that itself: without it, for an ordinary user."""
        words = [launcher.LAUNCHER]
        if os.geteuid() == 0:
            self.need("setpriv")
            words = ["setpriv", "--reuid=" + NOBODY, "--clear-groups", self.installed()]
        text = self.bare(*words, "doctor").stdout
        self.assertIn("\nfence              can be had (cudaguard run --fence)\n"
                      "                   sets no_new_privs: sudo and setuid programs inside keep "
                      "your rights\n", text)

    def test_stands_already(self):
        for how in ("run", "verify"):
            with self.subTest(how):
                done = self.bare(*harness.sandbox("none"), launcher.LAUNCHER, how,
                                 "--fence=require", launcher.LAUNCHER, "doctor")
                self.assertIn("\nfence              stands around this process already: no CUDA in "
                              "it, nor in what it starts\n", done.stdout)
                self.assertEqual(done.returncode, 0, done)

    def test_what_the_driver_says_behind_one(self):
        """Its answer is the fence's, and no sign of a fault."""
        driver = self.sick()
        module = self.kernel("535.54.03", ["nvidiactl", "nvidia0", "nvidia-uvm"])
        env = launcher.environment(LD_LIBRARY_PATH=driver, CG_SICK="code:100")
        variables = ["%s=%s" % item for item in env.items()]
        words = ["env", "-i", *variables, launcher.LAUNCHER, "doctor"]
        bare = self.bare(*harness.sandbox("none", module), *words).stdout
        fenced = self.bare(*harness.sandbox("none", module), launcher.LAUNCHER, "run", "--fence",
                           "--", *words).stdout
        self.assertIn("cuInit finds no GPU, though", doctor.words(bare))
        self.assertNotIn("cuInit finds no GPU, though", doctor.words(fenced))
        self.assertIn("a fence stands around doctor, too: cuInit's answer is the fence's",
                      doctor.words(fenced))

    def test_leaves_no_trace(self):
        """The process that asks is not fenced afterwards, nor has it no_new_privs."""
        log = self.path("log")
        done = self.bare("strace", "-f", "-o", log, "-e", "trace=seccomp,prctl,fork,clone,vfork",
                         launcher.LAUNCHER, "doctor")
        self.assertIn("can be had", done.stdout)
        with open(log, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
        own = [line for line in lines if line.split()[0] == lines[0].split()[0]]
        mark = ("SECCOMP_SET_MODE_FILTER", "PR_SET_NO_NEW_PRIVS", "PR_SET_SECCOMP")
        self.assertTrue([line for line in lines if mark[0] in line], "the control")
        self.assertEqual([line for line in own if any(one in line for one in mark)], [])


class Programs(doctor.Case):
    def advice(self, *program, **env):
        answer = self.doctor(*program, **env)
        return ("\nwith --fence       no CUDA all the same: cudaguard run --fence\n" in answer.text,
                answer.document["program"]["guarded"]["fence"])

    def test_advice(self):
        """Where the guard does not hold, or not wholly; never where --fence is refused as well."""
        static = fence.program("requests_static")
        cleared = self.make("cleared", "#!/usr/bin/env -S -i true\n")
        self.assertEqual(self.advice(static), (True, True))
        self.assertEqual(self.advice(cleared), (True, True))
        self.assertEqual(self.advice("true"), (False, True))
        self.assertEqual(self.advice(static, CUDAGUARD_POLICY="OFF"), (False, False))
        # And it is true.
        self.assertEqual(self.bare(launcher.LAUNCHER, "run", cleared).returncode, 125)
        self.assertEqual(self.bare(launcher.LAUNCHER, "run", "--fence", cleared).returncode, 0)

    def test_where_there_can_be_none(self):
        static = fence.program("requests_static")
        for rules, wanted in ((["seccomp=1", "prctl=1"], False), ([], True)):
            done = self.bare(*harness.sandbox("none"), fence.program("without"), *rules, "--",
                             launcher.LAUNCHER, "doctor", static)
            self.assertEqual("with --fence" in done.stdout, wanted, done.stdout)
            self.assertEqual(done.returncode, 2)
