# SPDX-License-Identifier: Apache-2.0
"""A launcher that is stopped stops no program: another process answers. The result says that it missed
something."""

from support import fence, launcher
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
kill -{stop} $PPID
{body}
echo started >>"$log"
kill -CONT $PPID
kill $late
wait $late
true
"""


class StoppedLauncher(test_verify_tree.Case):
    def stopped(self, body, stop="STOP"):
        """Runs a shell script while the launcher is stopped. Returns as tree() does."""
        log = self.make("log", "")
        script = self.make("script.sh", STOPPED.format(stop=stop, body=body))
        result, tree = self.tree(["sh", script, log])
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

    def test_attempts_fail_and_make_the_result_incomplete(self):
        """The controls: the same attempts while the launcher is not stopped."""
        program = self.make("ask.py", "import ctypes\n"
                                      "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 100\n")
        for ask, place in (("python3 " + program, "ask.py:2 in <module>"),
                           (fence.program("asks_static") + " ask", "bypassing the guard")):
            result, _ = self.stopped(ask + " || exit", stop="CONT")
            self.ends(result, 1, "FAIL: ", place)
            result, tree = self.stopped(ask + " || exit")
            block = self.ends(result, 3, "INCOMPLETE: no CUDA use seen")
            self.assertNotIn(place, block)
            self.assertRegex(" ".join(tree["doubts"]), "cudaguard was stopped for a time, or too slow, "
                             r"and missed \d+ calls of programs; run it again")
