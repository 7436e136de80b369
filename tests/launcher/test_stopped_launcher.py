# SPDX-License-Identifier: Apache-2.0
"""A launcher that is stopped stops no program from starting: another process answers. The result says
that it missed something."""


from support import launcher
from launcher import test_verify_tree

# The sleep ends only if programs cannot start. It is there before the launcher stops, because it is
# a program, too.
STOPPED = """
log="$1"
(trap 'kill $sleep; exit' TERM
 sleep 600 & sleep=$!
 echo $sleep >"$log.sleep"
 wait $sleep
 echo late >>"$log"
 kill -CONT $PPID) &
late=$!
until read -r pid <"$log.sleep" && read -r name <"/proc/$pid/comm" && [ $name = sleep ]; do
  :
done 2>/dev/null
kill -STOP $PPID
{}
echo started >>"$log"
kill -CONT $PPID
kill $late
wait $late
true
"""


class StoppedLauncher(test_verify_tree.Case):
    def stopped(self, body, options=()):
        """Runs a shell script while the launcher is stopped. Returns as tree() does."""
        log = self.make("log", "")
        script = self.make("script.sh", STOPPED.format(body))
        result, tree = self.tree(["sh", script, log], options)
        with open(log, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "started\n", result)
        return result, tree

    def test_programs_start_and_make_the_result_incomplete(self):
        result, _ = self.stopped("for i in $(seq 100); do /bin/true; done")
        self.ends(result, 3, "INCOMPLETE: ", "cudaguard was stopped for a time, or too slow, and missed ")

    def test_launcher_does_not_wait_for_a_call_that_the_other_process_has(self):
        """A busy machine delays the launcher between the look for a call and its receipt."""
        self.need("strace")
        done = self.unguarded("timeout", "-k1", "60", "strace", "-qq", "-o", "/dev/null", "-e",
                              "trace=ioctl", "-e", "inject=ioctl:delay_enter=200000",
                              launcher.LAUNCHER, "verify", "--", "sh", "-c", "/bin/true; true",
                              env=launcher.environment())
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("PASS: no CUDA use (2 processes checked)", done.stderr)

    def test_attempts_wait_and_fail(self):
        """An attempt decides the verdict, so it waits for the launcher."""
        program = self.make("ask.py", "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        result, _ = self.stopped("/usr/bin/env python3 %s & asks=$!; /bin/true; "
                                 "(sleep 1; kill -CONT $PPID) & wait $asks" % program)
        self.ends(result, 1, "FAIL: 1 line asked for CUDA", "ask.py:2 in <module>")
