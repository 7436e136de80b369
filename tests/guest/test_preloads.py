# SPDX-License-Identifier: Apache-2.0
"""Beside other preloaded libraries that hook dlopen, before and after the guard: theirs are still
called, and the guard still answers."""


from support import guest, harness

FIRST = guest.binary("hook_first.so")
SECOND = guest.binary("hook_second.so")


class Preloads(guest.Case):
    def order(self, *libraries):
        result = harness.run([guest.STEPS, "load:libm.so.6", "ask", "nvml", "ask:libcuda.so",
                              "load:libcg-none.so"], guard=False, preload=libraries,
                             env={"CG_HOOK_LOG": "1"})
        lines = result.out.splitlines()
        return result, [line for line in lines if "(" in line], \
            [line for line in lines if "=" in line]

    def test_guard_works_before_and_after_other_preloads(self):
        unguarded, unguarded_calls, _ = self.order(FIRST, SECOND)
        unguarded.assert_reached(self)
        self.assertIn("first dlopen(libm.so.6)", unguarded_calls)
        self.assertIn("second dlopen(libcuda.so.1)", unguarded_calls)
        wanted = ["load=ok", "cuInit=100", "nvmlInit_v2=9", "cuInit=100", "load=failed"]
        for libraries in ((FIRST, harness.GUARD), (harness.GUARD, FIRST),
                          (FIRST, harness.GUARD, SECOND), (harness.GUARD, FIRST, SECOND),
                          (FIRST, SECOND, harness.GUARD)):
            with self.subTest(libraries):
                result, calls, answers = self.order(*libraries)
                self.assertEqual(result.rc, 0, result)
                self.assertEqual(answers, wanted, result)
                result.assert_untouched(self)
                self.assertIn(guest.DENIED % "steps", guest.lines_of(result.err))
                # Every request of the program went through every hook, in order.
                tags = [tag for library, tag in ((FIRST, "first"), (SECOND, "second"))
                        if library in libraries]
                self.assertEqual(len(calls), len(tags) * 5, result)
                for tag in tags:
                    mine = [call for call in calls if call.startswith(tag)]
                    self.assertEqual(mine[0], tag + " dlopen(libm.so.6)")
                    self.assertEqual(mine[-1], tag + " dlopen(libcg-none.so)")
                    is_after = libraries.index(harness.GUARD) < libraries.index(
                        FIRST if tag == "first" else SECOND)
                    name = harness.NULL_DRIVER_CUDA if is_after else "libcuda.so.1"
                    self.assertEqual(mine[1], "%s dlopen(%s)" % (tag, name))

    def test_guard_that_is_preloaded_twice_prints_one_message(self):
        """LD_PRELOAD names the same guard twice, as nested launchers do, or two copies of the
        guard."""
        other = harness.copy_install(self.path("lib"))
        for libraries in ((harness.GUARD, harness.GUARD), (harness.GUARD, other)):
            with self.subTest(libraries):
                result, _, answers = self.order(*libraries)
                self.assertEqual(answers[1:4], ["cuInit=100", "nvmlInit_v2=9", "cuInit=100"], result)
                self.untouched(result)
                self.assertEqual(len(guest.lines_of(result.err)), 1, result)
