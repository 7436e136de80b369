# SPDX-License-Identifier: Apache-2.0
"""verify names the source lines of native frames, from the files' debug information."""

import os
import re
import subprocess

import pytest

from support import fixtures, launcher
from support.observed import box
from launcher import test_verify_tree

ASKS = launcher.line_of("app.c", "asks")
CALLS = launcher.line_of("app.c", "calls train")


class Lines(test_verify_tree.Case):
    def setUp(self):
        super().setUp()
        self.need("addr2line", "objcopy", "strip")

    def build(self, kind="lines", name="app"):
        return self.copied(kind + "/app", name)

    def own_row(self, words, options=(), rc=1, **more):
        """The user's row of the block, after the mark."""
        self.result, _ = self.tree(words, options, **more)
        block = self.ends(self.result, rc, "asked for CUDA" if rc else "PASS")
        return re.search(r"(?m)^ +(?:native +)?> (.*)$", block)[1]

    def without_lines(self, words, **more):
        self.assertEqual(self.own_row(words, **more), "app: train")
        self.assertIn("FAIL: 1 place asked", self.result.err)
        self.assertIsNone(self.document["calls"][0]["line"])

    def test_line_of_the_users_frame_is_the_place(self):
        # The compiler notes the path that it is given. The build's paths depend on ccache.
        self.need("gcc")
        path = self.make("app.c", launcher.source("app.c"), 0o644)
        program = self.compile("app", path, "-O1", "-g")
        unguarded = box.start([program])
        self.assertIn("cuInit:initialised", unguarded.fake_calls, unguarded)
        row = self.own_row([program])
        self.assertEqual(row, "%s:%d in train" % (path, ASKS))
        self.assertIn("FAIL: 1 line asked", self.result.err)
        self.assertIn("\n  app.c:%d\n" % ASKS, self.result.err)
        self.assertIn("app.c:%d in main" % CALLS, self.result.err)
        place = self.document["places"][0]
        self.assertEqual((place["name"], place["line"]), ("app.c:%d" % ASKS,) * 2)

    def test_allow_takes_the_line(self):
        program = self.build()
        self.own_row([program], ["--allow", "line:app.c:%d" % ASKS], rc=0)
        self.own_row([program], ["--allow", "line:app.c:%d" % (ASKS + 1)], rc=1)

    def test_generated_file_that_is_gone_is_not_named(self):
        """nvcc puts a kernel's start into a file of its own, and Go each call of C."""
        self.need("gcc")
        for name, file, row in (
                ("__device_stub__Z5train", "tmpxft_1_a.cudafe1.stub.c", "app.c:%d in main" % CALLS),
                ("_cgo_1_Cfunc_cuInit", "a.cgo2.c", "/tmp/gone/a.go in _cgo_1_Cfunc_cuInit")):
            text = launcher.source("app.c").replace("train", name)
            start, main = text.index("__attribute__"), text.index("int main")
            lines = '#line 13 "/tmp/gone/%s"\n' % file, '#line %d "app.c"\n' % (
                text.count("\n", 0, main) + 1)
            self.make("app.c", text[:start] + lines[0] + text[start:main] + lines[1] + text[main:],
                      0o644)
            program = self.compile("app", self.path("app.c"), "-O1", "-gdwarf-4")
            self.assertEqual(self.own_row([program]), row)
            place = row.partition(" in ")[0].rpartition("/")[2]
            self.own_row([program], ["--allow", "line:" + place], rc=0)

    def test_lines_are_left_out_without_a_tool(self):
        self.without_lines([self.build()], env={"PATH": self.directory})

    def test_missing_debug_information_leaves_lines_out(self):
        program = self.build()
        subprocess.run(["strip", "--strip-debug", program], check=True)
        self.without_lines([program])

    def test_changed_file_leaves_lines_out(self):
        program = self.build()
        other = self.build(name="other")
        self.without_lines([program, other])
        self.assertFalse(os.path.exists(other))


make_case = fixtures.lent("case", Lines)


@pytest.mark.parametrize("kind", ["gz", "no_pie", "dwarf_4", "dwarf_5"])
def test_each_format_of_debug_information_is_read(case, kind):
    assert "app.c:%d in train" % ASKS in case.own_row([case.build("lines_" + kind)])


@pytest.mark.parametrize("name", [".debug_line", ".debug_info", ".debug_abbrev"])
def test_damaged_debug_information_leaves_lines_out(case, name):
    program = case.build()
    os.mkdir(case.path("bad"))
    noise = case.make("noise", os.urandom(4096), 0o644)
    subprocess.run(["objcopy", "--update-section", "%s=%s" % (name, noise), program,
                    case.path("bad", "app")], check=True)
    assert case.own_row([case.path("bad", "app")]).endswith("train")


@pytest.mark.parametrize("text", [
    "kill -SEGV $$", "exit 1", "echo /x.c:1", "echo /x.c:1; yes | head -c 9000000",
    "for word; do echo /x.c:-1; done"
])
def test_failing_tool_leaves_lines_out(case, text):
    program = case.build()
    case.make("addr2line", "#!/bin/sh\nPATH=/usr/bin:/bin\n%s\n" % text)
    case.without_lines([program], env={"PATH": case.directory})
