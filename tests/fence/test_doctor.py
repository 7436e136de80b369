# SPDX-License-Identifier: Apache-2.0
"""doctor reports whether a fence is possible here, and what it would do for a program that cannot
be guarded."""

import pytest

from support import doctor, fence, fixtures, harness, launcher


class Row(doctor.Case):
    def test_doctor_reports_whether_there_is_a_fence_of_devices(self):
        for error, row in (("38", "not of devices: this kernel has no Landlock (Linux 5.13)"),
                           ("95", "not of devices: Landlock is not among")):
            done = self.unguarded(*harness.sandbox("none"), fence.program("without"),
                                  "landlock=" + error, "--", launcher.LAUNCHER, "doctor")
            self.assertIn("\n                   " + row, done.stdout)
            self.assertEqual(done.returncode, 0)
        # The control has what the launcher itself says.
        can = self.start("run", "--log=off", "--fence=devices", "true").returncode == 0
        self.assertEqual("also of devices (cudaguard run --fence=devices)"
                         in self.doctor().facts("fence"), can)

    @pytest.mark.needs("ordinary_user", "new_privileges")
    def test_doctor_reports_no_new_privs(self):
        """Bubblewrap sets that itself: without it, for an ordinary user."""
        text = self.unguarded(*self.ordinary_user(), "doctor").stdout
        self.assertIn("\nfence              available (cudaguard run --fence)\n"
                      "                   sets no_new_privs: sudo and setuid programs get no more "
                      "rights\n", text)

    def test_doctor_takes_the_fences_answer_for_no_fault(self):
        """Under a fence, the driver's answer is that of the fence."""
        words = ["env", "-i", "LD_LIBRARY_PATH=" + self.sick(), launcher.LAUNCHER, "doctor"]
        finding = "doctor itself is under a fence: cuInit's answer is the fence's"
        for start in ([], [launcher.LAUNCHER, "run", "--fence", "--"]):
            done = self.unguarded(*harness.sandbox("none"), *start, *words)
            self.assertEqual((finding in done.stdout, done.returncode), (bool(start), 0), done)

    @pytest.mark.needs("tracing")
    def test_doctor_leaves_itself_unfenced(self):
        """The process that asks is not fenced afterwards, nor has it no_new_privs."""
        log = self.path("log")
        done = self.unguarded("strace", "-f", "-o", log, "-e",
                              "trace=seccomp,prctl,fork,clone,vfork",
                              launcher.LAUNCHER, "doctor")
        self.assertIn("available", done.stdout)
        lines = harness.read(log).splitlines()
        own = [line for line in lines if line.split()[0] == lines[0].split()[0]]
        mark = ("SECCOMP_SET_MODE_FILTER", "PR_SET_NO_NEW_PRIVS", "PR_SET_SECCOMP")
        self.assertTrue([line for line in lines if mark[0] in line], "the control")
        self.assertEqual([line for line in own if any(one in line for one in mark)], [])


make_case = fixtures.lent("case", Row)


@pytest.mark.parametrize("how", ["run", "verify"])
def test_doctor_reports_that_a_fence_is_already_set_up(case, how):
    done = case.unguarded(*harness.sandbox("none"), launcher.LAUNCHER, how,
                          "--fence=require", launcher.LAUNCHER, "doctor")
    assert ("\nfence              already set up: no CUDA in "
            "this process, nor in what it starts\n") in done.stdout
    assert done.returncode == 0, str(done)


def test_doctor_does_not_advise_a_fence_that_is_unavailable_or_refused(case):
    """launcher/transcripts/doctor_program.txt has the programs for which it advises the fence."""
    without, static = fence.program("without"), fence.program("requests_static")
    for start, wanted in (([without, "seccomp=1", "prctl=1", "--"], False), ([without, "--"], True),
                          (["env", "CUDAGUARD_POLICY=OFF"], False)):
        done = case.unguarded(*harness.sandbox("none"), *start, launcher.LAUNCHER, "doctor", static)
        assert ("with --fence" in done.stdout) == wanted, done.stdout
        assert done.returncode == 2


@pytest.mark.parametrize(("name", "warns"), [("bwrap", True), ("podman", True), ("flatpak", True),
                                             ("chromium", True), ("google-chrome-stable", True),
                                             ("true", False), ("podcast", False)])
def test_doctor_warns_of_programs_that_a_fence_of_devices_breaks(case, name, warns):
    facts = case.doctor(case.make(name, "#!/bin/sh\n")).facts("with --fence=devices")
    assert len(facts) == warns, facts
    assert all("use --fence, or start cudaguard inside" in text for text in facts)
