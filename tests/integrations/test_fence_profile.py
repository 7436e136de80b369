# SPDX-License-Identifier: Apache-2.0
"""scripts/integrations/container/fence-profile makes the fence a container's seccomp profile.
test_fence_engines.py uses these profiles in real engines."""

import json
import random
import subprocess

import pytest

from support import fence, fixtures, harness, places

pytestmark = pytest.mark.all

SCRIPT = places.script("container", "fence-profile")
ALLOW, REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"


def like_default(*names):
    """A profile of the shape of Docker's: what is not named is refused."""
    return {"defaultAction": REFUSE, "defaultErrnoRet": 1, "syscalls": [
        {"names": list(names), "action": ALLOW},
        {"names": ["personality"], "action": ALLOW,
         "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
        {"names": ["acct"], "action": ALLOW, "includes": {"caps": ["CAP_SYS_PACCT"]}}]}


def answer(profile, request):
    """The profile's answer to an ioctl, from its rules alone, as the format defines them."""
    answers = set()
    for entry in profile["syscalls"]:
        if "ioctl" not in entry["names"]:
            continue
        tests = [(request & test["value"]) == test["valueTwo"] for test in entry.get("args") or []]
        if all(tests):
            answers.add((entry["action"], entry.get("errnoRet")))
    if len(answers) > 1:
        raise AssertionError("%#x: two answers, %s" % (request, answers))
    return answers.pop() if answers else (profile["defaultAction"], profile.get("defaultErrnoRet"))


class Script(fence.Case):
    def changed(self, profile):
        done = self.start(launcher=SCRIPT, input=json.dumps(profile))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def fails(self, text, meaning):
        done = self.start(launcher=SCRIPT, input=text)
        self.assertEqual((done.returncode, done.stdout), (1, ""), text)
        self.assertRegex(done.stderr, r"\Afence-profile: [^\n]+\n\Z")
        self.assertIn(meaning, done.stderr)

    def test_profile_refuses_the_same_ioctls_as_the_launcher(self):
        """The test compares both over all types and numbers, and bit by bit."""
        requests = [low | size << 16 | direction << 30 for low in range(1 << 16)
                    for size in (0, 8, 16, 512) for direction in (0, 3)]
        requests = harness.sample(requests, 8000)
        requests += [ord("F") << 8 | number | size << 16 | direction << 30 for number in range(256)
                     for size in (0, 8, 15, 16, 4096) for direction in range(4)]
        for one in fence.NVIDIA + fence.OTHERS:
            requests += [int(one, 16)] + [int(one, 16) ^ 1 << bit for bit in range(32)]
        requests += [random.Random(7).randrange(1 << 32) for _ in range(1000)]
        marks = subprocess.run(
            [fence.program("judge")], input="\n".join("%x" % one for one in requests),
            capture_output=True, text=True, check=True).stdout
        self.assertEqual(set(marks), {"0", "1"})
        self.assertEqual(len(marks), len(requests))
        profile = self.changed(like_default("ioctl", "read"))
        # An "is it in this cube" for each of a hundred rules: those of ioctl alone.
        profile["syscalls"] = [rule for rule in profile["syscalls"] if "ioctl" in rule["names"]]
        for request, mark in zip(requests, marks):
            wanted = (REFUSE, 19) if mark == "1" else (ALLOW, None)
            self.assertEqual(answer(profile, request), wanted, hex(request))

    def test_only_the_rules_for_ioctl_change(self):
        before = like_default("ioctl", "prctl", "read")
        after = self.changed(before)
        rest = [rule for rule in after["syscalls"] if rule["names"] != ["ioctl"]]
        before["syscalls"][0]["names"].remove("ioctl")
        self.assertEqual({**after, "syscalls": rest}, before)

    def test_containers_configuration_gives_its_profile(self):
        """As `ctr containers info --spec` prints it: Docker's and containerd's are in no file."""
        profile = like_default("ioctl", "read")
        self.assertEqual(self.changed({"ociVersion": "1.0.2", "linux": {"seccomp": profile}}),
                         self.changed(profile))

    def test_profile_that_lists_forbidden_calls_gets_nvidias(self):
        """All but a few pass: then only NVIDIA's requests are named."""
        before = {"defaultAction": ALLOW, "syscalls": [{"names": ["acct"], "action": REFUSE}]}
        after = self.changed(before)
        self.assertEqual({rule["action"] for rule in after["syscalls"]}, {REFUSE})
        self.assertEqual([answer(after, int(one, 16)) for one in fence.NVIDIA],
                         [(REFUSE, 19)] * len(fence.NVIDIA))
        self.assertEqual([answer(after, int(one, 16)) for one in fence.OTHERS],
                         [(ALLOW, None)] * len(fence.OTHERS))

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([SCRIPT], input=json.dumps(like_default("ioctl")), text=True,
                                  stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "fence-profile: [Errno 28] No space left on device\n"))


make_case = fixtures.lent("case", Script)


@pytest.mark.parametrize(("text", "meaning"), [
    ("{", "Expecting"), ("[]", "no seccomp profile"), ("{}", "no seccomp profile"),
    ('{"linux": {}}', "this container has no seccomp profile; "),
    ('{"linux": {"seccomp": null}}', "this container has no seccomp profile; "),
    (json.dumps(like_default("read")), "does not allow ioctl"),
    (json.dumps({"defaultAction": REFUSE, "syscalls": [
        {"names": ["ioctl"], "action": ALLOW, "includes": {"caps": ["CAP_X"]}}]}),
     "cannot be changed: SCMP_ACT_ALLOW, includes")])
def test_unusable_profile_is_an_error(case, text, meaning):
    case.fails(text, meaning)
