# SPDX-License-Identifier: Apache-2.0
"""verify names the functions of a C++ program's native stack up to main, with a shared or a static
CUDA runtime. The message names the library that made the call."""

import json
import os
import re

import pytest

from support import fence, fixtures, harness, messages

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
BUILT = os.path.join(harness.BUILD, "tests", "stacks")
ASKS = "train::device_count()"
MAJORS = (12, 13)


def program(name):
    return os.path.join(BUILT, name)


class Callers(harness.DirectoryCase):
    def setUp(self):
        super().setUp()
        for major in MAJORS:
            for kind in ("", "static_"):
                if not os.path.exists(program("native_%s%d" % (kind, major))):
                    harness.skip(self, "built without CUDA's runtimes: scripts/fetch-cuda")

    def callers(self, *words, before=()):
        """Returns (the call, its file, its function) of each caller in verify's document. Fails
        unless the unguarded program enters the fake driver."""
        harness.run(words, guard=False, trace=False).assert_reached(self)
        document = self.path("verify.json")
        self.result = harness.run([*before, LAUNCHER, "verify", "--json", document, "--", *words],
                                  world="none", guard=False, trace=False)
        self.assertEqual(self.result.rc, 1, self.result)
        with open(document, encoding="utf-8") as stream:
            sites = [one for one in json.load(stream)["calls"] if one["fails"]]
        found = {}
        for one in sites:
            self.assertEqual(one["python"], [], self.result)
            self.assertTrue(one["python_missing"], self.result)
            frame = one["native"][0]
            self.offset = frame["offset"]
            self.symbols = [each["symbol"] for each in one["native"]]
            found[one["api"]] = (os.path.basename(frame["module"]), frame["symbol"])
        return found

    def test_stripped_program_has_the_offset_of_the_full_one(self):
        found = self.callers(program("native_stripped_13"))["cudaGetDeviceCount"]
        self.assertEqual(found, ("native_stripped_13", None), self.result)
        offset = self.offset
        self.callers(program("native_13"))
        self.assertEqual(self.offset, offset, self.result)

    def test_exported_names_replace_a_missing_symbol_table(self):
        found = self.callers(program("native_exports_13"))["cudaGetDeviceCount"]
        self.assertEqual(found, ("native_exports_13", ASKS), self.result)

    def test_caller_is_named_without_libstdcxx(self):
        self.assertEqual(self.callers(program("plain")), {"cuInit": ("plain", "ask_driver")})

    def test_caller_is_named_without_process_vm_readv(self):
        """Docker 20.10 refuses process_vm_readv by default, and /proc/PID/mem works instead."""
        found = self.callers(program("plain"), before=[fence.program("without"), "readv=1", "--"])
        self.assertEqual(found, {"cuInit": ("plain", "ask_driver")})
        self.assertIn("main", self.symbols, self.result)


make_case = fixtures.lent("case", Callers)


@pytest.mark.parametrize("name", ["native_%d", "native_fork_%d"])
@pytest.mark.parametrize("major", MAJORS)
def test_shared_runtime_names_the_program(case, major, name):
    name = name % major
    found = case.callers(program(name))
    assert found["cudaGetDeviceCount"] == (name, ASKS), str(case.result)
    assert "%s: %s\n" % (name, ASKS) in case.result.err
    assert "main" in case.symbols, str(case.result)


@pytest.mark.parametrize("major", MAJORS)
def test_static_runtime_names_the_program(case, major):
    name = "native_static_%d" % major
    assert case.callers(program(name))["cuInit"][0] == name, str(case.result)
    assert ASKS in case.symbols, str(case.result)
    assert "main" in case.symbols, str(case.result)


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("name", ["native_plugin_%d.so", "native_on_load_%d.so"])
def test_plugin_that_calls_is_named(case, name, major):
    found = case.callers(program("loads"), program(name % major))
    assert found["cudaGetDeviceCount"] == (name % major, ASKS), str(case.result)


@pytest.mark.parametrize("major", MAJORS)
def test_runtime_of_a_deepbind_plugin_is_named(case, major):
    name = program("native_plugin_%d.so" % major)
    found = case.callers(program("loads"), name, "deepbind")
    assert re.search(r"^libcudart\.so\.%d" % major, found["cuInit"][0]), str(case.result)
    assert ASKS in case.symbols, str(case.result)


@pytest.mark.parametrize(
    ("words", "name"),
    [((program("native_13"),), "native_13"), ((program("native_static_13"),), "native_static_13"),
     ((program("loads"), program("native_plugin_13.so")), "native_plugin_13.so"),
     ((program("loads"), program("native_plugin_13.so"), "deepbind"), "libcudart.so.13 in loads"),
     ((program("plain"),), "plain")])
def test_message_names_the_caller(words, name):
    result = harness.run(words, trace=False)
    callers = [message["asked_by"] for message in
               messages.find(result.err, "no_cuda", cause="FORCE_CPU")]
    assert callers == [name], str(result)
