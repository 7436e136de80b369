# SPDX-License-Identifier: Apache-2.0
"""`doctor`: which driver files would be found, and does the driver answer? tests/unit/doctor_test.cpp
has the advice for each error.
transcripts/doctor.txt and doctor_real.txt have the whole text."""

import glob
import os
import re
import signal
import subprocess
import sys

import pytest

from support import doctor, fixtures, harness, launcher, transcript

BOX = os.path.join(harness.FAKES, "lazy")


def running(executable):
    """The processes that run this file."""
    found = []
    for link in glob.glob("/proc/[0-9]*/exe"):
        try:
            if os.readlink(link) == executable:
                found.append(int(link.split("/")[2]))
        except OSError:
            continue
    return found


make_case = fixtures.lent("case", doctor.Case)


@transcript.each("doctor")
def test_text(case, command, block):
    """There is no driver, or a driver hangs in cuInit. test_hangs.py has an ld.so that hangs."""
    case.sick()
    case.transcript("doctor", command, block)


@transcript.each("doctor_real")
def test_text_for_the_real_driver(case, command, block):
    case.need_real_driver("libnvidia-opencl.so.1")
    if not harness.real_driver_dir().endswith("x86_64-linux-gnu/nvidia/current"):
        pytest.skip("for Debian's driver on x86-64")
    case.transcript("doctor_real", command, block, world="real")


class Found(doctor.Case):

    @pytest.mark.needs("sandbox")
    def test_doctor_works_without_ld_so(self):
        """The root directory has only cudaguard."""
        bwrap = ["bwrap", "--dev", "/dev", "--proc", "/proc", "--ro-bind", harness.LIB, "/x/lib",
                 "--ro-bind", launcher.LAUNCHER, "/x/bin/cudaguard"]
        done = self.unguarded(*bwrap, "--", "/x/bin/cudaguard", "doctor", env={})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn("; driver: not asked\n", done.stdout)
        self.assertIn("cuInit             not tried: there is no /lib", done.stdout)

    def test_doctor_with_a_program_reports_the_machines_problems_too(self):
        answer = self.doctor("sh")
        self.assertEqual((answer.code, answer.line), (0, "guarded: yes"))
        self.assertEqual(list(answer.document), ["v", "cudaguard", "answer", "guarded", "findings",
                                                 "exit_code"])
        # The machine's problems count, too.
        answer = self.doctor("sh", CUDAGUARD_LOG="x")
        self.assertEqual((answer.code, answer.line, len(answer.problems)), (1, "guarded: yes", 1))

    def test_doctor_prints_the_driver_and_its_answer(self):
        answer = self.well(LD_LIBRARY_PATH=BOX)
        self.assertEqual(answer.found(), [os.path.join(BOX, name) for name in doctor.NAMES[:3]] +
                         ["none"])
        self.assertRegex(answer.facts("cuInit")[0], r"^0 CUDA_SUCCESS \(no error\) after \d+ ms$")
        self.assertTrue(answer.line.endswith("; driver: answers"), answer.line)

    def test_null_drivers_in_the_path_are_a_problem(self):
        answer = self.doctor(LD_LIBRARY_PATH=harness.NULL_DRIVER_DIR)
        self.assertEqual(len(answer.problems), 4)
        self.assertIn("libcuda.so.1 is cudaguard's null driver (%s): programs find no CUDA device, "
                      "whatever CUDAGUARD_POLICY says; remove its directory from LD_LIBRARY_PATH" %
                      harness.NULL_DRIVER_CUDA, answer.problems[0])
        # They are a problem after a driver in the path, too.
        answer = self.doctor(LD_LIBRARY_PATH=BOX + ":" + harness.NULL_DRIVER_DIR)
        self.problem(answer, "libnvidia-opencl.so.1 is cudaguard's null driver")


class RealDriver(doctor.Case):
    def setUp(self):
        super().setUp()
        self.need_real_driver()

    def test_real_driver_without_a_gpu_is_no_problem(self):
        answer = self.doctor(world="real")
        self.assertEqual((answer.code, answer.problems), (0, []))
        self.assertTrue(answer.facts("libcuda.so.1")[0].endswith(
            os.path.realpath(harness.real_driver_file())))
        self.assertIn("100 CUDA_ERROR_NO_DEVICE (", answer.facts("cuInit")[0])
        self.assertTrue(answer.line.endswith("; driver: answers that there is no device"))
        self.assertEqual(answer.nodes, [], "doctor let the driver make device nodes")

    @pytest.mark.needs("device_nodes")
    def test_control_probe_without_doctor_makes_a_device_node(self):
        code, out, _, nodes = self.run_in([doctor.PROBE], world="real")
        self.assertEqual((code, nodes), (0, ["/dev/nvidiactl"]), out)


class Sick(doctor.Case):
    def setUp(self):
        super().setUp()
        self.driver = self.sick()
        # A copy, whose processes are this test's.
        self.command = self.installed()
        self.probe = self.path("install", "lib", "cudaguard", "cudaguard-probe")

    def ill(self, illness, **more):
        hangs = re.search("stuck|hangs|ignores signals", illness)
        return self.doctor(command=self.command, LD_LIBRARY_PATH=self.driver, CG_SICK=illness,
                           **(doctor.WAIT if hangs else {}), **more)

    def test_failing_driver_is_a_problem(self):
        """This is the control of all others."""
        answer = self.ill("", CG_ANSWER="999")
        self.problem(answer, "cuInit fails with 999 CUDA_ERROR_UNKNOWN: dmesg may say more")
        self.assertTrue(answer.line.endswith("; driver: fails with 999"), answer.line)

    @pytest.mark.needs("tracing")
    def test_doctor_does_not_wait_for_a_stuck_process(self):
        """As in uninterruptible sleep: doctor does not wait for its end."""
        answer = self.ill("stuck")
        self.assertEqual(len(answer.problems), 2)
        stuck = re.match(r"process (\d+), which asked the driver, survives SIGKILL: it sleeps in the "
                         "kernel, and a reboot will be needed", answer.problems[1])
        self.assertIn(int(stuck[1]), running(self.probe), "control: it was killed after all")

    def test_doctor_does_not_wait_for_the_drivers_child(self):
        """The child holds the probe's output, and doctor does not wait for the child."""
        self.assertEqual(self.ill("leaves a child").problems, [])
        self.assertNotEqual(running(self.probe), [], "control: there was none to wait for")

    def test_crashing_driver_is_a_problem(self):
        self.command = self.make("in_directory", '#!/bin/sh\ncd "%s" && ulimit -S -c $(ulimit -H -c) '
                                 '&& exec "%s" "$@"\n' % (self.directory, self.command), 0o755)
        for illness, where, name in (("crashes", "in cuInit", "SIGSEGV"),
                                     ("crashes when loaded", "before cuInit", "SIGSEGV")):
            self.problem(self.ill(illness), "the driver crashes %s (%s)" % (where, name))
        self.assertEqual(glob.glob(self.path("core*")), [])

    def test_probe_dies_with_doctor(self):
        """Its child goes with it."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen([self.command, "doctor"], stdout=subprocess.DEVNULL,
                                  env={"LD_LIBRARY_PATH": self.driver,
                                       "CG_SICK": "ignores signals"}) as process:
                self.until(lambda: running(self.probe))
                process.send_signal(signal_number)
            self.until(lambda: not running(self.probe))

    def test_driver_that_does_not_work_is_a_problem(self):
        self.problem(self.ill("exits"),
                     "libcuda.so.1 does not work: the probe ended without an answer")
        directory = os.path.join(harness.FAKES, "sick_no_init")
        self.problem(self.doctor(LD_LIBRARY_PATH=directory),
                     "libcuda.so.1 does not work: it has no cuInit")
        directory = launcher.program("lacks_needed")
        self.problem(self.doctor(LD_LIBRARY_PATH=directory), "libcuda.so.1 does not work: error while "
                     "loading shared libraries: libneeded.so: cannot open shared object file")
        self.make("libcuda.so.1", "", 0o644)  # as some container images have it
        self.problem(self.doctor(LD_LIBRARY_PATH=self.directory), "libcuda.so.1 does not work: error "
                     "while loading shared libraries: %s: file too short" % self.path("libcuda.so.1"))

    def test_probe_that_cannot_be_started_is_reported(self):
        os.chmod(self.probe, 0o644)
        answer = self.ill("")
        self.assertEqual((answer.code, answer.facts("cuInit")), (0, [
            "not tried: %s cannot be started: Permission denied" % self.probe]))
        os.unlink(self.probe)
        answer = self.ill("")
        self.problem(answer, self.probe + " is missing")
        self.assertEqual(answer.facts("cuInit"), ["not tried: %s is missing or damaged" %
                                                  self.probe])

    def test_bad_time_limit_is_refused(self):
        for value in ("0", "x", "3601"):
            done = self.start("doctor", env={"CUDAGUARD_DOCTOR_TIMEOUT": value,
                                             "LD_LIBRARY_PATH": self.driver})
            self.refused(done, 125, 'CUDAGUARD_DOCTOR_TIMEOUT="%s" is not accepted' % value,
                         "(accepted: 1 to 3600 seconds)")
        self.well(LD_LIBRARY_PATH=self.driver, CUDAGUARD_DOCTOR_TIMEOUT="")


make_sick_case = fixtures.lent("sick_case", Sick)


@pytest.mark.parametrize(("illness", "where"), [("ignores signals", "in cuInit"),
                                                ("hangs when loaded", "before cuInit")])
def test_hanging_driver_is_a_problem_and_leaves_nothing(sick_case, illness, where):
    sick_case.problem(sick_case.ill(illness), "the driver hangs %s (or is slow" % where)
    sick_case.until(lambda: not running(sick_case.probe), "the probe's end")


class Sandboxed(doctor.Case):
    """What the probe may not do to the machine, and what of ours does not reach it."""

    @pytest.mark.needs("root")
    def test_doctor_makes_no_device_node(self):
        """Neither itself nor in what it starts; it loads no kernel module."""
        directory = launcher.program("checks_node")
        answer = self.well(LD_LIBRARY_PATH=directory, PATH=os.environ["PATH"])
        self.assertRegex(answer.facts("cuInit")[0], "^0 CUDA_SUCCESS")
        self.assertEqual(answer.nodes, [])
        # Control: the probe alone may.
        code, out, err, nodes = self.run_in([doctor.PROBE], bwrap=harness.OWN_DEV,
                                             env={"LD_LIBRARY_PATH": directory})
        self.assertEqual((code, nodes), (0, ["/dev/nvidiactl"]), out + err)
        self.assertIn("cudaguard-probe init 9 ", out)

    @pytest.mark.needs("new_privileges")
    def test_driver_gains_no_rights_under_doctor(self):
        """Nor does the setuid nvidia-modprobe. Not in the sandbox, which has the same rule."""
        directory = launcher.program("checks_rights")
        done = self.start("doctor", env=launcher.environment(LD_LIBRARY_PATH=directory))
        self.assertIn("cuInit             0 CUDA_SUCCESS", done.stdout)
        done = self.unguarded(doctor.PROBE, env=launcher.environment(LD_LIBRARY_PATH=directory))
        self.assertIn("cudaguard-probe init 9 ", done.stdout, "the control")

    def test_probe_is_unguarded(self):
        """The guard, its variables and other preloads do not reach the driver. Other variables
        do."""
        directory = launcher.program("checks_environment")
        answer = self.well(LD_LIBRARY_PATH=directory, CG_ANSWER="1",
                           LD_PRELOAD=harness.GUARD + ":libm.so.6", CUDAGUARD_POLICY="VALIDATE",
                           CUDAGUARD_VISIBLE_DEVICES="0", CUDAGUARD_CHILDREN="FORCE_CPU",
                           CUDAGUARD_ROOT="1")
        self.assertRegex(answer.facts("cuInit")[0], "^0 CUDA_SUCCESS")

    def test_probe_inherits_no_descriptor(self):
        directory = launcher.program("checks_descriptors")
        start = [sys.executable, "-c", "import os, sys\nfor fd in 5, 1023: os.dup2(0, fd)\n"
                 "os.execv(sys.argv[1], sys.argv[1:])\n"]
        env = launcher.environment(LD_LIBRARY_PATH=directory)
        code, out, _, _ = self.run_in([*start, launcher.LAUNCHER, "doctor"], env=env)
        self.assertEqual(code, 0, out)
        self.assertIn("cuInit             0 CUDA_SUCCESS", out)
        # Control: they reach what is started like this.
        self.assertIn("cudaguard-probe init 5 ", self.run_in([*start, doctor.PROBE], env=env)[1])


@pytest.mark.parametrize("more", [
    {"LD_TRACE_LOADED_OBJECTS": "1"}, {"LD_PRELOAD": launcher.program("pauses.so")},
    {"LD_AUDIT": launcher.program("audit.so")},
    {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": "DIRECTORY/debug"}])
def test_variables_of_ld_so_do_not_disturb_the_probe(case, more):
    """ld.so's variables for debugging, and other preloads, say nothing about the driver."""
    directory = case.sick()
    more = {key: value.replace("DIRECTORY", case.directory) for key, value in more.items()}
    case.doctor(LD_LIBRARY_PATH=directory)
    before = set(os.listdir(case.directory))
    code, out, err, _ = case.run_in(
        [launcher.LAUNCHER, "doctor", "--json", "-"],
        env=launcher.environment(LD_LIBRARY_PATH=directory, CG_ANSWER="0", **more))
    assert (code, err) == (0, ""), out
    assert "0 CUDA_SUCCESS" in out
    assert set(os.listdir(case.directory)) - before == set()
