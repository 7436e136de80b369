# SPDX-License-Identifier: Apache-2.0
"""A program that locked itself in with seccomp. The filter allows what the unguarded program needs
to load and ask the same libraries, and the few calls that the guard adds: no kill. Where those
fail with EPERM: no crash, and guarded."""

import os
import re
import subprocess

from support import guest, harness

STRICT = guest.binary("strict")
# What the guard adds to the system calls of a program that dlopens and asks the driver; docs/limits.md.
# Always: madvise (its page), newfstatat (are the null drivers there and whole).
# For a line or a report: getpid, fcntl (may descriptor 2 be written to), write; for a report file
# also getppid, gettid, clock_gettime, readlinkat, rt_sigprocmask.
ADDED = {"madvise", "newfstatat", "fstat", "read", "close", "openat", "mmap", "munmap", "getpid",
         "fcntl", "write", "rt_sigprocmask"}
ADDED_FOR_REPORT = {"getppid", "gettid", "readlinkat", "clock_gettime", "rt_sigprocmask"}
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
STACKED = [guest.PYTHON, "-B", os.path.join(PROGRAMS, "lock_in.py"), guest.binary("lock_in.so")]
CALL = re.compile(r"^(?:\d+\s+)?(\w+)\(")


class Seccomp(guest.Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(STRICT):
            harness.skip(self, "built without libseccomp (libseccomp-dev)")

    def calls_after_lock(self, guard, env=None, action="none-loaded", argv=(STRICT,)):
        """The names of the calls between the program's "locked" and its exit, by strace, with the
        null drivers in the driver's place when unguarded: same libraries, same calls, no guard."""
        log = self.path("log")
        environment = {"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR, **(env or {})}
        if guard:
            environment["LD_PRELOAD"] = harness.GUARD
        words = ["env", "-i"] + ["%s=%s" % item for item in environment.items()]
        done = subprocess.run(["strace", "-qq", "-e", "signal=none", "-o", log, "--", *words, *argv,
                               *([action] if action else [])], capture_output=True, text=True,
                              check=True, env={"PATH": os.environ["PATH"]})
        self.assertIn("cuInit=100", done.stdout)
        with open(log, encoding="utf-8") as stream:
            text = stream.read()
        after = text[text.index('write(1, "locked'):]
        return {m[1] for m in map(CALL.match, after.splitlines()) if m}

    def run_strict(self, action, names, guard=True, env=None):
        """In a world without driver, so that only the null drivers can answer."""
        return harness.run([STRICT, action, *sorted(names)], world="none", guard=guard, trace=False,
                           env={"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR, **(env or {})})

    def needed(self):
        return self.calls_after_lock(False) | {"exit_group", "rt_sigreturn"}

    def test_guard_adds_only_documented_system_calls(self):
        """docs/limits.md has the list."""
        unguarded = self.calls_after_lock(False)
        self.assertLessEqual({"openat", "mmap", "write", "exit_group"}, unguarded)
        unguarded_early = self.calls_after_lock(False, action="none-early")
        # A program that had loaded a library before, and one that had not.
        late = self.calls_after_lock(True) - unguarded
        early = self.calls_after_lock(True, action="none-early") - unguarded_early
        self.assertLessEqual(late | early, ADDED)
        self.assertLessEqual({"getpid", "fcntl"}, late)  # the line is there
        self.assertLessEqual({"madvise"}, early)
        report = self.calls_after_lock(True,
                                       {"CUDAGUARD_REPORT": self.path("report")}) - unguarded - late
        self.assertLessEqual(report, ADDED | ADDED_FOR_REPORT)
        self.assertLessEqual(ADDED_FOR_REPORT - unguarded - late - {"rt_sigprocmask"}, report)
        off = self.calls_after_lock(True, {"CUDAGUARD_POLICY": "OFF"},
                                    "none-early") - unguarded_early
        self.assertLessEqual(off, {"madvise"})
        print("\nadded by the guard: early %s, late %s, for a report %s, under OFF %s" %
              (sorted(early), sorted(late), sorted(report), sorted(off)))

    def test_control_strict_filter_kills_an_unlisted_call(self):
        names = self.needed() - {"mmap"}
        result = self.run_strict("kill-loaded", names, guard=False)
        self.assertEqual(result.rc, 128 + 31, result)  # SIGSYS

    def test_strict_filter_does_not_kill_the_program(self):
        names = self.needed()
        unguarded = self.run_strict("kill-loaded", names, guard=False)
        self.assertEqual((unguarded.rc, unguarded.out), (0, "locked\ncuInit=100 nvml=9\n"),
                         unguarded)
        for action in ("kill-loaded", "kill-early"):
            for log in ("off", "deny", "all"):
                with self.subTest(action=action, log=log):
                    result = self.run_strict(action, names | ADDED, env={"CUDAGUARD_LOG": log})
                    self.assertEqual((result.rc, result.out),
                                     (0, "locked\ncuInit=100 nvml=9\n"), result)
                    count = {"off": 0, "deny": 1, "all": 2}[log]
                    self.assertEqual(len(guest.lines_of(result.err)), count, result)

    def stacked(self):
        """(the calls that it needs unguarded, what the guard adds if Python's frames are reported)"""
        env = {"CUDAGUARD_REPORT": self.path("report")}
        unguarded = self.calls_after_lock(False, action=None, argv=STACKED)
        added = self.calls_after_lock(True, env, None, STACKED) - unguarded
        os.remove(self.path("report"))
        return unguarded | {"exit_group", "rt_sigreturn"}, added

    def test_python_frames_add_no_call(self):
        self.assertLessEqual(self.stacked()[1], ADDED | ADDED_FOR_REPORT)

    def test_strict_filter_does_not_kill_while_python_frames_are_read(self):
        os.chmod(self.directory, 0o777)
        names, _ = self.stacked()
        control = harness.run([*STACKED, *sorted(names - {"mmap"})], world="none", guard=False,
                              trace=False, env={"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR})
        self.assertEqual(control.rc, 128 + 31, control)  # SIGSYS
        names |= ADDED | ADDED_FOR_REPORT
        result = harness.run([*STACKED, *sorted(names)], world="none", trace=False,
                             env={"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR,
                                  "CUDAGUARD_REPORT": self.path("report")})
        self.assertEqual(result.rc, 0, result)
        self.assertTrue(result.out.startswith("locked\ncuInit=100"), result)
        record = harness.records(self.path("report"))[0]
        self.assertEqual([row["function"] for row in record["python"]], ["ask", "<module>"], record)

    def test_off_adds_one_call(self):
        result = self.run_strict("kill-early", self.needed() | {"madvise"},
                                 env={"CUDAGUARD_POLICY": "OFF"})
        self.assertEqual((result.rc, result.out), (0, "locked\ncuInit=100 nvml=9\n"), result)
        self.assertEqual(result.err, "")

    def test_filter_with_eperm_keeps_the_program_guarded(self):
        """No crash and guarded, also where the guard cannot even load its null drivers."""
        for action, names in (("eperm-loaded", self.needed()), ("eperm-early", self.needed()),
                              ("eperm-loaded", {"write", "exit_group"}),
                              ("eperm-early", {"write", "exit_group"})):
            with self.subTest(action=action, names=len(names)):
                result = harness.run([STRICT, action, *sorted(names)], trace=False)
                self.assertEqual(result.rc, 0, result)
                self.assertTrue(result.out.startswith("locked\ncuInit="), result)
                self.assertNotIn("cuInit=0", result.out)
                result.assert_untouched(self)

    def test_control_unguarded_program_reaches_the_fake_driver(self):
        names = self.needed() | {"lseek", "fcntl"}
        harness.run([STRICT, "none", *sorted(names)], guard=False,
                    trace=False).assert_reached(self)
