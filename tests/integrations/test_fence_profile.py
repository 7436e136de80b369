# SPDX-License-Identifier: Apache-2.0
"""scripts/integrations/container/fence-profile makes the fence a container's seccomp profile. Under
the default profile, the launcher sets up a fence inside the container. crun itself runs containers
here, and the lab has the other engines (tests/lab/engines.py)."""

import json
import os
import platform
import random
import subprocess

import pytest

from support import fence, fixtures, harness, launcher, places

pytestmark = pytest.mark.all

SCRIPT = places.script("container", "fence-profile")
# Podman's. Docker's is in the daemon.
DEFAULT = "/usr/share/containers/seccomp.json"
ALLOW, REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
MACHINES = {"x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
            "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM")}
GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}


def like_default(*names):
    """A profile of the shape of Docker's: what is not named is refused."""
    return {"defaultAction": REFUSE, "defaultErrnoRet": 1, "syscalls": [
        {"names": list(names), "action": ALLOW},
        {"names": ["personality"], "action": ALLOW,
         "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
        {"names": ["acct"], "action": ALLOW, "includes": {"caps": ["CAP_SYS_PACCT"]}}]}


def is_meant(entry):
    """For a container on this machine that has no capability?"""
    includes, excludes = entry.get("includes") or {}, entry.get("excludes") or {}
    name = GO_NAMES[platform.machine()]
    return (not includes.get("caps") and name in includes.get("arches", [name]) and
            name not in excludes.get("arches", []))


def for_runtime(profile):
    """As dockerd and podman hand it over to crun and runc."""
    rules = [{key: entry[key] for key in ("names", "action", "errnoRet", "args") if entry.get(key)}
             for entry in profile["syscalls"] if is_meant(entry)]
    return {"defaultAction": profile["defaultAction"],
            "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
            "architectures": MACHINES[platform.machine()], "syscalls": rules}


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


class Container(fence.Case):
    """crun with this machine's programs as the image."""

    def setUp(self):
        super().setUp()
        self.need("crun", "unshare")
        if platform.machine() not in MACHINES or not os.path.exists(DEFAULT):
            harness.skip(self, "not installed: golang-github-containers-common")
        self.profile = json.loads(harness.read(DEFAULT))
        if error := self.run_in(None, "true").stderr:
            harness.skip(self, "no container can be had here: " + error)

    def run_in(self, profile, *words):
        """Runs a program in a container under this profile; none: without one."""
        bundle = self.path("bundle")
        os.makedirs(os.path.join(bundle, "rootfs"), exist_ok=True)
        directories = [name for name in ("/usr", "/bin", "/lib", "/lib64") if os.path.exists(name)]
        directories += [os.path.dirname(os.path.abspath(harness.LIB)), fence.PROGRAMS]
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
                  {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}]
        mounts += [{"destination": os.path.realpath(name), "type": "bind",
                    "source": os.path.realpath(name), "options": ["rbind", "ro"]}
                   for name in directories if not os.path.islink(name)]
        for name in directories:
            link = os.path.join(bundle, "rootfs", name.lstrip("/"))
            if os.path.islink(name) and not os.path.lexists(link):
                os.symlink(os.readlink(name), link)
        config = {"ociVersion": "1.0.0", "root": {"path": "rootfs"}, "mounts": mounts,
                  "process": {"user": {"uid": 0, "gid": 0}, "args": list(words), "cwd": "/",
                              "env": ["PATH=/usr/bin:/bin"], "capabilities": {}},
                  "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]}}
        if profile:
            config["linux"]["seccomp"] = for_runtime(profile)
        self.make("bundle/config.json", json.dumps(config), 0o644)
        # crun does not run where there are cgroups of two versions.
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        script = 'mount -t tmpfs none /sys/fs/cgroup && exec crun --root "$1" ' \
                 '--cgroup-manager=disabled run --bundle "$2" "$3"'
        return self.unguarded("unshare", *as_root, "--mount", "sh", "-c", script, "sh",
                              self.path("state"), bundle, os.path.basename(self.directory))

    def requests(self, profile, *before):
        """The answers to NVIDIA's ioctls, and to others."""
        answers = self.answers(self.run_in(
            profile, *before, fence.program("requests_static"), "/dev/null", *fence.NVIDIA,
            *fence.OTHERS))
        return {answers[one] for one in fence.NVIDIA}, {answers[one] for one in fence.OTHERS}

    def test_default_profile_allows_a_fence(self):
        """With the profile alone, NVIDIA's ioctls pass."""
        self.assertEqual(self.requests(self.profile), ({"ENOTTY"}, {"ENOTTY"}))
        self.assertEqual(
            self.requests(self.profile, launcher.LAUNCHER, "run", "--fence=require", "--"),
            ({"ENODEV"}, {"ENOTTY"}))
        done = self.run_in(self.profile, launcher.LAUNCHER, "verify", "--", "true")
        self.assertIn("  1 program started: 1 guarded\n", done.stderr)

    def test_profile_refuses_nvidias_ioctls_alone(self):
        path = self.make("profile.json", json.dumps(self.profile), 0o644)
        profile = json.loads(self.unguarded(SCRIPT, path).stdout)
        self.assertEqual(self.requests(profile), ({"ENODEV"}, {"ENOTTY"}))
        if platform.machine() == "x86_64":
            for given, error in (self.profile, "ENOTTY"), (profile, "ENODEV"):
                i386 = self.run_in(given, fence.program("freestanding"), "/dev/null", *fence.NVIDIA)
                self.assertEqual(set(self.answers(i386).values()), {error})
        # The upper half of the request does not count, as to the kernel.
        for requests, error in (fence.NVIDIA, "ENODEV"), (fence.OTHERS, "ENOTTY"):
            done = self.run_in(profile, fence.program("requests_static"), "--by=syscall",
                               "/dev/null", *("ffffffff" + one for one in requests))
            self.assertEqual(set(self.answers(done).values()), {error})
        # And what is one bit beside each of them.
        near = sorted({"%x" % (int(one, 16) ^ 1 << bit)
                       for one in fence.NVIDIA + fence.OTHERS for bit in range(32)})
        printed = self.answers(self.run_in(
            profile, fence.program("requests_static"), "/dev/null", *near))
        for one in near:
            refused = answer(profile, int(one, 16))[0] == REFUSE
            self.assertEqual(printed[one] == "ENODEV", refused, one)
        self.assertIn("fence              already set up",
                      self.run_in(profile, launcher.LAUNCHER, "doctor").stdout)
