# SPDX-License-Identifier: Apache-2.0
"""The pod works when sandboxes start it as a node would."""

import os

from support import harness, places
from support.places import launcher

TEXT = places.read("kubernetes", "pod.yaml")


class Pod(places.Case):
    def setUp(self):
        super().setUp()
        self.need_yaml()
        self.spec = places.yaml.safe_load(TEXT)["spec"]
        self.volume = self.path("volume")
        os.mkdir(self.volume)

    def test_each_mount_has_its_volume(self):
        """No schema checks that each mount has its volume."""
        names = [volume["name"] for volume in self.spec["volumes"]]
        for container in self.spec["initContainers"] + self.spec["containers"]:
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], names)
            self.assertNotIn("env", container)

    def test_docs_quote_the_pod(self):
        (block,) = places.blocks("yaml", "kubernetes")
        self.assertIn(block, TEXT)

    def container(self, container, command=None, args=None, image=()):
        """Runs one of the pod's containers; returns a harness.Result. `image`: the container's own
        mounts."""
        mounts = ["--tmpfs", "/mnt", *image]
        for mount in container["volumeMounts"]:
            # bubblewrap creates the mount point, which must be below one of the sandbox's own
            # directories.
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

    def test_pod_is_guarded(self):
        self.assertEqual(self.init().rc, 0)
        result = self.program(*places.OPEN)
        result.assert_untouched(self)
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.program(*places.OPEN, command=[]).assert_reached(self)
        # The first program is a child, the second is linked to the driver.
        self.program("sh", "-c", "exit 7; true").assert_untouched(self)
        self.assertEqual(self.program("sh", "-c", "exit 7").rc, 7)
        linked = [harness.program("linked_cuda")]
        result = self.program(*linked)
        self.guarded(result.answers, result.fake_calls)
        self.program(*linked, command=[]).assert_reached(self)

    def test_init_container_may_run_again(self):
        """A node starts the init container again if it has lost the pod's sandbox."""
        self.assertEqual((self.init().rc, self.program("true").rc), (0, 0))
        done = self.container(self.spec["initContainers"][0], image=[
            "--tmpfs", "/usr/local", "--ro-bind", self.path("tree", "bin"), "/usr/local/bin",
            "--ro-bind", self.path("tree", "lib"), "/usr/local/lib"])
        self.assertEqual((done.rc, self.program(*places.OPEN).answers.get("cuInit")), (0, "100"))

    def test_container_cannot_write_to_the_volume(self):
        self.init()
        self.assertNotEqual(self.program("sh", "-c", ": >/mnt/cudaguard/lib/x").rc, 0)

    def test_missing_files_start_no_program(self):
        result = self.program(*places.OPEN)
        self.assertNotEqual(result.rc, 0)
        self.assertEqual((result.out, result.fake_calls), ("", []), result)
        self.init()
        os.remove(self.path("volume", "lib", "libcudaguard.so"))
        result = self.program(*places.OPEN)
        self.assertEqual((result.rc, result.out, result.fake_calls), (125, "", []), result)

    def test_musl_program_is_refused(self):
        self.need("musl-gcc")
        self.init()
        program = self.copied("hello_musl")
        self.assertEqual(self.program(program, command=[]).rc, 0)
        result = self.program(program)
        self.assertEqual(result.rc, 125, result)
        self.assertIn("musl", result.err)
