# SPDX-License-Identifier: Apache-2.0
"""The pod: held against Kubernetes' own schemas, and started as a node would, in sandboxes."""

import os
import subprocess

import pytest

from support import harness, places
from support.places import launcher

try:
    import yaml
except ImportError:
    yaml = None

TEXT = places.read("kubernetes", "pod.yaml")
RELEASES = ("1.25", "1.31", "1.37")


class Case(places.Case):
    def setUp(self):
        super().setUp()
        if yaml is None:
            harness.skip(self, "python3-yaml is not installed")
        self.spec = yaml.safe_load(TEXT)["spec"]
        self.volume = self.path("volume")
        os.mkdir(self.volume)


class Schema(Case):
    def validate(self, text, release):
        self.need_platforms()
        path = self.make("pod.yaml", text, 0o644)
        return subprocess.run([places.PLATFORMS + "/kubernetes-validate", "--strict", "-k", release,
                               path], capture_output=True, text=True, check=False)

    @pytest.mark.full
    def test_valid(self):
        for release in RELEASES:
            done = self.validate(TEXT, release)
            self.assertEqual(done.returncode, 0, done)

    @pytest.mark.full
    def test_control(self):
        for right, wrong in (("readOnly:", "readonly:"), ("emptyDir: {}", "emptyDir: []"),
                             ("mountPath: /cudaguard\n          readOnly", "readOnly"),
                             ("initContainers:", "initContainer:")):
            self.assertIn(right, TEXT)
            done = self.validate(TEXT.replace(right, wrong), RELEASES[-1])
            self.assertNotEqual(done.returncode, 0, right)

    def test_names(self):
        """What no schema says: each mount has its volume."""
        names = [volume["name"] for volume in self.spec["volumes"]]
        for container in self.spec["initContainers"] + self.spec["containers"]:
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], names)
            self.assertNotIn("env", container)

    def test_docs(self):
        (block,) = places.blocks("yaml", "kubernetes")
        self.assertIn(block, TEXT)


class Pod(Case):
    def container(self, container, command=None, args=None, image=()):
        """Runs one of the pod's containers as harness.Result; `image`: its own mounts."""
        mounts = ["--tmpfs", "/mnt", *image]
        for mount in container["volumeMounts"]:
            # bubblewrap makes the mount point, below a directory that is the sandbox's own.
            place = "/mnt" + mount["mountPath"]
            mounts += ["--ro-bind" if mount.get("readOnly") else "--bind", self.volume, place]
        words = (container["command"] if command is None else command) + \
            (container.get("args", []) if args is None else args)
        words = [word.replace("/cudaguard/", "/mnt/cudaguard/", 1)
                 if word.startswith("/cudaguard/") else word for word in words]
        return places.others_only(harness.run(words, guard=False, bwrap=mounts,
                                              env=dict.fromkeys(launcher.PRESETS)))

    def init(self):
        (container,) = self.spec["initContainers"]
        return self.container(container, image=places.usr_local(self.path("tree")))

    def program(self, *words, **more):
        (container,) = self.spec["containers"]
        return self.container(container, args=list(words), **more)

    def test_guarded(self):
        self.assertEqual(self.init().rc, 0)
        result = self.program(*places.OPEN)
        result.assert_untouched(self)
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.program(*places.OPEN, command=[]).assert_reached(self)
        # A child; a program that is linked to the driver.
        self.program("sh", "-c", "exit 7; true").assert_untouched(self)
        self.assertEqual(self.program("sh", "-c", "exit 7").rc, 7)
        linked = [harness.program("linked_cuda")]
        result = self.program(*linked)
        self.guarded(result.answers, result.fake_calls)
        self.program(*linked, command=[]).assert_reached(self)

    def test_again(self):
        """A node starts the init container once more where it has lost the pod's sandbox."""
        self.assertEqual((self.init().rc, self.program("true").rc), (0, 0))
        done = self.container(self.spec["initContainers"][0], image=[
            "--tmpfs", "/usr/local", "--ro-bind", self.path("tree", "bin"), "/usr/local/bin",
            "--ro-bind", self.path("tree", "lib"), "/usr/local/lib"])
        self.assertEqual((done.rc, self.program(*places.OPEN).answers.get("cuInit")), (0, "100"))

    def test_read_only(self):
        self.init()
        self.assertNotEqual(self.program("sh", "-c", ": >/mnt/cudaguard/lib/x").rc, 0)

    def test_missing(self):
        """Without the files nothing is started."""
        result = self.program(*places.OPEN)
        self.assertNotEqual(result.rc, 0)
        self.assertEqual((result.out, result.fake_calls), ("", []), result)
        self.init()
        os.remove(self.path("volume", "lib", "libcudaguard.so"))
        result = self.program(*places.OPEN)
        self.assertEqual((result.rc, result.out, result.fake_calls), (125, "", []), result)

    def test_musl(self):
        self.need("musl-gcc")
        self.init()
        program = self.compile("musl", "int main(void) { return 0; }\n", compiler="musl-gcc")
        self.assertEqual(self.program(program, command=[]).rc, 0)
        result = self.program(program)
        self.assertEqual(result.rc, 125, result)
        self.assertIn("musl", result.err)
