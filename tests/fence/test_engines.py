# SPDX-License-Identifier: Apache-2.0
"""scripts/container/fence-profile with real engines: docs/fence.md's commands for Podman, Docker
and containerd, which make a profile from the engine's own default one and use it.

The engines are Debian's (scripts/fetch-daemons). They run in namespaces of their own, and end with
them."""

import glob
import os
import platform
import re
import shutil
import tarfile
import tempfile

import harness
import fence
import launcher

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
NOT_FENCED = dict.fromkeys(fence.NVIDIA + fence.OTHERS, "ENOTTY")
FENCED = {**NOT_FENCED, **dict.fromkeys(fence.NVIDIA, "ENODEV")}

# In mount, process and network namespaces of its own, with a /run of its own.
SETUP = """set -euo pipefail
folder=$1
cd "$folder"
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
graphroot = "$folder/podman"
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
export CONTAINERS_CONF=$folder/containers.conf CONTAINERS_STORAGE_CONF=$folder/storage.conf
podman import --signature-policy policy.json image.tar IMAGE >podman.log 2>&1 ||
  { cat podman.log >&2; exit 1; }
"""
DOCKER = """
export CONTAINERD_ADDRESS=$folder/containerd.sock CONTAINERD_SNAPSHOTTER=native
export DOCKER_HOST=unix://$folder/docker.sock
cat >containerd.toml <<END
version = 2
root = "$folder/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$CONTAINERD_ADDRESS"
END
containerd --config containerd.toml >containerd.log 2>&1 &
patience containerd.log ctr version
dockerd --containerd "$CONTAINERD_ADDRESS" --host "$DOCKER_HOST" --data-root "$folder/docker" \\
  --exec-root /run/docker --pidfile /run/docker.pid --storage-driver vfs --bridge=none \\
  --iptables=false --ip6tables=false --ip-forward=false >dockerd.log 2>&1 &
patience dockerd.log docker version
docker import image.tar IMAGE >/dev/null
docker save IMAGE | ctr images import - >/dev/null
"""


def commands(engine):
    """docs/fence.md's block for this engine: the lines that make a profile, and the last line,
    which uses it."""
    with open(os.path.join(harness.SOURCE, "docs", "fence.md"), encoding="utf-8") as stream:
        blocks = re.findall(r"(?ms)^```text\n(.*?)^```$", stream.read())
    used = re.compile(r"^%s run .*fenced\.json" % engine, re.MULTILINE)
    (block,) = filter(used.search, blocks)
    block = block.replace("scripts/container/", os.path.join(harness.SOURCE, "scripts/container/"))
    *make, use = block.splitlines(True)
    return "".join(make), use


def verify_command():
    """docs/verify.md's line for a container with a read-only root file system."""
    with open(os.path.join(harness.SOURCE, "docs", "verify.md"), encoding="utf-8") as stream:
        (line,) = re.findall(r"(?m)^docker run --read-only .*", stream.read())
    return line.replace("PROGRAM", "true")


def without_fence(use):
    return re.sub(r" --(security-opt seccomp=|seccomp-profile )fenced.json", "", use)


class Engines(fence.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reason = harness.fetch_daemon("engines") if os.geteuid() == 0 else "only root can"
        if cls.reason:
            return
        cls.shared = tempfile.mkdtemp(prefix="cg-")
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.image = os.path.join(cls.shared, "image.tar")
        static = [ENGINES + "/bin/busybox", "/bin/busybox"]
        with tarfile.open(cls.image, "w") as image:
            image.add(next(filter(os.path.exists, static)), "bin/busybox")
            for name in COMMANDS:
                link = tarfile.TarInfo("bin/" + name)
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                image.addfile(link)
            for name, source in (("requests", "requests_static"), ("requests_i386", "freestanding"),
                                 ("refused", "refused")):
                image.add(fence.program(source), "bin/" + name)
            path = os.path.join(cls.shared, PROGRAM)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(ANSWERS)
            os.chmod(path, 0o755)
            image.add(path, "bin/" + PROGRAM)
            image.add(launcher.LAUNCHER, "usr/local/bin/cudaguard")
            for name in ("libcudaguard.so", "cudaguard"):
                image.add(os.path.join(harness.LIB, name), "usr/local/lib/" + name)
            folder = tarfile.TarInfo("tmp")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            image.addfile(folder)

    def setUp(self):
        super().setUp()
        self.need("unshare")
        if self.reason:
            harness.skip(self, "no container engine can be had: " + self.reason)
        if platform.machine() != "x86_64":
            harness.skip(self, "the image has an i386 program")

    def run_there(self, setup, script):
        """What the script prints, in a machine with this engine."""
        os.link(self.image, self.path("image.tar"))
        words = {"IMAGE": IMAGE, "PROGRAM": PROGRAM, "NAME": "sample"}
        text = re.sub(r"\b(%s)\b" % "|".join(words), lambda match: words[match[0]], setup + script)
        folders = ["/usr/bin", "/usr/sbin", "/usr/libexec/podman"]
        env = launcher.environment(
            PATH=":".join([ENGINES + name for name in folders] + ["/usr/sbin:/usr/bin:/sbin:/bin"]),
            LD_LIBRARY_PATH=":".join(glob.glob(ENGINES + "/usr/lib/*-linux-gnu") +
                                     glob.glob(ENGINES + "/lib/*-linux-gnu")),
            engines=ENGINES, profile=self.podman_profile())
        done = self.bare("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child",
                         "--mount-proc", "bash", "-c", SETUP + text, "bash", self.folder, env=env)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

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

    def fenced_as_by_default(self, setup, engine):
        """The documented commands; nothing but NVIDIA's requests is answered otherwise."""
        make, use = commands(engine)
        text = self.run_there(setup, without_fence(use) + make + use)
        default, fenced = self.answers_of(text)
        self.assertEqual((default["requests"], default["i386"]), (NOT_FENCED, NOT_FENCED))
        self.assertEqual((fenced["requests"], fenced["i386"]), (FENCED, FENCED))
        self.assertEqual(fenced["refused"], default["refused"])
        self.assertEqual(default["refused"]["mount"], "EPERM")
        return default["refused"]

    def test_podman(self):
        self.fenced_as_by_default(PODMAN, "podman")

    def test_docker(self):
        refused = self.fenced_as_by_default(DOCKER, "docker")
        self.assertEqual(refused["user_namespace"], "EPERM")

    def test_containerd(self):
        refused = self.fenced_as_by_default(DOCKER, "ctr")
        self.assertEqual(refused["user_namespace"], "EPERM")

    def test_capabilities_of_the_sample_count(self):
        make, use = commands("docker")
        add = ("docker run", "docker run --cap-add SYS_ADMIN")
        text = self.run_there(DOCKER, make + use.replace(*add) + make.replace(*add) +
                              use.replace(*add))
        without, with_it = self.answers_of(text)
        self.assertEqual((without["requests"], with_it["requests"]), (FENCED, FENCED))
        self.assertEqual((without["refused"]["mount"], with_it["refused"]["mount"]), ("EPERM", "0"))

    def test_another_engines_profile(self):
        """Why docs/fence.md says not to."""
        make = "%s %s >fenced.json\n" % (os.path.join(harness.SOURCE, "scripts", "container",
                                                      "fence-profile"), self.podman_profile())
        docker, containerd = self.answers_of(self.run_there(
            DOCKER, make + commands("docker")[1] + commands("ctr")[1]))
        self.assertEqual((docker["requests"], containerd["requests"]), (FENCED, FENCED))
        self.assertEqual(docker["refused"]["user_namespace"], "0")
        self.assertEqual(containerd["refused"]["user_namespace"], "0")
        self.assertEqual((docker["i386"], containerd["i386"]), (FENCED, {"killed": "159"}))

    def test_verify_in_a_read_only_container(self):
        command = verify_command()
        text = self.run_there(DOCKER, "%s 2>&1\n%s 2>&1 || echo $?\n" % (
            command, command.replace(" --tmpfs /tmp", "")))
        with_room, without = text.split("TMPDIR=")
        self.assertIn("cudaguard: PASS: ", with_room)
        self.assertRegex(without, r"\A\"/tmp\": Read-only file system [^\n]*\n125\n\Z")


if __name__ == "__main__":
    harness.main()
