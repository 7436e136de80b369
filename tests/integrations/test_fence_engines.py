# SPDX-License-Identifier: Apache-2.0
"""scripts/integrations/container/fence-profile with real engines: docs/fence.md's commands for
Podman, Docker and containerd, which make a profile from the engine's own default one and use it.
And the entrypoint of docs/integrations/containers.md, its fence, and verify in a container as the
engines make it by default, with a read-only root.

The engines are Debian's (scripts/fetch-daemons). They run in namespaces of their own, and end with
them."""

import json
import os
import platform
import re
import shutil
import subprocess

import pytest

from support import box, fence, harness, launcher, messages, places, system_root

pytestmark = pytest.mark.full

SCRIPT = places.script("container", "fence-profile")
ENGINES = os.path.join(harness.DEPS, "engines")
IMAGE = "docker.io/library/engines:latest"
# Runs three programs, and prints each one's name before its answers.
PROGRAM = "answers"
ANSWERS = """#!/bin/sh
echo requests
requests /dev/null {0}
echo i386
requests_i386 /dev/null {0} || echo "killed $?"
echo refused
refused
""".format(" ".join(fence.NVIDIA + fence.OTHERS))
COMMANDS = ("sh", "sleep", "true")
# Containers in which the entrypoint guards.
CONTAINERS = ("", "--read-only", "--user 65534")
NOT_FENCED = dict.fromkeys(fence.NVIDIA + fence.OTHERS, "ENOTTY")
FENCED = {**NOT_FENCED, **dict.fromkeys(fence.NVIDIA, "ENODEV")}

# In mount, process and network namespaces of its own, with a /run of its own.
SETUP = """set -euo pipefail
directory=$1
cd "$directory"
mount -t tmpfs none /run
patience() {  # FILE COMMAND...: until it succeeds
  for _ in $(seq 600); do
    ! "${@:2}" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  tail -n 5 "$1" >&2
  return 1
}
"""
PODMAN = """
mount -t tmpfs none /sys/fs/cgroup  # crun does not run where there are those of two versions
cat >storage.conf <<END
[storage]
driver = "vfs"
graphroot = "$directory/podman"
runroot = "/run/podman"
END
cat >containers.conf <<END
[containers]
cgroups = "disabled"
netns = "none"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
seccomp_profile = "$profile"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
conmon_path = ["$(command -v conmon || echo "$engines/usr/bin/conmon")"]
[engine.runtimes]
crun = ["$(command -v crun)"]
END
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >policy.json
export CONTAINERS_CONF=$directory/containers.conf CONTAINERS_STORAGE_CONF=$directory/storage.conf
podman import --signature-policy policy.json image.tar IMAGE >podman.log 2>&1 ||
  { cat podman.log >&2; exit 1; }
podman run --rm IMAGE true
echo ready
"""
DOCKER = """
export CONTAINERD_ADDRESS=$directory/containerd.sock CONTAINERD_SNAPSHOTTER=native
export DOCKER_HOST=unix://$directory/docker.sock
cat >containerd.toml <<END
version = 2
root = "$directory/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$CONTAINERD_ADDRESS"
END
containerd --config containerd.toml >containerd.log 2>&1 &
patience containerd.log ctr version
dockerd --containerd "$CONTAINERD_ADDRESS" --host "$DOCKER_HOST" --data-root "$directory/docker" \\
  --exec-root /run/docker --pidfile /run/docker.pid --storage-driver vfs --bridge=none \\
  --iptables=false --ip6tables=false --ip-forward=false >dockerd.log 2>&1 &
patience dockerd.log docker version
docker import image.tar IMAGE >/dev/null
docker save IMAGE | ctr images import - >/dev/null
docker run --rm IMAGE true
ctr run --rm --seccomp IMAGE NAME true
echo ready
"""


def commands(engine):
    """docs/fence.md's block for this engine: the lines that make a profile, and the last line,
    which uses it."""
    with open(os.path.join(harness.SOURCE, "docs", "fence.md"), encoding="utf-8") as stream:
        blocks = re.findall(r"(?ms)^```text\n(.*?)^```$", stream.read())
    used = re.compile(r"^%s run .*fenced\.json" % engine, re.MULTILINE)
    (block,) = filter(used.search, blocks)
    block = block.replace("scripts/integrations/container/fence-profile", SCRIPT)
    *make, use = block.splitlines(True)
    return "".join(make), use


def verify_in(run):
    """As root and as nobody: verify of a program that asks for CUDA, and of one that does not. Then
    the first one unguarded."""
    verify = run + " --user %d IMAGE cudaguard verify -- open %s 2>&1 || echo exit $?\n"
    control = run + " IMAGE sh -c 'mkdir /tmp/x; CG_FAKE_LOG=/dev/stdout open cu.init' 2>&1\n"
    return "".join(verify % (user, step) for user in (0, 65534)
                   for step in ("cu.init", "pid")) + "echo control\n" + control


def entrypoint():
    """The words of the page's Dockerfile."""
    (text,) = places.blocks("dockerfile", "containers", "An image")
    assert text in places.read("container", "Dockerfile")
    return json.loads(re.search(r"(?m)^ENTRYPOINT (.*)$", text)[1])


def guarded_in(run):
    """The image's program without the entrypoint, with it, and with the variable that allows CUDA.
    Then NVIDIA's ioctls under the fence of the entrypoint."""
    first, *rest, end = entrypoint()
    start = run + " %s --entrypoint %s IMAGE %s open cu.init 2>&1\n"
    script = run + " IMAGE open cu.init\n"
    for options in (*CONTAINERS, "--env CUDAGUARD_POLICY=OFF"):
        script += start % (options, first, " ".join([*rest, end]))
    fenced = " ".join([*rest, "--fence=require", end, PROGRAM])
    return script + "%s --entrypoint %s IMAGE %s\n" % (run, first, fenced)


def without_fence(use):
    return re.sub(r" --(security-opt seccomp=|seccomp-profile )fenced.json", "", use)


class Engines(fence.Case, places.Case):
    def setUp(self):
        super().setUp()
        self.need("unshare")
        self.need_root("run a container engine")
        self.libraries = self.need_daemon("engines")
        if platform.machine() != "x86_64":
            harness.skip(self, "the image has an i386 program")
        self.make_image()

    def make_image(self):
        tree = self.path("image")
        for name in ("bin", "lib", "lib64", "tmp", "usr/local/bin", "usr/local/lib"):
            os.makedirs(os.path.join(tree, name))
        os.chmod(os.path.join(tree, "tmp"), 0o1777)
        os.makedirs(self.path("files"))
        self.make("files/" + PROGRAM, ANSWERS)
        static = [ENGINES + "/bin/busybox", "/bin/busybox"]
        files = {
            "bin/busybox": next(filter(os.path.exists, static)),
            "bin/" + PROGRAM: self.path("files", PROGRAM), "bin/open": box.program("open"),
            "bin/requests": fence.program("requests_static"),
            "bin/requests_i386": fence.program("freestanding"),
            "bin/refused": fence.program("refused"), "usr/local/bin/cudaguard": launcher.LAUNCHER,
            "usr/local/lib/libcudaguard.so": harness.GUARD,
            "lib/libcuda.so.1": os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")}
        for path in system_root.libraries_of(box.program("open")):
            files[("lib64/" if "/ld-linux" in path else "lib/") + os.path.basename(path)] = path
        for name, source in files.items():
            shutil.copy(source, os.path.join(tree, name))
        for name in COMMANDS:
            os.symlink("busybox", os.path.join(tree, "bin", name))
        shutil.copytree(harness.NULL_DRIVER_DIR, os.path.join(tree, "usr/local/lib/cudaguard"),
                        symlinks=True)
        subprocess.run(["tar", "-C", tree, "-cf", self.path("image.tar"), "."], check=True)

    def run_there(self, setup, scripts):
        """What each script prints, {name: text}, in one machine with these engines."""
        parts = ["set +e\n(set -e\n%s)\necho end of %s: $?\n" % (text, name)
                 for name, text in scripts.items()]
        words = {"IMAGE": IMAGE, "PROGRAM": PROGRAM, "NAME": "sample"}
        text = re.sub(r"\b(%s)\b" % "|".join(words), lambda match: words[match[0]],
                      SETUP + setup + "".join(parts))
        directories = ["/usr/bin", "/usr/sbin", "/usr/libexec/podman"]
        env = launcher.environment(
            PATH=":".join([ENGINES + name for name in directories] + ["/usr/sbin:/usr/bin:/sbin:/bin"]),
            LD_LIBRARY_PATH=self.libraries, engines=ENGINES, profile=self.podman_profile())
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc",
             "bash", "-c", text, "bash", self.directory], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, env=env, timeout=600, check=False)
        _, ready, rest = done.stdout.partition("ready\n")
        if not ready:
            harness.skip(self, "no container can be had here: " + done.stderr.strip())
        printed = {}
        for name in scripts:
            printed[name], end, rest = rest.partition("end of %s: 0\n" % name)
            self.assertTrue(end, done)
        return printed

    @staticmethod
    def podman_profile():
        name = "/usr/share/containers/seccomp.json"
        return ENGINES + name if os.path.exists(ENGINES + name) else name

    def answers_of(self, text):
        """{program: {what it asked: the answer}}, for each time that PROGRAM ran."""
        runs = []
        for line in text.splitlines():
            if line == "requests":
                runs.append({})
            if line in ("requests", "i386", "refused"):
                part = runs[-1].setdefault(line, {})
            elif runs and " " in line:  # no container's name
                part.update([line.split()])
        return runs

    def fenced_as_by_default(self, text):
        """Nothing but NVIDIA's requests is answered otherwise than without the profile."""
        default, fenced = self.answers_of(text)
        self.assertEqual((default["requests"], default["i386"]), (NOT_FENCED, NOT_FENCED))
        self.assertEqual((fenced["requests"], fenced["i386"]), (FENCED, FENCED))
        self.assertEqual(fenced["refused"], default["refused"])
        self.assertEqual(default["refused"]["mount"], "EPERM")
        return default["refused"]

    def verified(self, text):
        """The launcher heard the beacon and read the stack, without a file that can be written."""
        under_verify, _, control = text.partition("control\n")
        for wanted in ("exit 1\n", "cudaguard: PASS: no CUDA use (1 process checked)\n",
                       "> open: driver_step\n"):
            self.assertEqual(under_verify.count(wanted), 2, text)
        self.assertEqual(under_verify.count("  1 program started: 1 guarded\n"), 4, text)
        self.assertIn("'/tmp/x': Read-only file system", control)
        self.assertIn("cuInit:initialised\n", control)

    def guarded_by_the_entrypoint(self, text):
        self.assertEqual(re.findall(r"(?m)^cu\.init=(\d+)$", text),
                         ["0", *["100"] * len(CONTAINERS), "0"], text)
        self.assertEqual(len(messages.find(text, "no_cuda")), len(CONTAINERS), text)
        (fenced,) = self.answers_of(text)
        self.assertEqual((fenced["requests"], fenced["i386"]), (FENCED, FENCED))

    def test_podman_is_fenced_as_documented(self):
        make, use = commands("podman")
        printed = self.run_there(PODMAN, {
            "podman": without_fence(use) + make + use,
            "verify": verify_in("podman run --rm --read-only --read-only-tmpfs=false")})
        self.fenced_as_by_default(printed["podman"])
        self.verified(printed["verify"])

    def test_verify_and_the_entrypoint_work_in_docker(self):
        printed = self.run_there(DOCKER, {
            "verify": verify_in("docker run --rm --read-only"),
            "entrypoint": guarded_in("docker run --rm")})
        self.verified(printed["verify"])
        self.guarded_by_the_entrypoint(printed["entrypoint"])

    def test_docker_and_containerd_are_fenced_as_documented(self):
        make, use = commands("docker")
        ctr_make, ctr_use = commands("ctr")
        add = ("docker run", "docker run --cap-add SYS_ADMIN")
        other = "%s %s >fenced.json\n" % (SCRIPT, self.podman_profile())
        printed = self.run_there(DOCKER, {
            "docker": without_fence(use) + make + use,
            "containerd": without_fence(ctr_use) + ctr_make + ctr_use,
            "capabilities": (make + use.replace(*add) + make.replace(*add) + use.replace(*add)),
            "another": other + use + ctr_use})
        for name in ("docker", "containerd"):
            refused = self.fenced_as_by_default(printed[name])
            self.assertEqual(refused["user_namespace"], "EPERM", name)
        # The capabilities of the sample container count.
        without, with_it = self.answers_of(printed["capabilities"])
        self.assertEqual((without["requests"], with_it["requests"]), (FENCED, FENCED))
        self.assertEqual((without["refused"]["mount"], with_it["refused"]["mount"]),
                         ("EPERM", "0"))
        # With another engine's profile: why docs/fence.md says not to.
        docker, containerd = self.answers_of(printed["another"])
        self.assertEqual((docker["requests"], containerd["requests"]), (FENCED, FENCED))
        self.assertEqual(docker["refused"]["user_namespace"], "0")
        self.assertEqual(containerd["refused"]["user_namespace"], "0")
        self.assertEqual((docker["i386"], containerd["i386"]), (FENCED, {"killed": "159"}))
