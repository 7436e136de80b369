# SPDX-License-Identifier: Apache-2.0
"""The entrypoint of docs/integrations/containers.md, with the program as process 1 of a sandbox.
The lab's engines start it."""

import json
import os
import tempfile

import pytest

from support import fixtures, harness, messages, places

pytestmark = pytest.mark.all

(LINES,) = places.blocks("dockerfile", "containers", "An image")
ENTRYPOINT = json.loads(LINES.partition("ENTRYPOINT ")[2])
LINKED = [harness.program("linked_cuda")]
GUARD = "/usr/local/lib/libcudaguard.so"


class Container(places.Case):
    def setUp(self):
        super().setUp()
        self.mounts = [*places.usr_local(self.path("tree")), "--unshare-pid", "--as-pid-1",
                       "--proc", "/proc"]

    def run_image(self, *words, entrypoint=(), options=(), **more):
        return harness.run([*entrypoint, *words], guard=False, bwrap=[*self.mounts, *options],
                           trace=False, **more)  # strace would be process 1

    def no_device(self, result):
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.assertEqual(len(messages.find(result.err, "no_cuda")), 1, result)
        self.assertEqual(messages.without(result.err, "no_cuda"), "", result)

    def test_dockerfile_has_the_pages_lines(self):
        text = places.read("container", "Dockerfile")
        self.assertEqual(LINES.splitlines()[0], "COPY cudaguard/ /usr/local/")
        names = [line.split()[0] for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(names, ["FROM", "COPY", "ENTRYPOINT", "CMD"])
        self.assertIn(LINES, text)

    def test_program_is_process_1(self):
        done = self.run_image("sh", "-c", "echo $$ $LD_PRELOAD", entrypoint=ENTRYPOINT)
        self.assertEqual((done.rc, done.out, done.err), (0, "1 %s\n" % GUARD, ""), done)
        # In docker run IMAGE --version, the word belongs to the program and not to the launcher.
        self.assertEqual(self.run_image("--version", entrypoint=ENTRYPOINT).rc, 127)

    def test_missing_command_is_reported(self):
        """ENTRYPOINT empties the base image's CMD."""
        done = self.run_image(entrypoint=ENTRYPOINT)
        self.assertEqual((done.rc, done.out), (125, ""), done)
        self.assertIn("no program given", done.err)

    def test_missing_file_prevents_the_start(self):
        """LD_PRELOAD alone would start the program unguarded (guest/test_install.py)."""
        os.remove(self.path("tree", "lib", "libcudaguard.so"))
        result = self.run_image(*places.OPEN, entrypoint=ENTRYPOINT)
        self.assertEqual((result.rc, result.out, result.fake_calls), (125, "", []), result)
        self.assertIn(GUARD + " is missing", result.err)

    def test_base_images_entrypoint_is_guarded(self):
        """A base image's own entrypoint, usually a script, follows ours."""
        own = [self.make("entry.sh", '#!/bin/sh\nset -e\necho "$$ $#"\nexec "$@"\n')]
        self.run_image(*places.OPEN, entrypoint=own).assert_reached(self)
        result = self.run_image(*places.OPEN, entrypoint=ENTRYPOINT + own)
        self.no_device(result)
        self.assertEqual(result.out.splitlines()[0], "1 2")

    def test_linked_program_starts_without_a_driver_too(self):
        self.run_image(*LINKED).assert_reached(self)
        self.no_device(self.run_image(*LINKED, entrypoint=ENTRYPOINT))
        self.assertEqual(self.run_image(*LINKED, world="none").rc, 127)
        self.no_device(self.run_image(*LINKED, entrypoint=ENTRYPOINT, world="none"))

    def test_variable_allows_cuda(self):
        result = self.run_image(*places.OPEN, entrypoint=ENTRYPOINT,
                                env={"CUDAGUARD_POLICY": "OFF"})
        result.assert_reached(self)
        self.assertEqual((result.rc, result.answers["cuInit"]), (0, "0"), result)


make_container = fixtures.lent("container", Container)


@pytest.mark.parametrize("options", [
    (), ("--bind", tempfile.gettempdir(), tempfile.gettempdir(), "--remount-ro", "/"),
    ("--unshare-user", "--uid", "65534")])
def test_container_is_guarded(container, options):
    container.run_image(*places.OPEN, options=options).assert_reached(container)
    result = container.run_image(*places.OPEN, entrypoint=ENTRYPOINT, options=options)
    container.no_device(result)
    result.assert_untouched(container)
