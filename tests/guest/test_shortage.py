# SPDX-License-Identifier: Apache-2.0
"""A failure that passes (no free descriptor, no memory) refuses the driver while it lasts, and does not disarm
the guard for the rest of the process."""

from support import guest, harness

LINKED = guest.binary("steps_linked")
# The only free descriptors are gone at the first dlopen of all.
SHORT = ("nofile:3", "load:libm.so.6")


class Shortage(guest.Case):
    def values(self, result, key="cuInit"):
        self.assertEqual(result.rc, 0, result)
        return [line.split("=", 1)[1] for line in result.out.splitlines()
                if line.startswith(key + "=")]

    def test_control_shortage_begins_and_ends(self):
        result = self.steps(*SHORT, "grab", "nofile:max", "load:libm.so.6", "libc:libcuda.so.1",
                            guard=False)
        # There is a shortage, and it ends.
        self.assertEqual(self.values(result, "load"), ["failed", "ok"], result)
        self.assertEqual(self.values(result), ["0"], result)
        result.assert_reached(self)

    def test_the_next_dlopen_loads_the_null_drivers(self):
        """Whatever that one asks for: afterwards libc's own dlopen finds a null driver."""
        for library in ("libm.so.6", "libcg-does-not-exist.so", "libcuda.so.1"):
            for request in ("libcuda.so.1", "libcuda.so"):
                with self.subTest(library=library, request=request):
                    result = self.steps(*SHORT, "grab", "nofile:max", "load:" + library,
                                        "libc:" + request)
                    self.assertEqual(self.values(result), ["100"], result)
                    result.assert_untouched(self)
                    self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "steps"])

    def test_nvml_after_a_shortage_gets_the_null_driver(self):
        result = self.steps(*SHORT, "nofile:max", "nvml")
        self.assertEqual(self.values(result, "nvmlInit_v2"), ["9"], result)
        result.assert_untouched(self)

    def test_driver_after_many_failures_gets_the_null_driver(self):
        result = self.steps("nofile:3", *["load:libm.so.6", "ask"] * 20, "grab", "nofile:max",
                            "load:libm.so.6", "libc:libcuda.so.1")
        self.assertEqual(self.values(result), ["unavailable"] * 20 + ["100"], result)
        result.assert_untouched(self)

    def test_driver_is_refused_during_the_shortage(self):
        result = self.steps(*SHORT, "ask", "ask:libcuda.so", "nofile:max", "ask")
        self.assertEqual(self.values(result), ["unavailable", "unavailable", "100"], result)
        result.assert_untouched(self)

    def test_mapped_driver_is_refused_during_the_shortage(self):
        """In a program that is linked to the driver, ld.so needs no descriptor to answer. The null
        drivers are loaded when the program starts."""
        steps = [LINKED, *SHORT, "ask"]
        unguarded = harness.run(steps, guard=False)
        self.assertEqual(self.values(unguarded), ["0"], unguarded)
        result = harness.run(steps + ["nofile:max", "ask"])
        self.assertEqual(self.values(result), ["100", "100"], result)
        result.assert_untouched(self, linked=True)

    def test_driver_is_never_reached_during_a_shortage_of_memory(self):
        """The memory is too little for a page of the guard, almost enough for both null drivers, or
        between."""
        unguarded = self.steps("memory:0", "load:libm.so.6", "memory:max", "load:libm.so.6", "grab",
                               "libc:libcuda.so.1", guard=False)
        self.assertEqual(self.values(unguarded, "load"), ["failed", "ok"], unguarded)
        unguarded.assert_reached(self)
        for kib in (0, 8, 20, 40, 60, 100, 140, 180, 220, 260):
            with self.subTest(kib=kib):
                result = self.steps("memory:%d" % kib, "load:libm.so.6", "memory:max",
                                    "load:libm.so.6", "grab", "libc:libcuda.so.1", "nvml")
                self.assertEqual(self.values(result, "load"), ["failed", "ok"], result)
                self.assertEqual(self.values(result), ["100"], result)
                self.assertEqual(self.values(result, "nvmlInit_v2"), ["9"], result)
                result.assert_untouched(self)
                result = self.steps("memory:%d" % kib, "ask", "memory:max", "ask")
                self.assertEqual(self.values(result)[-1], "100", result)
                result.assert_untouched(self)
