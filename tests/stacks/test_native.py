# SPDX-License-Identifier: Apache-2.0
"""The native stack: verify names function and library of a C++ program that asked for CUDA, however
it comes to the runtime, and says so where there is only the caller to be had."""

import json
import os
import re

import harness

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
BUILT = os.path.join(harness.BUILD, "tests", "stacks")
BEGIN = "train::begin(train::Settings const&)"
FUNCTIONS = ["train::device_count()", BEGIN]
MAJORS = (12, 13)


def program(name):
    return os.path.join(BUILT, name)


class Native(harness.FolderCase):
    def setUp(self):
        super().setUp()
        for major in MAJORS:
            for kind in ("", "static_"):
                if not os.path.exists(program("native_%s%d" % (kind, major))):
                    harness.skip(self, "built without CUDA's runtimes: scripts/fetch-cuda")

    def touchers(self, *words):
        """Who touched CUDA, as verify's document has it. Bare it enters the fake driver."""
        harness.run(words, guard=False, trace=False).assert_reached(self)
        document = self.path("verify.json")
        self.result = harness.run([LAUNCHER, "verify", "--json", document, "--", *words],
                                  world="none", guard=False, trace=False)
        self.assertEqual(self.result.rc, 1, self.result)
        with open(document, encoding="utf-8") as stream:
            touchers = [one for one in json.load(stream)["touchers"] if one["fails"]]
        self.assertTrue(touchers, self.result)
        for one in touchers:
            self.assertEqual(one["python"], [], self.result)
            self.assertTrue(one["python_missing"], self.result)
        return touchers

    def names(self, one, *functions, file):
        """Its stack has these functions of the file, in this order."""
        found = [row["symbol"] for row in one["native"]
                 if os.path.basename(row["module"]) == file and row["symbol"] in functions]
        self.assertEqual(found, list(functions), (one, self.result))
        self.assertIsNone(one["native_missing"], self.result)
        if file == one["library"]:  # a long stack is cut in the middle
            self.assertIn("%s: %s\n" % (file, functions[0]), self.result.err)

    def test_shared_runtime(self):
        for major in MAJORS:
            for name in ("native_%d" % major, "native_fork_%d" % major):
                with self.subTest(program=name):
                    for one in self.touchers(program(name)):
                        self.names(one, *FUNCTIONS, "main", file=name)

    def test_static_runtime(self):
        """The runtime's own functions stand in front of the program's, in the same file."""
        for major in MAJORS:
            name = "native_static_%d" % major
            with self.subTest(program=name):
                for one in self.touchers(program(name)):
                    self.assertEqual((one["api"], one["library"]), ("cuInit", name), self.result)
                    self.names(one, *FUNCTIONS, "main", file=name)

    def test_plugin(self):
        for major in MAJORS:
            for words in ((), ("deepbind",)):
                with self.subTest(major=major, words=words):
                    name = "native_plugin_%d.so" % major
                    for one in self.touchers(program("loads"), program(name), *words):
                        self.names(one, *FUNCTIONS, "plugin_begin", file=name)
                        self.names(one, "main", file="loads")

    def test_constructor(self):
        for major in MAJORS:
            for words in ((), ("deepbind",)):
                with self.subTest(major=major, words=words):
                    name = "native_on_load_%d.so" % major
                    for one in self.touchers(program("loads"), program(name), *words):
                        functions = FUNCTIONS + ["(anonymous namespace)::on_load()"]
                        self.names(one, *functions, file=name)
                        self.names(one, "main", file="loads")

    def test_stripped(self):
        """No names: the file and the offset in it, which are those of the file with names."""
        for one in self.touchers(program("native_stripped_13")):
            rows = [row for row in one["native"] if row["module"] == program("native_stripped_13")]
            self.assertGreaterEqual(len(rows), 3, self.result)
            self.assertEqual({row["symbol"] for row in rows}, {None}, self.result)
            offsets = {"%x" % row["offset"] for row in rows}
        for one in self.touchers(program("native_13")):
            rows = [row for row in one["native"] if row["module"] == program("native_13")]
            self.assertEqual({"%x" % row["offset"] for row in rows}, offsets, self.result)

    def test_exported_names(self):
        """Stripped, but with a dynamic symbol table that has the functions."""
        for one in self.touchers(program("native_exports_13")):
            self.names(one, *FUNCTIONS, "main", file="native_exports_13")

    def test_no_unwinder(self):
        """A program without libgcc_s: the caller, and why there are no others."""
        one, = self.touchers(program("plain"))
        self.assertEqual([row["symbol"] for row in one["native"]], ["ask_driver"], self.result)
        self.assertIn("libgcc_s", one["native_missing"])
        self.assertIn("plain: ask_driver\n", self.result.err)
        self.assertIn(one["native_missing"], self.result.err)

    def test_coroutine(self):
        """Not on a coroutine's stack: the unwinder reads what its outermost return address points
        to, which may be anything."""
        for words in (("own",), ("shared", program("_greenlet.test.so"))):
            with self.subTest(words=words):
                one, = self.touchers(program("coroutine"), *words)
                self.assertEqual(one["native_missing"], "coroutines", self.result)
                self.assertIn("asked by coroutine)", self.line(program("coroutine"), *words))

    def test_unready(self):
        """An unwinder that another thread's ld.so, or this one's, has not yet made ready is not
        called: its references lead nowhere. The control: once it is ready, it is."""
        words = (program("unready"), program("libgcc_s.so.test"))
        harness.run(words, guard=False, trace=False).assert_reached(self)
        result = harness.run(words, trace=False, env={"CUDAGUARD_REPORT": self.path("report")})
        self.assertEqual((result.rc, result.out), (0, "100\nunwound\n100\n"), result)

    def line(self, *words):
        result = harness.run(words, trace=False)
        self.assertEqual(result.rc, 0, result)
        return result.err

    def test_line(self):
        """The guard's own line has the innermost object that is not CUDA's."""
        for words, name in (((program("native_13"),), "native_13"),
                            ((program("native_static_13"),), "native_static_13"),
                            ((program("loads"), program("native_plugin_13.so")),
                             "native_plugin_13.so"),
                            ((program("loads"), program("native_on_load_12.so")),
                             "native_on_load_12.so"),
                            ((program("plain"),), "plain")):
            with self.subTest(words=words):
                result = harness.run(words, trace=False)
                said = re.findall(r"no CUDA here \(FORCE_CPU; asked by ([^;)]+)\)", result.err)
                self.assertEqual(said, [name], result)


if __name__ == "__main__":
    harness.main(sandboxed=True)
