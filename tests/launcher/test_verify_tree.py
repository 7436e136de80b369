# SPDX-License-Identifier: Apache-2.0
"""verify finds each process of the tree that asks for CUDA, however it was started. It lists the
unguarded processes with the reason, and reports if records may be missing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest.mock

from support import harness, launcher, verified
from launcher import test_observe_signals
from support.observed import box

ATTEMPT = "ctypes.CDLL('libcuda.so.1').cuInit(0)"
TRACE = ["--trace"]
FILE = ["--fence=off"]  # without a filter the records come by a file
# So long that a look from time to time finds it.
LONG = "1"


class Case(verified.Case):
    def tree(self, words, options=(), **more):
        """Returns (the result, the tree in verify's JSON)."""
        path = self.path("verify.json")
        result = self.verify(words, ["--json", path, *options], **more)
        try:
            with open(path, encoding="utf-8") as stream:
                self.document = json.load(stream)
        except (FileNotFoundError, ValueError):
            self.fail("no document:\n%s" % result)
        return result, self.document["tree"]

    def reasons(self, tree):
        """{command: reason}"""
        return {os.path.basename(one["command"]): one["reason"] for one in tree["unguarded"]}

    def python(self, text, name="program.py"):
        return [sys.executable, self.make(name, text)]


class Starts(Case):
    """verify finds every attempt. Without the guard the program reaches the driver."""

    def finds(self, words, attempting="1", by=" by "):
        unguarded = harness.run(words, world="none", guard=False, trace=False,
                                env=box.environment())
        self.assertIn("cuInit:initialised", unguarded.fake_calls, unguarded)
        for options in ([], TRACE):
            with self.subTest(options=options):
                result, tree = self.tree(words, options)
                block = self.ends(result, 1, ", in " + attempting + " of ", "    cuInit" + by)
                wanted = "all_guarded" if options else "none_seen"
                self.assertEqual((tree["value"], tree["doubts"]), (wanted, []), block)

    def test_attempt_of_a_thread_is_found(self):
        self.finds([box.program("open"), "thread=t", "cu.init", "end"])

    def test_attempt_of_a_program_that_a_thread_starts_is_found(self):
        self.finds([box.program("open"), "thread=t", "spawn=s", "cu.init", "end", "end"])

    def test_attempt_of_a_forked_grandchild_is_found(self):
        self.finds([box.program("open"), "fork=a", "fork=b", "cu.init", "end", "end"])

    def test_attempt_of_a_subprocess_is_found(self):
        self.finds(self.python("import subprocess\nsubprocess.run([%r, 'cu.init'], check=True)\n"
                               % box.program("open")))

    def test_attempt_of_a_fork_servers_worker_is_found(self):
        self.finds(self.python(
            "import ctypes, multiprocessing\n"
            "def attempt():\n    %s\n"
            "if __name__ == '__main__':\n"
            "    worker = multiprocessing.get_context('forkserver').Process(target=attempt)\n"
            "    worker.start()\n    worker.join()\n" % ATTEMPT), by=" by ctypes/cffi")

    def test_attempt_of_a_daemon_is_found(self):
        """The daemon outlives the program in a session of its own, and its parent has ended."""
        self.finds(self.python(
            "import ctypes, os, time\n"
            "program = os.getpid()\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork() == 0:\n"
            "        while os.path.exists('/proc/%%d' %% program): time.sleep(0.01)\n"
            "        %s\n"
            "    os._exit(0)\n"
            "os.wait()\n" % ATTEMPT), by=" by ctypes/cffi")

    def test_attempt_after_a_threads_vfork_and_exec_is_found(self):
        program = launcher.program("execs")
        self.finds([program, box.program("open"), "cu.init"])

    def test_one_attempt_among_a_thousand_processes_is_found(self):
        count = 1000 if harness.FULL else 300
        script = ('i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done; "$0" cu.init; '
                  '/bin/true' % (count - 1))
        words = ["sh", "-c", script, box.program("open")]
        for options in ([], TRACE):
            result, tree = self.tree(words, options)
            headline = "FAIL: 1 place asked for CUDA, in 1 of {:,} processes\n".format(count + 2)
            block = self.ends(result, 1, headline)
            self.assertEqual((tree["start_records"], tree["doubts"]), (count + 2, []), block)
            self.assertEqual(tree["value"], "all_guarded" if options else "none_seen", block)

    def test_limit_trace_does_not_report_untraced_children(self):
        """ptrace reports no child that was made with CLONE_UNTRACED."""
        program = launcher.program("untraced")
        for flag, value in ((0, "all_guarded"), (0x00800000, "none_seen")):
            result, tree = self.tree([program, flag, LONG], TRACE)
            self.assertEqual((result.rc, tree["value"], tree["heard"]), (0, value, 2), result)

    def test_trace_reports_every_short_process(self):
        """The processes may live as short as they like."""
        count = 700
        env = "env -i LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" "
        script = ("i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done; " % (count - 1) +
                  env + "/bin/true")
        result, tree = self.tree(["sh", "-c", script], TRACE)
        # The other one is sh; env is one of them until it becomes true.
        self.assertEqual(tree["start_records"], count + 1, result)
        self.assertGreaterEqual(tree["seen"], count + 1, result)
        self.assertEqual(self.reasons(tree), {"true": "its environment has no LD_PRELOAD"}, result)


class Unguarded(Case):
    def both(self, script, reason, *words, driver=False, more=()):
        """A shell's script in which one process is not guarded; its last word is how long to live.
        By looks, and by --trace, where it may be as short as it likes."""
        for options in ([], TRACE):
            with self.subTest(script=script, options=options):
                length = LONG if not options or driver else "0"
                result, tree = self.tree(["sh", "-c", script, *words, length], [*options, *more])
                self.assertEqual(tree["value"], "unguarded", result)
                self.assertEqual([one["reason"] for one in tree["unguarded"]], [reason], result)
                self.assertEqual(tree["unguarded"][0]["has_driver"], driver, result)
                self.assertEqual(result.rc, 1 if driver else 0, result)
                self.assertIn("\n  tree: 1 process not guarded (", result.err)
                block = self.ends(result, result.rc, "")
                text = reason + ("; it has the driver open, which counts as a CUDA attempt" * driver)
                self.assertIn(": " + text, " ".join(block.split()))

    def test_guarded_processes_are_not_listed(self):
        """The control."""
        for options, value in (([], "none_seen"), (TRACE, "all_guarded")):
            result, tree = self.tree(["sh", "-c", "sleep $0; exec sleep 0", LONG], options)
            self.assertEqual((tree["value"], tree["unguarded"], tree["doubts"]), (value, [], []),
                             result)
            self.assertEqual(tree["seen"], 2, result)

    def test_process_with_another_environment_is_listed(self):
        for script, reason in harness.sample((
                ("env -i sleep $0", "its environment has no LD_PRELOAD"),
                ("unset LD_PRELOAD; exec sleep $0", "its environment has no LD_PRELOAD"),
                ("LD_PRELOAD= sleep $0", "its LD_PRELOAD was replaced"),
                ("LD_PRELOAD=libm.so.6 sleep $0", "its LD_PRELOAD was replaced")), 3):
            self.both(script, reason)
        for more in ([], FILE):
            self.both("CUDAGUARD_POLICY=OFF sleep $0", "CUDAGUARD_POLICY is OFF", more=more)
        begin = "guarded, but its records do not come here: CUDAGUARD_REPORT was "
        for script, reason in (("unset CUDAGUARD_REPORT; sleep $0; true", "taken away"),
                               ("CUDAGUARD_REPORT=/dev/null sleep $0", "changed")):
            self.both(script, begin + reason, more=FILE)

    def test_process_with_a_missing_guard_is_listed(self):
        self.both("LD_PRELOAD=/none/libcudaguard.so sleep $0 2>/dev/null",
                  "its LD_PRELOAD names a guard that is not there")

    def test_static_process_is_listed(self):
        for name in ("waits_static", "waits_static_pie"):
            self.both('"$0" "$1"', "it is a static executable", launcher.program(name))
        if not shutil.which("musl-gcc"):
            harness.skip(self, "not installed: musl-gcc")
        program = launcher.program("waits_musl")
        self.both('LD_PRELOAD= "$0" "$1"', "it is for musl, the guard is for glibc", program)

    def test_reused_inode_does_not_hide_a_static_process(self):
        """A static program that has the inode of a dynamic one that was removed; and one that has
        the same addresses as the one that became it."""
        fixed = launcher.program("waits_static")
        bound = launcher.program("waits")
        script = ('set -e; cp "$1" one; ./one 0.3; before=$(stat -c %i one); rm one; i=0; '
                  'while cp "$0" one$i; [ "$(stat -c %i one$i)" != $before ] && [ $i != 50 ]; '
                  'do i=$((i + 1)); done; ./one$i "$2"')
        result, tree = self.tree(["sh", "-c", script, fixed, bound, LONG], cwd=self.directory)
        self.assertEqual(set(self.reasons(tree).values()), {"it is a static executable"}, result)
        become = launcher.program("become")
        result, tree = self.tree(["setarch", "-R", become, fixed, LONG])
        self.assertEqual(len(tree["unguarded"]), 2, result)

    def test_unguarded_process_with_the_driver_is_a_cuda_attempt(self):
        script = 'env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$0" -c "$1" "$2"'
        text = "import ctypes, sys, time; %s; time.sleep(float(sys.argv[1]))" % ATTEMPT
        self.both(script, "its environment has no LD_PRELOAD", sys.executable, text, driver=True)

    def test_unguarded_process_with_nvml_alone_is_no_cuda_attempt(self):
        script = 'env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$0" -c "$1" "$2"'
        text = ("import ctypes, sys, time; ctypes.CDLL('libnvidia-ml.so.1'); %s"
                "time.sleep(float(sys.argv[1]))")
        for options, more, rc, printed in (
                ([], "", 0, "; it has NVML\n"),
                (["--deny=nvml"], "", 1, "; it has NVML, which counts as a CUDA attempt\n"),
                ([], ATTEMPT + "; ", 1,
                 "; it has the driver open, which counts as a CUDA attempt\n")):
            result, tree = self.tree(["sh", "-c", script, sys.executable, text % more, LONG],
                                     options)
            self.assertEqual(result.rc, rc, result)
            self.assertIn(printed, " ".join(result.err.split()) + "\n")
            self.assertEqual(tree["unguarded"][0]["fails"], rc == 1, result)

    def test_guarded_program_that_maps_the_driver_is_not_listed(self):
        words = [box.program("cuda"), "spawn=a", "end"]
        for options in ([], TRACE):
            result, tree = self.tree(words, options)
            self.assertEqual((result.rc, tree["unguarded"]), (0, []), result)

    def test_process_that_overwrites_its_variables_stays_guarded(self):
        """What the process was started with counts."""
        program = launcher.program("title")
        result, tree = self.tree([program, LONG])
        self.assertEqual((tree["value"], tree["doubts"], result.rc), ("none_seen", [], 0), result)
        self.assertEqual((tree["seen"], tree["start_records"]), (1, 1), result)

    def test_fork_whose_parent_has_ended_causes_no_doubt(self):
        """A daemon's parent may have ended unseen; the fork itself writes no start record."""
        for _ in range(4):
            result, tree = self.tree(["sh", "-c", "(sleep 0.4; true) & exit 0"])
            self.assertEqual((result.rc, tree["doubts"]), (0, []), result)
        # The control: a fork of one that could not write.
        result, tree = self.tree(["sh", "-c", "ulimit -f 0; bash -c '(sleep 0.4; true) & exit 0'"],
                                 FILE)
        self.assertRegex("".join(tree["doubts"]), "could not write to the report")

    def test_processes_of_another_pid_namespace_are_recognised(self):
        """They know themselves by other numbers."""
        words = [*harness.sandbox("none", ["--unshare-pid", "--proc", "/proc"]), "sh", "-c",
                 "sleep 1; true"]
        result, tree = self.tree(words)
        self.assertEqual((tree["value"], tree["doubts"], result.rc), ("none_seen", [], 0), result)
        self.assertGreaterEqual(tree["seen"], 3, result)

    def test_launchers_are_not_listed(self):
        for options in ([], TRACE):
            result, tree = self.tree(["sh", "-c", '"$0" run --print >/dev/null; sleep 0.3; true',
                                      launcher.LAUNCHER], options)
            self.assertEqual((result.rc, tree["unguarded"]), (0, []), result)

    def test_programs_that_ld_so_only_lists_are_not_listed(self):
        """ld.so is asked what it would load, and no guard runs."""
        for options in ([], TRACE):
            result, tree = self.tree(
                ["sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 /bin/true >/dev/null; "
                 '"$0" --list /bin/true >/dev/null; sleep 0.1; true',
                 harness.loader_of("/bin/true")], options)
            self.assertEqual((result.rc, tree["unguarded"], tree["doubts"]), (0, [], []), result)

    def test_records_that_another_launcher_copies_count(self):
        """Under another launcher that has a report of its own and copies it to ours."""
        for options in ([], TRACE):
            result, tree = self.tree([launcher.LAUNCHER, "verify", "sh", "-c",
                                      '"$0" cu.init; sleep 0.3; true', box.program("open")], options)
            self.assertEqual((result.rc, tree["unguarded"], tree["doubts"]), (1, [], []), result)
            self.assertEqual(tree["start_records"], 3, result)


class OtherUsers(Case):
    def setUp(self):
        super().setUp()
        self.need("setpriv")
        if os.getuid() != 0:
            harness.skip(self, "needs root for setuid files")
        self.waits = self.copied("waits")
        self.command = self.installed()

    def verify_as_nobody(self, options, *words):
        env = launcher.environment(TMPDIR="/tmp")
        return self.unguarded("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                              self.command, "verify", *options, "--", *words, env=env)

    def test_process_inside_execve_causes_no_doubt(self):
        """Other users may not look at it there, for a moment."""
        program = self.copied("static_0")
        loop = 'i=0; while [ $i -lt 1500 ]; do "$0"; i=$((i + 1)); done'
        done = self.verify_as_nobody([], "sh", "-c", loop, program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("in doubt", done.stderr)

    def test_setuid_process_is_listed(self):
        os.chmod(self.waits, 0o4755)
        if os.statvfs(self.waits).f_flag & os.ST_NOSUID:
            harness.skip(self, "the directory of temporary files is mounted nosuid")
        done = self.verify_as_nobody(["--fence=off"], "sh", "-c", '"$0" "$1"; true', self.waits,
                                     LONG)
        self.assertIn(": it is setuid, so ld.so ignores LD_PRELOAD\n", done.stderr)
        done = self.verify_as_nobody(["--fence=off", *TRACE], "sh", "-c", '"$0" 0; true',
                                     self.waits)
        self.assertIn(": it is setuid or has file capabilities, so ld.so ignores LD_PRELOAD\n",
                      done.stderr)
        self.assertEqual(done.returncode, 0, done)
        # The control: as any other program it is guarded.
        os.chmod(self.waits, 0o755)
        done = self.verify_as_nobody([], "sh", "-c", '"$0" "$1"; true', self.waits, LONG)
        self.assertIn("tree: no unguarded process was seen", done.stderr)

    def test_records_of_another_user_arrive(self):
        """The user changes by execve or in the middle of a program."""
        becomes = "import ctypes, os; os.setgid(65534); os.setuid(65534); " + ATTEMPT
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
        for options in ([], TRACE):
            for words in (drop + ["/usr/bin/python3", "-c", "import ctypes; " + ATTEMPT],
                          ["/usr/bin/python3", "-c", becomes]):
                done = self.start("verify", *options, "--", *words, launcher=self.command,
                                  env=launcher.environment(TMPDIR="/tmp"))
                self.assertIn(", in 1 of ", done.stderr)
                self.assertNotIn("in doubt", done.stderr)
                self.assertEqual(done.returncode, 1, done)

    def test_limit_user_who_cannot_write_the_report_is_in_doubt(self):
        """The result names the process that cannot write to our file."""
        os.mkdir(self.path("closed"), 0o700)
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", self.waits]
        for options, length in ((FILE, LONG), ([*FILE, *TRACE], "0")):
            done = self.start("verify", *options, "--", *words, length, launcher=self.command,
                              env=launcher.environment(TMPDIR=self.path("closed")))
            self.assertIn("  in doubt: waits (", done.stderr)
            self.assertIn(") could not write to the report", done.stderr)
            self.assertNotIn("every program that ptrace reported", done.stderr)


class Lost(Case):
    """Records may be missing."""

    def test_piece_of_a_record_does_not_spoil_the_next_record(self):
        """The piece is counted."""
        count = 200 if harness.FULL else 40
        program = self.python(
            "import os, shutil, signal, subprocess, sys, time\n"
            "report = os.environ['CUDAGUARD_REPORT']\n"
            "record = %r\n"
            "def append(bytes):\n"
            "    fd = os.open(report, os.O_WRONLY | os.O_APPEND)\n"
            "    os.write(fd, bytes)\n"
            "    os.close(fd)\n"
            "for i in range(%d):\n"
            "    child = os.fork()\n"
            "    while child == 0: append(record)\n"
            "    time.sleep(0.002)\n"
            "    os.kill(child, signal.SIGKILL)\n"
            "    os.waitpid(child, 0)\n"
            "append(record[:-100])\n"  # this one is cut for sure
            "subprocess.run([%r, 'cu.init'])\n"
            "shutil.copy(report, sys.argv[1])\n"
            % (verified.record(command=["prog", "x" * 3500], api="nvmlInit_v2").encode(), count,
               box.program("open")))
        result, tree = self.tree(program + [self.path("copy")], FILE)
        block = self.ends(result, 1, ", in 1 of ", "    cuInit by open")
        with open(self.path("copy"), "rb") as stream:
            pieces = stream.read().split(b'{"v":1,')[1:]
        # A whole record may be followed by the first bytes of a record that is cut before "1,".
        whole = sum(b"}\n" in piece for piece in pieces)
        torn = sum(not piece.endswith(b"}\n") for piece in pieces)
        self.assertGreater(torn, 0)
        self.assertEqual(self.document["records"]["torn"], torn, block)
        self.assertEqual(self.document["records"]["read"], whole, block)
        self.assertEqual(self.document["records"]["not_understood"], 0, block)
        self.assertRegex(block, r"(?m)^  records: %d cut short" % torn)
        self.assertEqual(tree["doubts"], [
            "1 record is damaged" if torn == 1 else "%d records are damaged" % torn], block)

    def test_process_that_is_killed_after_its_attempt_is_found(self):
        result = self.verify(self.python("import ctypes, os\n%s\nos.kill(os.getpid(), 9)\n" %
                                         ATTEMPT))
        self.ends(result, 1, ", in 1 of 1 process", "was killed by signal 9")

    def full_disk(self, script, *words):
        """The tree's report is on a disk of 4 MiB, which the script may fill."""
        small = self.path("small")
        os.mkdir(small)
        return self.tree(["sh", "-c", script, *words], FILE, env={"TMPDIR": small},
                         bwrap=["--size", str(4 << 20), "--tmpfs", small])

    def test_full_disk_has_room_for_the_records(self):
        fill = 'dd if=/dev/zero of="$TMPDIR/big" bs=4k 2>"$TMPDIR/err"; cat "$TMPDIR/err"; '
        result, tree = self.full_disk(fill + '"$0" cu.init', box.program("open"))
        self.ends(result, 1, ", in 1 of ", "    cuInit by open")
        self.assertEqual(tree["doubts"], [], result)
        # The control: it is full.
        result, tree = self.full_disk_again(fill + 'dd if=/dev/zero of="$TMPDIR/other" bs=4k count=1')
        self.assertIn("No space left on device", result.err)

    def full_disk_again(self, script, *words):
        shutil.rmtree(self.path("small"))
        return self.full_disk(script, *words)

    def test_report_without_room_is_a_doubt(self):
        script = ('dd if=/dev/zero bs=4k 2>/dev/null >>"$CUDAGUARD_REPORT"; '
                  'dd if=/dev/zero of="$TMPDIR/big" bs=512 2>/dev/null; "$0" cu.init')
        result, tree = self.full_disk(script, box.program("open"))
        self.assertEqual(tree["doubts"][0],
                         "records can no longer be written: No space left on device", result)
        self.assertIn("\n  in doubt: records can no longer be written", result.err)

    def test_removed_report_makes_the_result_incomplete(self):
        for script in ('rm "$CUDAGUARD_REPORT"', 'rm -r "$(dirname "$CUDAGUARD_REPORT")"',
                       ': >"$CUDAGUARD_REPORT"',
                       'rm "$CUDAGUARD_REPORT"; : >"$CUDAGUARD_REPORT"'):
            with self.subTest(script=script):
                # What was read before is known; a look goes by.
                result, tree = self.tree(["sh", "-c", "sleep 0.3; " + script], FILE)
                self.assertEqual(result.rc, 3, result)
                self.assertRegex(result.err, r"\n  in doubt: /\S+, which holds the records, was\s+"
                                 r"removed\s+or\s+changed\n")
                # There may be a second doubt, because the start record of rm is lost.
                self.assertRegex(tree["doubts"][0], "^/.*, which holds the records, was removed or changed$")

    def test_limit_on_file_sizes_is_a_doubt(self):
        """The program sets RLIMIT_FSIZE."""
        for options, length in ((FILE, LONG), ([*FILE, *TRACE], "0")):
            result, tree = self.tree(["sh", "-c", "ulimit -f 0; sleep %s; true" % length], options)
            self.assertEqual(len(tree["doubts"]), 1, result)
            self.assertRegex(tree["doubts"][0], r"^sleep \(\d+\) could not write to the report, or")
            self.assertEqual(tree["value"], "none_seen", result)

    def test_process_with_other_mounts_is_listed(self):
        """The process is guarded and cannot write to the report. Its CUDA attempt is missing, and
        the result says that this may be so."""
        # A directory of its own: the checkout may be below the one of temporary files.
        reports = self.path("reports")
        os.mkdir(reports)
        words = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", reports, "sh", "-c",
                 '"$0" cu.init; sleep ' + LONG, box.program("open")]
        for options in (FILE, [*FILE, *TRACE]):
            result, tree = self.tree(words, options, env={"TMPDIR": reports})
            self.assertEqual(tree["value"], "unguarded", result)
            self.assertIn("guarded, but its records do not come here: it has another root or other "
                          "mounts", self.reasons(tree).values(), result)

    def test_missing_proc_makes_the_result_incomplete(self):
        result, tree = self.tree(["sh", "-c", "env -i sleep 0.2"], bwrap=["--tmpfs", "/proc"])
        self.assertEqual(tree["doubts"],
                         ["unguarded processes were not looked for: there is no /proc"], result)
        self.assertEqual(result.rc, 3, result)
        # Who called is not known then.
        result, tree = self.tree(self.python("import ctypes\n" + ATTEMPT),
                                 bwrap=["--tmpfs", "/proc"])
        self.assertNotIn("+0x0", self.ends(result, 1, ", in 1 of "))

    def test_signal_ends_the_waiting_with_a_result(self):
        """The user who does not want to wait gets the verdict and the processes that are left."""
        started = subprocess.Popen(
            [*verified.VERIFY, "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], text=True,
            env=launcher.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        pid = int(started.stdout.readline())
        try:
            self.assertIn("the program has ended; waiting for the processes that it left "
                          "running: sleep (%d)" % pid,
                          started.stderr.readline())
            started.terminate()
            _, err = started.communicate(timeout=60)
        finally:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(started.returncode, 3, err)
        self.assertIn("  not waited for: sleep (%d)" % pid, err)


class Traced(test_observe_signals.Case):
    """Under --trace nothing else is different: signals, stops, ends."""
    VERIFY = [launcher.LAUNCHER, "verify", "--trace"]

    def setUp(self):
        super().setUp()
        for name, value in (("OBSERVE", self.VERIFY),):
            patch = unittest.mock.patch.object(test_observe_signals, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    COUNT = test_observe_signals.Passed.COUNT
    counting = test_observe_signals.Passed.counting
    test_every_signal_reaches_the_program = \
        test_observe_signals.Passed.test_every_signal_reaches_the_program
    test_tstp_stops_the_launcher_and_the_program = \
        test_observe_signals.Passed.test_tstp_stops_the_launcher_and_the_program

    @staticmethod
    def state(pid):
        return test_observe_signals.Passed.state(pid).upper()  # of a traced one "t"

    def test_end_of_the_program_is_reported(self):
        for words, ending in ((["sh", "-c", "exit 7"], "ended with exit code 7"),
                              (["sh", "-c", "kill -SEGV $$"], "was killed by signal 11"),
                              (["sh", "-c", "kill -KILL $$"], "was killed by signal 9")):
            done = self.unguarded(*self.VERIFY, *words)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("but the program " + ending, done.stderr)

    def test_program_is_continued_by_its_process_id(self):
        process = self.popen(self.VERIFY + ["sh", "-c", "echo $$; kill -STOP $$; exit 5"],
                             start_new_session=True)
        pid = int(process.stdout.readline())
        self.until(lambda: self.state(pid) == "T")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(process.wait(test_observe_signals.PATIENCE), 2)
        self.assertIn("exit code 5", process.stderr.read())

    def test_threads_stop_and_go_on(self):
        """A stop is of the whole process, and a child's own shell sees it."""
        text = ("import os, signal, subprocess, sys, threading, time\n"
                "child = subprocess.Popen([sys.executable, '-c', 'import threading, time\\n"
                "for i in range(4): threading.Thread(target=input if i == 0 else time.sleep, "
                "args=() if i == 0 else (0.2,)).start()\\nprint(1, flush=True)\\n'],"
                " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
                "child.stdout.readline()\n"
                "os.kill(child.pid, signal.SIGSTOP)\n"
                "_, status = os.waitpid(child.pid, os.WUNTRACED)\n"
                "print(os.WIFSTOPPED(status), os.WSTOPSIG(status) == signal.SIGSTOP)\n"
                "os.kill(child.pid, signal.SIGCONT)\n"
                "_, status = os.waitpid(child.pid, os.WCONTINUED)\n"
                "print(os.WIFCONTINUED(status))\n"
                "child.stdin.close()\n"
                "_, status = os.waitpid(child.pid, 0)\n"
                "child.returncode = 0\n"
                "print(os.WIFEXITED(status))\n")
        unguarded = self.unguarded(sys.executable, "-c", text)
        self.assertEqual(unguarded.stdout, "True True\nTrue\nTrue\n", unguarded)
        done = self.unguarded(*self.VERIFY, "--", sys.executable, "-c", text)
        self.assertEqual((done.stdout, done.returncode), (unguarded.stdout, 0), done)

    def test_tracer_under_trace_is_refused(self):
        self.assertEqual(self.unguarded("strace", "-qq", "-o", "/dev/null", "true").returncode, 0)
        done = self.unguarded(*self.VERIFY, "strace", "-qq", "-o", "/dev/null", "true")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("Operation not permitted", done.stderr)

    def test_trace_that_is_not_permitted_is_an_error(self):
        """One message is printed, and nothing is started."""
        marker = self.path("started")
        done = self.unguarded("strace", "-f", "-qq", "-o", "/dev/null", *self.VERIFY, "touch",
                              marker)
        self.refused(done, 125, "--trace: ", "Operation not permitted", "leave --trace out")
        self.assertFalse(os.path.exists(marker))
        done = self.unguarded("strace", "-f", "-qq", "-o", "/dev/null", launcher.LAUNCHER, "verify",
                              "touch", marker)
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(os.path.exists(marker))
