# SPDX-License-Identifier: Apache-2.0
"""What `doctor PROGRAM` reports about the libraries that come with a program: the driver, names
like the guard's, sanitizers. Each verdict is compared with what the program does with the fake
driver."""

import os
import re

import pytest

from support import doctor_program, fixtures, harness, launcher


class Linked(doctor_program.Case):

    def test_linked_program_without_a_driver_works_under_run(self):
        program = harness.program("linked_cuda")
        self.assertEqual(self.verdict(program, "yes", [], world="none").facts("linked to"),
                         ["libcuda.so.1: not found"])
        self.assertEqual(self.guarded([program], "preload", world="none").rc, 127)
        self.assertEqual(self.guarded([program], "run", world="none").answers["cuInit"], "100")

    def test_program_that_links_the_driver_by_a_library_is_guarded(self):
        program = harness.program("linked_middle")
        library = harness.program("middle.so")
        self.assertEqual(self.verdict(program, "yes", []).facts("linked to"),
                         ["libcuda.so.1: " + os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")])
        self.assert_answers([program, "handle", library], "0", "100", "100")

    def test_driver_linked_by_a_path_is_guarded_in_part(self):
        """ld.so does not see that the null driver is the same library, so `run` maps both. The calls
        that come first lead to the guard, and the driver's other functions stay the program's."""
        stub = os.path.join(harness.FAKES, "unnamed", "libcuda.so.1")
        program = launcher.program("ask_linked_path")
        line = self.verdict(program, "in part", ["linked_file"]).line
        maps = re.search("ld.so maps (.*) as well as the null driver", line)
        self.assertTrue(maps and os.path.samefile(maps[1], stub), line)
        self.assert_answers([program, launcher.program("driver_user_path.so")], "0", "100", "100")
        self.assert_answers([launcher.program("linked_path")], "0", "100", "100")

    def test_driver_linked_by_the_dev_name_is_guarded_in_part(self):
        """A program needs a driver without a SONAME by the name that the driver was linked by."""
        program = launcher.program("linked_dev")
        answer = self.verdict(program, "in part", ["linked_file"])
        self.assertEqual(answer.facts("linked to")[0].split(":")[0], "libcuda.so")
        self.assert_answers([program], "0", "100", "100")

    def test_program_that_is_linked_to_opencl_is_guarded_in_part(self):
        program = launcher.program("linked_opencl")
        self.verdict(program, "in part", ["linked_refused"])
        for way in ("unguarded", "run", "preload"):
            self.assertIn("opencl", self.guarded([program], way).init_calls(), way)

    def test_program_that_is_linked_to_libnvidia_cfg_is_guarded_in_part(self):
        """ld.so maps the library and does not ask the guard."""
        program = launcher.program("linked_cfg")
        self.verdict(program, "in part", ["linked_refused"])


make_linked_case = fixtures.lent("linked_case", Linked)


@pytest.mark.parametrize(("name", "library"), [("linked_cuda", "libcuda.so.1"),
                                               ("linked_nvml", "libnvidia-ml.so.1")])
def test_program_that_is_linked_to_the_driver_is_guarded(linked_case, name, library):
    program = harness.program(name)
    path = os.path.join(harness.FAKE_DRIVER, library)
    assert linked_case.verdict(program, "yes",
                               []).facts("linked to") == ["%s: %s" % (library, path)]
    linked_case.assert_stopped([program], "run")
    result = linked_case.guarded([program], "preload", trace=True)
    assert (result.driver_files, result.init_calls()) == ([path], []), str(result)


class RunPaths(doctor_program.Case):

    def test_program_that_is_linked_to_a_copy_is_guarded(self):
        program = launcher.program("linked_copy")
        linked, = self.verdict(program, "yes", [], world="none").facts("linked to")
        name, _, path = linked.partition(": ")
        self.assertEqual(name, "libcuda.so.1")
        self.assertTrue(os.path.samefile(path, launcher.program("copy/libcuda.so.1")), linked)
        self.assert_stopped([program], "run", world="none")


make_run_paths = fixtures.lent("run_paths", RunPaths)


@pytest.mark.parametrize("path", ["origin", "braces", "path"])
@pytest.mark.parametrize("kind", ["enable", "disable"])
def test_run_path_to_a_copy_of_the_driver_is_guarded(run_paths, kind, path):
    """The copy is the only driver. The program finds it without the guard, and not under the
    guard."""
    program = launcher.program("ask_%s_%s" % (path, kind))
    run_paths.verdict(program, "yes", [], world="none")
    run_paths.assert_stopped([program, "libcuda.so.1"], "run", "preload", world="none")


class Names(doctor_program.Case):

    def test_functions_with_the_drivers_names_are_replaced(self):
        """What the trampolines open is the null driver."""
        program = harness.program("trampolines")
        self.verdict(program, "yes", [])
        self.assert_stopped([program], "run", "preload")
        program = launcher.program("functions_user")
        self.verdict(program, "yes", [])
        self.assert_answers([program], "5", "100", "100")

    def test_program_with_a_dlopen_of_its_own_is_guarded_in_part(self):
        program = launcher.program("own_dlopen")
        self.verdict(program, "in part", ["own_dlopen"])
        driver = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
        self.assert_answers([program, driver, "libc.so.6"], "0", "0", "0")
        self.assert_answers([program, driver], "0", "100", "100")


class Sanitizers(doctor_program.Case):
    QUIET = {"ASAN_OPTIONS": "detect_leaks=0"}

    def test_gcc_address_sanitizer_works_under_run_alone(self):
        self.need("gcc")
        program = self.compile("ask", "ask.c", "-fsanitize=address")
        self.verdict(program, "yes", [])
        self.assert_stopped([program, "libcuda.so.1"], "run", env=self.QUIET)
        result = self.guarded([program], "preload", env=self.QUIET)
        self.assertNotEqual(result.rc, 0)
        self.assertIn("ASan runtime does not come first", result.err)
