# SPDX-License-Identifier: Apache-2.0
"""verify names the functions of a C++ program's native stack up to main, with a shared or a static
CUDA runtime. The message names the library that made the call."""

import os
import re

import pytest

from support import fence, fixtures, harness, messages, verified

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

    def frames(self, words, before=()):
        """Returns the native frames of each call that fails in verify's document. The unguarded
        program enters the fake driver."""
        harness.run(words, guard=False, trace=False).assert_reached(self)
        self.result, document = verified.documented(self, words, before=before)
        self.assertEqual(self.result.rc, 1, self.result)
        sites = [one for one in document["calls"] if one["fails"]]
        for one in sites:
            self.assertEqual(one["python"], [], self.result)
            self.assertTrue(one["python_missing"], self.result)
        return {one["api"]: one["native"] for one in sites}


make_case = fixtures.lent("case", Callers)


# What is loaded, the call, the file and the function that made it, and what the message names.
@pytest.mark.parametrize(("words", "call", "file", "function", "asked_by"), [
    *(row for major in MAJORS for row in (
        (["native_%d" % major], "cudaGetDeviceCount", "native_%d" % major, ASKS, None),
        (["native_fork_%d" % major], "cudaGetDeviceCount", "native_fork_%d" % major, ASKS, None),
        (["native_static_%d" % major], "cuInit", "native_static_%d" % major, None, None),
        (["loads", "native_plugin_%d.so" % major], "cudaGetDeviceCount",
         "native_plugin_%d.so" % major, ASKS, None),
        (["loads", "native_on_load_%d.so" % major], "cudaGetDeviceCount",
         "native_on_load_%d.so" % major, ASKS, None),
        (["loads", "native_plugin_%d.so" % major, "deepbind"], "cuInit", "libcudart.so.%d" % major,
         None, "libcudart.so.%d in loads" % major))),
    (["native_exports_13"], "cudaGetDeviceCount", "native_exports_13", ASKS, None),
    # Without libstdc++ there is no unwinder.
    (["plain"], "cuInit", "plain", "ask_driver", None)])
def test_caller_is_named(case, words, call, file, function, asked_by):
    words = [program(word) if word != "deepbind" else word for word in words]
    frames = case.frames(words)[call]
    assert os.path.basename(frames[0]["module"]).startswith(file), str(case.result)
    symbols = [frame["symbol"] for frame in frames]
    assert function in (None, symbols[0]), str(case.result)
    assert (function or ASKS) in symbols and "main" in symbols, str(case.result)
    if function:
        assert "%s: %s\n" % (file, function) in case.result.err
    guarded = harness.run(words, trace=False)
    assert messages.find(guarded.err, "no_cuda", cause="FORCE_CPU", asked_by=re.compile(
        re.escape(asked_by or file))), str(guarded)


def test_stripped_program_has_the_offset_of_the_full_one(case):
    stripped, full = (case.frames([program("native%s_13" % kind)])["cudaGetDeviceCount"][0]
                      for kind in ("_stripped", ""))
    assert os.path.basename(stripped["module"]) == "native_stripped_13"
    assert (stripped["symbol"], stripped["offset"]) == (None, full["offset"])


def test_caller_is_named_without_process_vm_readv(case):
    """Docker 20.10 refuses process_vm_readv by default, and /proc/PID/mem works instead."""
    frames = case.frames([program("plain")], before=[fence.program("without"), "readv=1", "--"])
    assert [frames["cuInit"][0]["symbol"], frames["cuInit"][1]["symbol"]] == ["ask_driver", "main"]
