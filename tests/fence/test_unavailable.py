# SPDX-License-Identifier: Apache-2.0
"""A fence cannot be set up, or not in every way. Seccomp filters answer as other kernels and
containers do."""

import json
import re

import pytest

from support import fence, fixtures, harness, launcher

EPERM, EACCES, EINVAL, ENOSYS = "1", "13", "22", "38"
# What the machine has -> what the messages print about it.
NEVER = {
    "a container's profile": (["seccomp=" + EPERM, "prctl=" + EPERM], "profile, forbids it"),
    "one that knows no such call": (["seccomp=" + ENOSYS, "prctl=" + ENOSYS],
                                    "profile, forbids it"),
    "one with the kernel's own error": (["seccomp=" + EACCES, "prctl=" + EACCES],
                                        "profile, forbids it"),
    "one that kills": (["seccomp=kill", "prctl=kill"], "profile, forbids it"),
    "a kernel without": (["seccomp=" + ENOSYS, "prctl=" + EINVAL],
                         "this kernel has no seccomp filters"),
}
# In these cases the kernel answers by itself, and no listener is asked.
OTHER_WAYS = {
    "seccomp(2) forbidden": ["seccomp=" + EPERM],
    "seccomp(2) kills, as by systemd's @system-service": ["seccomp=kill"],
    "before Linux 3.17": ["seccomp=" + ENOSYS],
    "before Linux 5.0": ["listener=" + EINVAL],
    "another process listens": ["busy"],
}
REQUESTS = [fence.program("requests_static"), "/dev/null", *fence.NVIDIA, *fence.OTHERS]
STATUS = ["sed", "-n", "s/^NoNewPrivs:[[:space:]]*//p", "/proc/self/status"]


class Case(fence.Case):
    def without(self, rules, *words):
        done = self.unguarded(fence.program("without"), *rules, "--", *words)
        self.assertNotIn(done.returncode, (3, 4), done)
        return done

    def run_fenced(self, rules, how, *words):
        return self.without(rules, launcher.LAUNCHER, "run", how, "--", *words)

    def rows(self, rules, *words):
        """doctor's, as an ordinary user's driver would be asked: in a /dev of its own."""
        done = self.unguarded(*harness.sandbox("none"), fence.program("without"), *rules, "--",
                              *words,
                              launcher.LAUNCHER, "doctor", "--json", "-")
        self.assertEqual(done.stderr, "")
        return [row["text"] for row in json.loads(done.stdout)["findings"] if row["id"] == "fence"]

    def no_new_privs(self, *words):
        done = self.unguarded(*words, *STATUS)
        return done.stdout.strip()


class Never(Case):

    def test_unguarded_program_is_refused_or_warned_of_without_a_fence(self):
        rules = NEVER["a container's profile"][0]
        named = launcher.program("hello_driver")  # a static program that names libcuda.so
        done = self.run_fenced(rules, "--fence", named)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("cannot be guarded", done.stderr)
        done = self.run_fenced(rules, "--fence", *REQUESTS)
        self.assertIn("is a static executable, not guarded", done.stderr)
        self.assertEqual(self.run_fenced([], "--fence", named).returncode,
                         self.unguarded(named).returncode)


make_never = fixtures.lent("never", Never)


@pytest.mark.parametrize("name", NEVER)
def test_require_fails_and_gives_the_reason(never, name):
    rules, reason = NEVER[name]
    done = never.run_fenced(rules, "--fence=require", *REQUESTS)
    never.refused(done, 125, "--fence=require: the fence cannot be set up: ", reason)


@pytest.mark.parametrize("how", ["--fence", "--fence=auto"])
@pytest.mark.parametrize("name", NEVER)
def test_auto_starts_the_program_with_the_guard_alone(never, name, how):
    """One message is printed, and NVIDIA's ioctls get the same answer as without cudaguard."""
    rules, reason = NEVER[name]
    done = never.run_fenced(rules, how, "printenv", "LD_PRELOAD")
    assert (done.returncode, done.stdout) == (0, harness.GUARD + "\n")
    assert re.search(
        r"\Acudaguard: --fence: the fence cannot be set up: "
        r"[ -~]+; only the guard is active\n\Z", done.stderr), done.stderr
    assert reason in done.stderr
    done = never.run_fenced(rules, how, "env", *REQUESTS)
    assert set(never.answers(done).values()) == {"ENOTTY"}
    # The presets do not name a fence.
    done = never.run_fenced(rules, how, "printenv", "CUDAGUARD_PRESETS")
    assert "fence" not in done.stdout


@pytest.mark.parametrize("name", NEVER)
def test_no_new_privs_is_set_only_with_a_fence(never, name):
    """If the launcher cannot know in advance that no fence is possible, its message says so."""
    before = never.no_new_privs(fence.program("without"), "--")
    rules, _ = NEVER[name]
    done = never.run_fenced(rules, "--fence", *STATUS)
    assert done.stdout.strip() == before


def test_no_new_privs_that_is_set_anyway_is_reported(never):
    # Here the launcher cannot know it, and prints a message.
    done = never.run_fenced(["filter=" + EACCES, "prctl=" + EACCES], "--fence", *STATUS)
    assert done.stdout == "1\n"
    assert "(no_new_privs is set anyway)" in done.stderr


@pytest.mark.parametrize("name", NEVER)
def test_doctor_gives_the_reason(never, name):
    rules, reason = NEVER[name]
    (text,) = never.rows(rules)
    assert re.search("^not available: .*" + re.escape(reason), text), text


class OtherWays(Case):

    def test_emulator_that_answers_enosys_is_not_taken_for_a_fence(self):
        """An emulator answers ENOSYS to what it does not know. A fence without its listener answers
        ENOSYS, too, but to NVIDIA's ioctls alone. The control: under a fence, no other one is set
        up."""
        rules = ["unknown=" + ENOSYS]
        unguarded = self.answers(self.without(rules, *REQUESTS))
        self.assertEqual((unguarded["c020462a"], unguarded["30000001"]), ("ENOSYS", "ENOTTY"))
        answers = self.answers(self.run_fenced(rules, "--fence=require", *REQUESTS))
        self.assertEqual({answers[one] for one in fence.NVIDIA}, {"ENODEV"})
        self.assertEqual(answers["5401"], "ENOTTY")
        done = self.start("run", "--fence", launcher.LAUNCHER, "doctor")
        self.assertIn("fence              already set up", done.stdout)

    def test_control_without_rules_a_fence_is_available(self):
        self.assertEqual(set(self.answers(self.without([], *REQUESTS)).values()), {"ENOTTY"})
        self.assertEqual(self.rows([])[0], "available (cudaguard run --fence)")


make_other_ways = fixtures.lent("other_ways", OtherWays)


@pytest.mark.parametrize("how", [["--fence=require"], ["--fence=require", "--observe"]])
@pytest.mark.parametrize(("name", "rules"), OTHER_WAYS.items())
def test_fence_is_set_up_in_another_way(other_ways, name, rules, how):
    done = other_ways.without(rules, launcher.LAUNCHER, "run", *how, "--", *REQUESTS)
    answers = other_ways.answers(done)
    assert {answers[one] for one in fence.NVIDIA} == {"ENODEV"}
    assert {answers[one] for one in fence.OTHERS} == {"ENOTTY"}


@pytest.mark.parametrize(("name", "rules"), OTHER_WAYS.items())
def test_doctor_reports_that_a_fence_is_available(other_ways, name, rules):
    rows = other_ways.rows(rules)
    assert rows[0] == "available (cudaguard run --fence)"
    assert len(rows) > 2, "why no process is reported"


# Answers of landlock_create_ruleset -> what the messages print about them. EINVAL is the answer of
# Linux 5.13 to 5.18, which does not know LANDLOCK_ACCESS_FS_REFER.
NO_LANDLOCK = {ENOSYS: "this kernel has no Landlock (Linux 5.13)",
               "95": "Landlock is not among this kernel's security modules",
               EINVAL: "this kernel's Landlock is too old (Linux 5.19)",
               EPERM: "a container's profile, forbids Landlock"}


@pytest.mark.parametrize("error", NO_LANDLOCK)
def test_fence_of_devices_is_refused_without_landlock(never, error):
    rules = ["landlock=" + error]
    done = never.run_fenced(rules, "--fence=devices", *REQUESTS)
    never.refused(done, 125, "--fence=devices: the device nodes cannot be fenced: ",
                  NO_LANDLOCK[error])


@pytest.mark.parametrize("error", NO_LANDLOCK)
def test_fence_of_devices_falls_back_if_it_may(never, error):
    """The seccomp fence is there, and a message says that it is alone."""
    done = never.run_fenced(["landlock=" + error], "--fence=devices,auto", "env", *REQUESTS)
    answers = never.answers(done)
    assert {answers[one] for one in fence.NVIDIA} == {"ENODEV"}
    assert done.stderr.startswith(
        "cudaguard: --fence=devices,auto: the device nodes cannot be fenced: ")
    assert NO_LANDLOCK[error] in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", NEVER)
def test_fence_of_devices_is_refused_without_seccomp(never, name):
    """Without the right to ioctls (before Linux 6.10), Landlock alone lets the mode 3 through."""
    rules, reason = NEVER[name]
    done = never.run_fenced(rules, "--fence=devices", *REQUESTS)
    never.refused(done, 125, "--fence=devices: the fence cannot be set up: ", reason)
