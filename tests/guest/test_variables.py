# SPDX-License-Identifier: Apache-2.0
"""A library that has variables called like the guard's exports gets its own when it is loaded by
dlopen: it must not write into the guard's code."""

from support import box, guest, harness, policies

MAIN = guest.binary("variables_main")
IMPORTS = guest.binary("variables_imports")
LIBRARY = guest.binary("variables.so")
RUNTIME = guest.binary("variables_runtime.so")
SEGMENTATION_FAULT = 128 + 11


class Variables(guest.Case):
    def test_library_works_under_force_cpu_and_off(self):
        self.assertEqual(harness.run([MAIN, LIBRARY], guard=False).answers, {"begin": "0"})
        result = harness.run([MAIN, LIBRARY])
        self.assertEqual((result.rc, result.answers), (0, {"begin": "100"}), result)
        result.assert_untouched(self)
        self.assertEqual(guest.lines_of(result.err),
                         [guest.NO_GPU % "variables.so", guest.DENIED % "variables.so"], result)
        for library in (LIBRARY, RUNTIME):
            result = harness.run([MAIN, library], env={"CUDAGUARD_POLICY": "OFF"})
            self.assertEqual((result.rc, result.answers, result.err), (0, {"begin": "0"}, ""),
                             result)

    def test_import_that_is_bound_at_start_stays_guarded(self):
        """Then the names stay, too, and such a library is a documented limit."""
        result = harness.run([IMPORTS, guest.EMPTY, "ask"])
        self.assertEqual(result.answers["import"], "100", result)
        result.assert_untouched(self)
        result = harness.run([IMPORTS, LIBRARY])
        self.assertEqual(result.rc, SEGMENTATION_FAULT, result)
        result.assert_untouched(self)

    def test_limit_variables_crash_if_the_exports_are_needed(self):
        """Under FORCE_CPU the runtime's names stay, as plug-ins that are linked to it are loaded later;
        under the policies that allow CUDA, all of them."""
        result = harness.run([MAIN, RUNTIME], guard=False)
        self.assertEqual((result.rc, result.answers), (0, {"begin": "0"}), result)
        self.assertEqual(harness.run([MAIN, RUNTIME]).rc, SEGMENTATION_FAULT)
        for policy in policies.ALLOWING:
            result = harness.run([MAIN, LIBRARY], env={"CUDAGUARD_POLICY": policy})
            self.assertEqual(result.rc, SEGMENTATION_FAULT, result)

    def test_limit_program_linked_at_start_crashes(self):
        """`cudaguard run` refuses such a program: tests/launcher."""
        program = guest.binary("variables_linked")
        self.assertEqual(harness.run([program], guard=False).answers, {"begin": "0"})
        self.assertEqual(harness.run([program]).rc, SEGMENTATION_FAULT)


def test_limit_only_a_library_of_the_start_loads_the_driver_it_is_linked_to():
    """Without the guard, a library that the program loads later does so, too."""
    library = guest.binary("needs_driver.so")
    look = "lib.noload=libcuda.so.1"
    for guard, later in ((False, "set"), (True, "null")):
        result = box.run([look, "lib.open=" + library, look], guard=guard)
        assert result.out.split() == ["lib.noload=null", "lib.open=set", "lib.noload=" + later]
        assert box.run([look], guard=guard, preload=(library,)).out == "lib.noload=set\n"
