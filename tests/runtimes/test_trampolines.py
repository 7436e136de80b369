# SPDX-License-Identifier: Apache-2.0
"""Programs that export cu* trampolines of their own, as TensorFlow does, do not recurse."""

from support import harness

PROGRAMS = ("trampolines", "trampolines_linked")
OFF = {"CUDAGUARD_POLICY": "OFF"}


class Trampolines(harness.Case):
    """The trampolines are in the program itself, or in a library that it is linked to."""

    def worlds(self):
        return ("fake", "real") if harness.have_real_driver() else ("fake",)

    def test_trampolines_get_the_guards_answers(self):
        for name in PROGRAMS:
            unguarded = harness.run([harness.program(name)], guard=False)
            unguarded.assert_reached(self)
            self.assertEqual(unguarded.answers["cuInit"], "0", unguarded)
            for world in self.worlds() + ("none",):
                with self.subTest(program=name, world=world):
                    result = harness.run([harness.program(name)], world=world)
                    self.assertEqual(result.rc, 0, result)
                    self.assertEqual(result.answers["cuInit"], "100", result)
                    self.assertEqual(result.answers["countRc"], "3", result)
                    self.assertEqual(result.answers["version"], "99990", result)
                    self.assertEqual(result.answers["procRc"], "0", result)
                    self.assertEqual(result.answers["procInit"], "100", result)
                    result.assert_untouched(self)

    def test_trampolines_reach_the_driver_once_under_off(self):
        """As without the guard, each call goes once through the trampoline and once to the driver.
        """
        for name in PROGRAMS:
            for world in self.worlds():
                with self.subTest(program=name, world=world):
                    unguarded = harness.run([harness.program(name)], world=world, guard=False)
                    unguarded.assert_reached(self)
                    guarded = harness.run([harness.program(name)], world=world, env=OFF)
                    self.assertEqual(guarded.rc, 0, guarded)
                    self.assertEqual(guarded.out, unguarded.out, guarded)
                    self.assertEqual(guarded.err, unguarded.err, guarded)
                    self.assertEqual(guarded.fake_calls, unguarded.fake_calls, guarded)
                    self.assertEqual(guarded.device_opens, unguarded.device_opens, guarded)

    def test_linked_program_reaches_the_driver_under_off(self):
        """For a program linked to the driver, OFF forwards the guard's own entries to the driver.
        """
        for program, ways in (("linked_cuda", ("plt", "proc", "proc1", "dlopen", "devname",
                                               "default", "next", "self")),
                              ("linked_nvml", ("plt", "dlopen", "default", "next", "self"))):
            for way in ways:
                for world in self.worlds():
                    with self.subTest(program=program, way=way, world=world):
                        argv = [harness.program(program), way]
                        unguarded = harness.run(argv, world=world, guard=False)
                        unguarded.assert_reached(self)
                        guarded = harness.run(argv, world=world, env=OFF)
                        self.assertEqual((guarded.rc, guarded.out, guarded.err),
                                         (unguarded.rc, unguarded.out, unguarded.err), guarded)
                        self.assertEqual(guarded.fake_calls, unguarded.fake_calls, guarded)
                        self.assertEqual(guarded.device_opens, unguarded.device_opens, guarded)
