# SPDX-License-Identifier: Apache-2.0
"""`doctor`: is cudaguard installed, and active here? Mistakes in CUDAGUARD_* are in
tests/unit/doctor_test.cpp."""

import os
import shutil

import pytest

from support import doctor, fixtures, harness, launcher, machine

BOX = os.path.join(harness.FAKES, "lazy")


class Preload(doctor.Case):
    def shell(self, answer):
        return answer.facts("this shell")[0].split(";")[0]

    def wrong(self, *meaning, shell="not guarded", **env):
        answer = self.doctor(**env)
        self.problem(answer, *meaning)
        self.assertEqual(self.shell(answer), shell)

    def test_good_ld_preload_is_reported_as_guarded(self):
        for value in (harness.GUARD, harness.GUARD + ":libm.so.6", "libm.so.6 " + harness.GUARD,
                      "%s:%s" % (harness.GUARD, harness.NULL_DRIVER_CUDA)):
            answer = self.well(LD_PRELOAD=value)
            self.assertEqual(self.shell(answer), "is guarded already, by LD_PRELOAD")
            self.assertIn("; active here: yes, by LD_PRELOAD; ", answer.line)
        answer = self.well(LD_PRELOAD="libm.so.6")
        self.assertEqual(self.shell(answer), "not guarded")
        self.assertIn("installed: yes; active here: no; ", answer.line)

    def test_policy_of_the_variables_is_reported(self):
        """A mistake in a variable is a problem."""
        self.assertEqual(self.well(CUDAGUARD_POLICY="validate").facts("this shell"),
                         ["not guarded; its programs' policy: VALIDATE"])
        answer = self.doctor(CUDAGUARD_POLICY="gpu")
        self.problem(answer, 'CUDAGUARD_POLICY="gpu" is not accepted (accepted: FORCE_CPU,')
        self.assertIn("installed: with problems; ", answer.line)

    def test_policy_that_only_the_launcher_reads_is_a_problem_of_a_guarded_shell(self):
        policy = {"CUDAGUARD_POLICY": "if-healthy"}
        self.assertEqual(self.well(**policy).facts("this shell"),
                         ["not guarded; its programs' policy: IF_HEALTHY (cudaguard run)"])
        self.problem(self.doctor(LD_PRELOAD=harness.GUARD, **policy),
                     'CUDAGUARD_POLICY="if-healthy" is not accepted (accepted: FORCE_CPU,')

    def test_file_name_in_ld_preload_is_looked_up(self):
        answer = self.well(LD_PRELOAD="libcudaguard.so", LD_LIBRARY_PATH=harness.LIB)
        self.assertEqual(self.shell(answer), "is guarded already, by LD_PRELOAD")
        self.assertEqual(answer.facts("guard")[2],
                         "LD_PRELOAD=libcudaguard.so finds " + harness.GUARD)
        self.wrong('LD_PRELOAD names "libcudaguard.so", which ld.so does not find: programs run '
                   "unguarded; this command's guard is " + harness.GUARD,
                   LD_PRELOAD="libcudaguard.so")

    def test_missing_file_in_ld_preload_is_a_problem(self):
        self.wrong('LD_PRELOAD names "/none/libcudaguard.so", which is not there: programs run '
                   "unguarded", LD_PRELOAD="/none/libcudaguard.so:libm.so.6")
        # ld.so takes a space for the end of a name.
        answer = self.doctor(LD_PRELOAD="/my tools/libcudaguard.so")
        self.assertIn('LD_PRELOAD names "tools/libcudaguard.so", which is not there',
                      answer.problems[0])

    def test_relative_path_in_ld_preload_is_a_problem(self):
        before = os.getcwd()
        os.chdir(os.path.dirname(harness.LIB))
        self.addCleanup(os.chdir, before)
        self.wrong('LD_PRELOAD names "lib/libcudaguard.so", a relative path',
                   "write " + harness.GUARD, shell="is guarded already, by LD_PRELOAD",
                   LD_PRELOAD="lib/libcudaguard.so")

    def test_another_copy_in_ld_preload_is_a_problem(self):
        self.installed("other")
        other = self.path("other", "lib", "libcudaguard.so")
        self.wrong('LD_PRELOAD names "%s", another copy than this command\'s' % other,
                   shell="is guarded already, by LD_PRELOAD", LD_PRELOAD=other)
        os.symlink(harness.GUARD, self.path("libcudaguard.so"))
        self.well(LD_PRELOAD=self.path("libcudaguard.so"))

    @pytest.mark.needs("sandbox")
    def test_etc_ld_so_preload_is_reported_as_guarded(self):
        if not os.path.islink("/lib"):
            harness.skip(self, "/lib is no link to /usr/lib here")
        root = ["bwrap", "--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc", "--tmpfs",
                "/tmp", "--ro-bind", harness.LIB, "/cg/lib", "--ro-bind", launcher.LAUNCHER,
                "/cg/bin/cudaguard", "--ro-bind", BOX, "/box", "--setenv", "LD_LIBRARY_PATH",
                "/box"]
        for name in ("bin", "lib", "lib64"):
            root += ["--symlink", "usr/" + name, "/" + name]
        command = ["--", "/cg/bin/cudaguard", "doctor"]
        done = self.unguarded(*root, *command, env={})
        self.assertIn("this shell         not guarded", done.stdout, done.stderr)
        line = self.make("preload", "/cg/lib/libcudaguard.so\n", 0o644)
        done = self.unguarded(*root, "--ro-bind", line, "/etc/ld.so.preload", *command, env={})
        self.assertIn("this shell         is guarded already, by /etc/ld.so.preload; its "
                      "programs' policy: FORCE_CPU", done.stdout, done.stderr)
        # The driver is asked all the same.
        self.assertIn("cuInit             0 CUDA_SUCCESS", done.stdout)


class Installation(doctor.Case):
    def test_missing_file_is_a_problem(self):
        command = self.installed()
        for name in ("libcuda.so.1", "libcudaguard-nvml.so", "libnvidia-opencl.so.1"):
            path = self.path("install", "lib", "cudaguard", name)
            shutil.move(path, path + ".away")
            self.assertIn(path + " is missing or cannot be read; install cudaguard again",
                          self.doctor(command=command).problems)
            shutil.move(path + ".away", path)
        self.well(command=command)
        os.unlink(self.path("install", "lib", "libcudaguard.so"))
        self.refused(self.start("doctor", launcher=command), 125, "libcudaguard.so is missing")


make_installation = fixtures.lent("installation", Installation)


@pytest.mark.parametrize("name", [
    "libcudaguard.so", "cudaguard/libcuda.so.1", "cudaguard/libnvidia-ml.so.1",
    "cudaguard/libcudaguard-driver.so", "cudaguard/libcudaguard-nvml.so"])
def test_files_of_two_versions_are_a_problem(installation, name):
    command = installation.installed()
    version = installation.start("--version").stdout.split()[1]
    assert installation.well(command=command).facts("guard")[1] == "version " + version
    own, other = b"cudaguard %s\0" % version.encode(), b"cudaguard 0.0.9\0"
    path = installation.path("install", "lib", name)
    with open(path, "rb") as stream:
        content = stream.read()
    assert (content.count(own), len(own)) == (1, len(other)), path
    installation.make("install/lib/" + name, content.replace(own, other))
    answer = installation.doctor(command=command)
    assert answer.problems == [path + " is damaged or of another version; "
                               "install cudaguard again"]
    if name == "libcudaguard.so":
        assert answer.facts("guard")[1] == "version not known"


CONF = "/etc/cudaguard.conf"


@pytest.mark.parametrize(("text", "mode", "rows", "problem"), [
    (None, 0o644, [], None),
    ("FORCE_CPU\nVALIDATE program=/usr/bin/env gpus=0,1\n", 0o644,
     ["VALIDATE of GPUs 0,1 by %s:2" % CONF, CONF + ": 2 rules"], None),
    ("FORCE_CPU\nVALIDATE args=*x*\n", 0o644,
     ["FORCE_CPU by %s:1" % CONF, "not sure: rules ask for args=", CONF + ": 2 rules"], None),
    ("OFF\nOFFF\n", 0o644, ["FORCE_CPU by %s:2" % CONF, CONF + ": 2 rules"], CONF + ':2: "OFFF"'),
    ("OFF\n", 0o666, ["FORCE_CPU by " + CONF], CONF + " is not used: others than root can write it")])
def test_machines_rules_are_shown(installation, text, mode, rows, problem):
    """Those of the program come first."""
    machine.need("root")
    os.mkdir(installation.path("etc"), 0o755)
    if text is not None:
        os.chmod(installation.make("etc/cudaguard.conf", text), mode)
    done = {}
    for program in ((), ("/usr/bin/env",)):
        code, out, _, _ = installation.run_in(
            [launcher.LAUNCHER, "doctor", "--json", "-", *program],
            bwrap=["--bind", installation.path("etc"), "/etc"],
            env=launcher.environment(LD_LIBRARY_PATH=BOX))
        done[program] = answer = doctor.Answer(code, doctor.json.loads(out))
        assert [one for one in answer.problems if one.startswith(CONF)] == [
            one for one in answer.problems if problem and one.startswith(problem)]
        assert len(answer.problems) == (problem is not None), answer.problems
        shell = answer.facts("this shell")[0]
        assert ("policy: FORCE_CPU" in shell) == (text is None), shell
    assert done["/usr/bin/env",].facts("rules") == rows
    assert done[()].facts("rules") == [row for row in rows if row.startswith(CONF)]


BY_CPU = " (cudaguard run --cpu overrides it)"


@pytest.mark.parametrize(("text", "variables", "verdict", "gets"), [
    ("OFF\n", {}, "no, because its policy is OFF by %s:1" % CONF + BY_CPU, "0"),
    ("FORCE_CPU\n", {"CUDAGUARD_POLICY": "OFF"}, "yes", "100"),
    ("FORCE_CPU environment=may-widen\n", {"CUDAGUARD_POLICY": "OFF"},
     "no, because its policy is OFF by CUDAGUARD_POLICY" + BY_CPU, "0"),
    ("OFF args=*ask*\n", {}, "in part, because a rule with OFF may decide (rules ask for args=)", "0"),
    ("OFF args=*ask*\nVALIDATE\nFORCE_CPU args=*ask*", {}, "yes", "100"),
    (None, {"CUDAGUARD_RULES": "OFF program=ask"},
     "no, because its policy is OFF by CUDAGUARD_RULES" + BY_CPU, "0")])
def test_verdict_is_what_the_guard_does_by_the_rules(installation, text, variables, verdict, gets):
    machine.need("root")
    os.mkdir(installation.path("etc"), 0o755)
    if text is not None:
        installation.make("etc/cudaguard.conf", text)
    program = [launcher.program("ask"), "libcuda.so.1"]
    etc = ["--bind", installation.path("etc"), "/etc"]
    env = launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER, **variables)
    code, out, _, _ = installation.run_in(
        [launcher.LAUNCHER, "doctor", "--json", "-", program[0]], bwrap=etc, env=env)
    assert doctor.Answer(code, doctor.json.loads(out)).line == "guarded: " + verdict
    for preload, answer in (("", "0"), (harness.GUARD, gets)):  # the first one is the control
        _, out, err, _ = installation.run_in(program, bwrap=etc, env={**env, "LD_PRELOAD": preload})
        assert "cuInit=" + answer in out.split(), out + err
