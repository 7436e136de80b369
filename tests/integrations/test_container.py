# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile's two lines work as in docker, with the program as process 1."""

import os

import pytest

from support import fixtures, harness, image, messages, places

pytestmark = pytest.mark.full

TEXT = places.read("container", "Dockerfile")
ENTRY_POINT = "/mnt/programs/entry_point"
OPEN = [ENTRY_POINT, "lib=libcuda.so.1"]
LINKED = ["/mnt/programs/linked_cuda"]
GUARD = "/usr/local/lib/libcudaguard.so"
WARNING = r'cudaguard: "/usr/bin/tini-static" is a static executable[^\n]* not guarded[^\n]*\n'
SHARED = []


class Case(places.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.skip(self, "only root can make and enter another system")
        self.need("debootstrap", "gcc", "tini-static", "tini")

    def build(self, text=TEXT):
        """Builds the image as docker build does, in a context that has the installed tree."""
        os.mkdir(self.path("context"))
        self.installed("context/cudaguard")
        return image.Image(self, text, self.path("context"))

    def built(self):
        """Returns the Dockerfile's image, which all tests share that change nothing in it."""
        if not SHARED:
            SHARED.append(self.build())
        return SHARED[0]

    def no_device(self, result, warning=""):
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.assertEqual(len(messages.find(result.err, "no_cuda")), 1, result)
        self.assertRegex(messages.without(result.err, "no_cuda"), r"\A%s\Z" % warning)

    def a_device(self, result):
        result.assert_reached(self)
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "0"), result)


class Dockerfile(Case):
    def test_two_lines_install_and_start_the_launcher(self):
        """COPY copies the whole installed tree, and ENTRYPOINT starts the launcher."""
        (docs,) = places.blocks("dockerfile", "containers", "An image")
        self.assertIn(docs, TEXT)
        names = [name for name, _ in image.instructions(TEXT)]
        self.assertEqual(names, ["FROM", "COPY", "ENTRYPOINT", "CMD"])
        built = self.build()
        for directory, _, files in os.walk(self.path("context", "cudaguard")):
            for name in files:
                path = os.path.relpath(os.path.join(directory, name),
                                       self.path("context", "cudaguard"))
                self.assertTrue(os.path.lexists(os.path.join(built.root, "usr/local", path)), path)
        done = built.run(["/bin/sh", "-c", "echo $$ $LD_PRELOAD"])
        self.assertEqual((done.rc, done.out, done.err), (0, "1 %s\n" % GUARD, ""), done)
        self.assertEqual(built.run().rc, 0)  # the image's CMD ends at the end of stdin
        # In docker run IMAGE --version, the word belongs to the program and not to the launcher.
        self.assertEqual(built.run(["--version"]).rc, 127)

    def test_missing_command_is_reported(self):
        """ENTRYPOINT empties the base image's CMD. The launcher reports that and starts nothing."""
        text = "".join(line for line in TEXT.splitlines(True) if not line.startswith("CMD"))
        done = self.build(text).run()
        self.assertEqual((done.rc, done.out), (125, ""), done)
        self.assertIn("no program given", done.err)

    def test_missing_file_prevents_the_start(self):
        """An image without the guard's file does not start. LD_PRELOAD alone would start the
        program unguarded (guest/test_install.py)."""
        built = self.build()
        os.remove(built.root + GUARD)
        result = built.run(OPEN)
        self.assertEqual((result.rc, result.out, result.fake_calls), (125, "", []), result)
        self.assertIn(GUARD + " is missing", result.err)
        os.remove(built.root + "/usr/local/bin/cudaguard")
        result = built.run(OPEN)
        self.assertEqual((result.rc, result.out, result.fake_calls), (1, "", []), result)

    def test_base_images_entrypoint_is_guarded(self):
        """A base image's own entrypoint, usually a script, follows ours."""
        built = self.built()
        script = os.path.join(built.directory, "programs", "entry.sh")
        with open(script, "w", encoding="utf-8") as stream:
            stream.write('#!/bin/sh\nset -e\necho "$$ $#"\nexec "$@"\n')
        os.chmod(script, 0o755)
        own = ["/mnt/programs/entry.sh"]
        self.a_device(built.run(OPEN, entrypoint=own))
        result = built.run(OPEN, entrypoint=built.entrypoint + own)
        self.no_device(result)
        self.assertEqual(result.out.splitlines()[0], "1 2")
        # docker exec starts a separate process.
        self.no_device(built.run(["cudaguard", "run", "--", *OPEN], entrypoint=[]))


make_case = fixtures.lent("case", Dockerfile)


@pytest.mark.parametrize("options", [(), ("--remount-ro", "/"),
                                     ("--unshare-user", "--uid", "65534")])
def test_container_is_guarded(case, options):
    built = case.built()
    case.a_device(built.run(OPEN, entrypoint=[], options=options))
    result = built.run(OPEN, options=options)
    case.no_device(result)
    result.assert_untouched(case)


def test_linked_program_is_guarded_and_off_is_obeyed(case):
    built = case.built()
    # A program that is linked to the driver runs with the GPU's libraries in the container, and
    # without them, although it would not start unguarded.
    built.run(LINKED, entrypoint=[]).assert_reached(case)
    case.no_device(built.run(LINKED))
    nowhere = {"env": {"LD_LIBRARY_PATH": ""}}
    assert built.run(LINKED, entrypoint=[], **nowhere).rc == 127
    case.no_device(built.run(LINKED, **nowhere))
    case.a_device(built.run(OPEN, env={"CUDAGUARD_POLICY": "OFF"}))  # docker run -e


class Init(Case):
    """docker run --init, and images that bring an init of their own."""

    def test_dockers_init_starts_the_entrypoint_guarded(self):
        """Docker's init is process 1 and starts the entrypoint. The program is guarded and no
        warning is printed."""
        built = self.built()
        self.a_device(built.run(OPEN, entrypoint=[], init=True))
        result = built.run(OPEN, init=True)
        self.no_device(result)
        result.assert_untouched(self)

    def test_static_init_after_the_entrypoint_is_reported(self):
        """An image's own init follows the entrypoint. A static init is reported as unguarded
        itself."""
        built = self.build()
        for name, warning in (("tini-static", WARNING), ("tini", "")):
            image.copy_over("/usr/bin/" + name, built.root + "/usr/bin/" + name)
            own = ["/usr/bin/" + name, "--"]
            self.a_device(built.run(OPEN, entrypoint=own))
            result = built.run(OPEN, entrypoint=built.entrypoint + own)
            self.no_device(result, warning)
            result.assert_untouched(self)
            strict = ["/usr/local/bin/cudaguard", "run", "--strict", "--"]
            result = built.run(OPEN, entrypoint=strict + own)
            self.assertEqual(result.rc, 125 if warning else 0, result)
            # In the other order, there is no reason for a warning.
            self.no_device(built.run(OPEN, entrypoint=own + built.entrypoint))
