# SPDX-License-Identifier: Apache-2.0
"""A container: a fence inside it, under the profile that runtimes have by default, and the fence as
a profile (scripts/integrations/container/fence-profile)."""

import json
import os
import platform
import random
import subprocess

import pytest

from support import fence, harness, launcher, places

pytestmark = pytest.mark.all

SCRIPT = places.script("container", "fence-profile")
# Podman's, where that is installed. Docker's is in the daemon: test_fence_engines.py
# has it.
INSTALLED = "/usr/share/containers/seccomp.json"
ALLOW, REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
MACHINES = {"x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
            "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM")}
GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
# What a program must not do in a container, so that the profile is seen to be at work.
FORBIDDEN = ["acct", "swapon", "kexec_load", "settimeofday"]
PR_SET_SECCOMP = 22


def system_calls():
    """The names that this machine's kernel headers know."""
    done = subprocess.run(["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-xc", "-"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  check=True)
    return sorted(line.split()[1][5:] for line in done.stdout.splitlines()
                  if line.startswith("#define __NR_"))


def like_default(names):
    """A profile of the shape of Docker's: what is not named is refused."""
    main = {"names": [name for name in names if name not in FORBIDDEN], "action": ALLOW}
    return {"defaultAction": REFUSE, "defaultErrnoRet": 1, "syscalls": [
        main,
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

    def test_profile_refuses_the_same_ioctls_as_the_launcher(self):
        """The test compares both over all types and numbers, and bit by bit."""
        judge = fence.program("judge")
        requests = [low | size << 16 | direction << 30 for low in range(1 << 16)
                    for size in (0, 8, 16, 512) for direction in (0, 3)]
        requests = harness.sample(requests, 8000)
        requests += [ord("F") << 8 | number | size << 16 | direction << 30 for number in range(256)
                     for size in (0, 8, 15, 16, 4096) for direction in range(4)]
        for one in fence.NVIDIA + fence.OTHERS:
            requests += [int(one, 16)] + [int(one, 16) ^ 1 << bit for bit in range(32)]
        requests += [random.Random(7).randrange(1 << 32) for _ in range(1000)]
        done = self.unguarded_with_input(judge, "\n".join("%x" % one for one in requests))
        self.assertEqual(set(done), {"0", "1"})
        self.assertEqual(len(done), len(requests))
        profile = self.changed(like_default(["ioctl", "read"]))
        # An "is it in this cube" for each of a hundred rules: those of ioctl alone.
        profile["syscalls"] = [rule for rule in profile["syscalls"] if "ioctl" in rule["names"]]
        for request, mark in zip(requests, done):
            wanted = (REFUSE, 19) if mark == "1" else (ALLOW, None)
            self.assertEqual(answer(profile, request), wanted, hex(request))

    def unguarded_with_input(self, command, text):
        return subprocess.run([command], input=text, capture_output=True, text=True,
                                      check=True).stdout

    def test_only_the_rules_for_ioctl_change(self):
        before = like_default(["ioctl", "prctl", "read"])
        after = self.changed(before)
        rest = [rule for rule in after["syscalls"] if rule["names"] != ["ioctl"]]
        before["syscalls"][0]["names"].remove("ioctl")
        self.assertEqual({**after, "syscalls": rest}, before)

    def test_containers_configuration_gives_its_profile(self):
        """As `ctr containers info --spec` prints it: Docker's and containerd's are in no file."""
        profile = for_runtime(like_default(["ioctl", "read"]))
        self.assertEqual(self.changed({"ociVersion": "1.0.2", "linux": {"seccomp": profile}}),
                         self.changed(profile))
        for linux in ({}, {"seccomp": None}):
            done = self.start(launcher=SCRIPT, input=json.dumps({"linux": linux}))
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, r"\Afence-profile: this container has no seccomp profile; "
                             r"[^\n]+\n\Z")

    def test_profile_that_lists_forbidden_calls_gets_nvidias(self):
        """All but a few pass: then only NVIDIA's requests are named."""
        before = {"defaultAction": ALLOW, "syscalls": [{"names": ["acct"], "action": REFUSE}]}
        after = self.changed(before)
        self.assertEqual({rule["action"] for rule in after["syscalls"]}, {REFUSE})
        self.assertEqual([answer(after, int(one, 16)) for one in fence.NVIDIA],
                         [(REFUSE, 19)] * len(fence.NVIDIA))
        self.assertEqual([answer(after, int(one, 16)) for one in fence.OTHERS],
                         [(ALLOW, None)] * len(fence.OTHERS))

    def test_unusable_profile_is_an_error(self):
        for text, meaning in (
                ("{", "Expecting"), ("[]", "no seccomp profile"), ("{}", "no seccomp profile"),
                (json.dumps(like_default(["read"])), "does not allow ioctl"),
                (json.dumps({"defaultAction": REFUSE, "syscalls": [
                    {"names": ["ioctl"], "action": ALLOW, "includes": {"caps": ["CAP_X"]}}]}),
                 "cannot be changed: SCMP_ACT_ALLOW, includes")):
            done = self.start(launcher=SCRIPT, input=text)
            self.assertEqual((done.returncode, done.stdout), (1, ""), text)
            self.assertIn("fence-profile: ", done.stderr)
            self.assertIn(meaning, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([SCRIPT], input=json.dumps(like_default(["ioctl"])), text=True,
                                  stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "fence-profile: [Errno 28] No space left on device\n"))
        done = self.start("/nonexistent/profile", launcher=SCRIPT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/profile", done.stderr)


class Container(fence.Case):
    """crun itself, with this machine's programs as the image."""

    def setUp(self):
        super().setUp()
        self.need("crun", "unshare", "gcc")
        if platform.machine() not in MACHINES:
            harness.skip(self, "no seccomp architecture is known for this machine")
        self.tools = self.path("tools")
        os.mkdir(self.tools)
        if self.run_in(None, "true").returncode != 0:
            harness.skip(self, "no container can be had here: " + self.run_in(None, "true").stderr)

    def profile(self):
        if os.path.exists(INSTALLED):
            with open(INSTALLED, encoding="utf-8") as stream:
                return json.load(stream)
        return like_default(system_calls())

    def fenced(self, profile):
        path = self.make("profile.json", json.dumps(profile), 0o644)
        done = self.unguarded(SCRIPT, path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def run_in(self, profile, *words, capabilities=()):
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
                              "env": ["PATH=/usr/bin:/bin"],
                              "capabilities": {kind: list(capabilities) for kind in
                                               ("bounding", "effective", "permitted")}},
                  "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]}}
        if profile:
            config["linux"]["seccomp"] = for_runtime(profile)
        self.make("bundle/config.json", json.dumps(config), 0o644)
        # crun wants to know about cgroups, and does not run where there are those of two versions.
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        script = 'mount -t tmpfs none /sys/fs/cgroup && exec crun --root "$1" ' \
                 '--cgroup-manager=disabled run --bundle "$2" "$3"'
        return self.unguarded("unshare", *as_root, "--mount", "sh", "-c", script, "sh",
                              self.path("state"), bundle, os.path.basename(self.directory))

    def requests(self, profile, *before):
        words = [*before, fence.program("requests_static"), "/dev/null", *fence.NVIDIA,
                 *fence.OTHERS]
        return self.answers(self.run_in(profile, *words))

    def test_default_profile_allows_a_fence(self):
        """With the profile alone, NVIDIA's ioctls pass."""
        profile = self.profile()
        unguarded = self.requests(profile)
        self.assertEqual(set(unguarded.values()), {"ENOTTY"})
        fenced = self.requests(profile, launcher.LAUNCHER, "run", "--fence=require", "--")
        self.assertEqual({fenced[one] for one in fence.NVIDIA}, {"ENODEV"})
        self.assertEqual({fenced[one] for one in fence.OTHERS}, {"ENOTTY"})

    def test_profile_refuses_nvidias_ioctls_alone(self):
        profile = self.fenced(self.profile())
        fenced = self.requests(profile)
        self.assertEqual({fenced[one] for one in fence.NVIDIA}, {"ENODEV"})
        self.assertEqual({fenced[one] for one in fence.OTHERS}, {"ENOTTY"})
        # The upper half of the request does not count, as to the kernel.
        for requests, error in (fence.NVIDIA, "ENODEV"), (fence.OTHERS, "ENOTTY"):
            done = self.run_in(profile, fence.program("requests_static"), "--by=syscall",
                               "/dev/null", *("ffffffff" + one for one in requests))
            self.assertEqual(set(self.answers(done).values()), {error})
        # And what is one bit beside each of them.
        near = sorted({"%x" % (int(one, 16) ^ 1 << bit)
                       for one in fence.NVIDIA + fence.OTHERS for bit in range(32)})
        words = [fence.program("requests_static"), "/dev/null", *near]
        printed = self.answers(self.run_in(profile, *words))
        for one in near:
            refused = answer(profile, int(one, 16))[0] == REFUSE
            self.assertEqual(printed[one] == "ENODEV", refused, one)

    def test_doctor_inside_reports_the_profile(self):
        done = self.run_in(self.fenced(self.profile()), launcher.LAUNCHER, "doctor")
        self.assertIn("fence              already set up", done.stdout)
        self.assertIn("not available", self.run_in(self.strict(), launcher.LAUNCHER,
                                                   "doctor").stdout)

    def strict(self):
        """The default profile without filters: as some have it."""
        profile = self.profile()
        for rule in profile["syscalls"]:
            if rule["action"] == ALLOW:
                rule["names"] = [name for name in rule["names"] if name not in ("seccomp", "prctl")]
        profile["syscalls"].append({"names": ["prctl"], "action": ALLOW, "args": [
            {"index": 0, "value": PR_SET_SECCOMP, "op": "SCMP_CMP_NE"}]})
        return profile

    def test_strict_profile_forbids_a_fence(self):
        done = self.run_in(self.strict(), launcher.LAUNCHER, "run", "--fence=require", "true")
        self.refused(done, 125, "--fence=require: the fence cannot be set up",
                     "a container's profile, forbids it")
        done = self.run_in(self.strict(), launcher.LAUNCHER, "run", "--fence", "printenv",
                           "LD_PRELOAD")
        self.assertEqual((done.returncode, done.stdout), (0, harness.GUARD + "\n"))
        self.assertRegex(done.stderr, r"\Acudaguard: [^\n]+; only the guard is active\n\Z")
