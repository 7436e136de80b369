# SPDX-License-Identifier: Apache-2.0
"""verify reports a CUDA attempt even if the process has cleared its environment, lost its files or
limited itself. If an attempt may have been missed, the result is INCOMPLETE instead of PASS."""

import errno
import json
import os
import subprocess

import pytest

from support import fence, fixtures, harness, launcher, machine, verified
from launcher import test_verify_tree
from support.observed import box

SHAPES = [line.split("SHAPE(")[1].split(")")[0] for line in launcher.source("shapes.c").splitlines()
          if line.lstrip().startswith("SHAPE(")]
# What these shapes, which name it, need of the machine.
NEEDS = {"chroot": ["change_of_root"], "nobody": ["other_users_processes"],
         "new_user": ["user_namespaces"], "new_pids": ["process_namespaces"]}
assert len(SHAPES) > 20
OFF = ["--fence=off"]  # there is no filter that reports the beacons


class Heard(test_verify_tree.Case):
    """Each shape of process that asks for CUDA FAILs. The same one that does not ask PASSes."""

    def setUp(self):
        super().setUp()
        self.program = launcher.program("shapes")

    def shape(self, name, what, options=(), **more):
        machine.need(*NEEDS.get(name, ()))
        if name == "nobody" and not harness.reachable(launcher.LAUNCHER):
            self.command = [self.installed(), "verify"]
        return self.tree([self.program, name, what], options, **more)

    def processes(self):
        return self.document["counts"]["processes"]

    def test_guard_repeats_the_beacon_on_older_kernels(self):
        """Before Linux 5.19 a signal takes the beacon back."""
        for name in ("timer", "plain"):
            done = self.unguarded(fence.program("without"), "killable=%d" % errno.EINVAL, "--",
                                  *verified.VERIFY, "--json", self.path("older.json"), "--",
                                  self.program, name, "attempt")
            with open(self.path("older.json"), encoding="utf-8") as stream:
                tree = json.load(stream)["tree"]
            self.assertIn("cudaguard: FAIL: 1 place asked for CUDA, in 1 of 1 process\n", done.stderr)
            self.assertEqual((tree["heard"], tree["doubts"]), (1, []), done)

    def test_outer_verify_reports_a_nested_attempt(self):
        """The kernel tells only one of them, the outer one. The inner one reads the guards' records."""
        for what, word in (("attempt", "FAIL"), ("none", "PASS")):
            result, _ = self.tree([*verified.VERIFY, "--allow-incomplete", "--", self.program,
                                   "clearenv", what])
            self.assertEqual(result.rc, int(what == "attempt"), result)
            inner, outer = result.err.split("  in doubt: verify may miss CUDA attempts: another ")
            for part in (inner, outer):
                self.assertIn("cudaguard: %s: " % word, part)

    def test_forked_processes_that_end_count_as_heard(self):
        """They count as heard although nothing of them can be examined any more."""
        result, tree = self.tree(self.python(
            "import os\nfor i in range(300):\n    if os.fork() == 0:\n        os._exit(0)\n    os.wait()\n"))
        self.assertEqual((result.rc, tree["heard"]), (0, self.processes()), result)

    def test_proc_of_another_namespace_gives_no_native_stack(self):
        """The stack is not named by the mappings of another process, which has the number there."""
        result, _ = self.tree([self.program, "plain", "attempt"], bwrap=["--unshare-pid"])
        self.assertEqual(result.rc, 1, result)
        self.assertEqual(self.document["calls"][0]["native_missing"],
                         "/proc is another PID namespace's", result)

    def test_control_without_beacons_verify_misses_an_attempt(self):
        """Unguarded programs reach the driver."""
        for name in ("plain", "thread", "coroutine"):    # the others hide the fake driver's log
            unguarded = harness.run([self.program, name, "attempt"], world="none", guard=False,
                                    trace=False,
                                    env=box.environment())
            self.assertTrue(unguarded.fake_calls, unguarded)
        doubt = "  in doubt: verify may miss CUDA attempts: --fence=off\n"
        result, _ = self.shape("no_files", "attempt", OFF)
        self.ends(result, 3, "INCOMPLETE: no CUDA use seen (1 process checked)\n" + doubt)
        result, _ = self.tree(["sh", "-c", "exit 3"], OFF)
        self.ends(result, 2, "FAIL: no CUDA use seen (1 process checked), but the program ended "
                  "with exit code 3\n" + doubt)
        result, tree = self.shape("plain", "attempt", OFF)  # its guard can write a record
        self.ends(result, 1, "FAIL: 1 place asked for CUDA, in 1 of 1 process\n", doubt)
        self.assertEqual((tree["value"], tree["start_records"]), ("not_watched", 1), result)
        result, tree = self.shape("plain", "none", [*OFF, "--allow-incomplete"],
                                  env={"TMPDIR": "/sys"})
        self.ends(result, 0, doubt, "  in doubt: no directory for the records: ")

    def test_verify_writes_nothing_into_tmpdir(self):
        """verify needs no writable TMPDIR, and leaves nothing there if a signal kills it."""
        directory = self.path("temporary")
        os.mkdir(directory, 0o500)
        done = subprocess.run([*verified.VERIFY, "--", self.program, "killed", "attempt"],
                              check=False,
                              env=launcher.environment(TMPDIR=directory), capture_output=True, text=True)
        self.assertEqual((done.returncode, os.listdir(directory)), (1, []), done)
        script = "kill -9 $PPID; sleep 0.1"
        subprocess.run([*verified.VERIFY, "--", "sh", "-c", script], check=False,
                       env=launcher.environment(TMPDIR=directory), capture_output=True)
        self.assertEqual(os.listdir(directory), [])

    def test_announcement_of_a_killed_process_counts(self):
        """The process is killed before it sends the record."""
        magic = 0x6375646167756172
        text = ("import ctypes, os\n"
                "ctypes.CDLL(None).syscall(39, ctypes.c_ulong(%d), ctypes.c_ulong(2), 0, 0)\n"
                "os.kill(os.getpid(), 9)\n" % magic)
        report = self.path("report")
        result, _ = self.tree(self.python(text), ["--report", report])
        self.ends(result, 1, ", in 1 of 1 process", "cuInit or the like")
        self.assertEqual(self.document["calls"][0]["python_missing"],
                         "its process ended before it sent the details", result)
        for record in harness.records(report):
            self.validates(record, "guard", "record", "record.schema.json")

    def test_announcement_of_an_ended_process_names_its_program(self):
        """So --allow applies, and the process is listed once."""
        script = self.make("ends.py", "import ctypes\nU = ctypes.c_ulong\n"
                           "ctypes.CDLL(None).syscall(39, U(0x6375646167756172), U(2), 0, U(0))\n")
        words = self.python("import runpy, sys\nrunpy.run_path(sys.argv[1])")
        result, _ = self.tree([*words, script], ["--allow=ends.py"])
        self.ends(result, 0, "PASS", "in 1 allowed process")
        processes = self.document["processes"]
        self.assertEqual([one["asked"] for one in processes], [True], result)
        self.assertIn("ends.py", processes[0]["command"])

    def test_record_has_the_native_stack(self):
        report = self.path("report")
        self.tree([self.program, "plain", "attempt"], ["--report", report])
        records = harness.records(report)
        self.assertEqual([record.get("event") for record in records], ["start", "native", None])
        native, attempt = records[1:]
        self.assertTrue(native["native"])
        self.assertEqual((native["ts"], native["pid"]), (attempt["ts"], attempt["pid"]))
        for record in records:
            self.validates(record, "guard", "record", "record.schema.json")

    def test_attempt_counts_after_an_execve(self):
        """The next program's start takes nothing back, nor does its own attempt that is allowed."""
        send = ("import ctypes, os, sys\nU = ctypes.c_ulong\n"
                "def send(at): ctypes.CDLL(None).syscall(39, U(0x6375646167756172), U(2), 0, U(at))\n"
                "send(0)\n")
        again = self.make("again.py", send + "send(1)\n")
        # It announces NVML, and takes that back.
        withdraws = self.make("withdraws.py", "import ctypes\nU = ctypes.c_ulong\n"
                              "for kind in 3, 6:\n"
                              "    ctypes.CDLL(None).syscall(39, U(0x6375646167756172), U(kind), 0, 0)\n")
        for then in (["-c", ""], [again], [withdraws]):
            text = send + "os.execv(sys.executable, [sys.executable, *%r])\n" % then
            result, _ = self.tree(self.python(text), ["--allow=again.py"])
            self.ends(result, 1, "FAIL: 1 place asked for CUDA, in 1 of 1 process", "cuInit or the like")


    def test_attempt_under_the_filter_of_another_program_is_found(self):
        """The filter refuses getpid from the start on, so the program has not been heard."""
        result, _ = self.shape("execs under a filter", "attempt")
        self.ends(result, 1, "ioctl 0x")
        result, _ = self.shape("execs under a filter", "none")
        self.assertIn(result.rc, (0, 3), result)

    @pytest.mark.full
    def test_limit_attempt_in_qemu_user_is_not_seen(self):
        """qemu answers the guest's beacon itself."""
        self.need("qemu-x86_64")
        result, _ = self.tree(["qemu-x86_64", self.program, "plain", "attempt"])
        self.ends(result, 0, "1 guarded")


make_case = fixtures.lent("case", Heard)


@pytest.mark.parametrize("name", SHAPES)
def test_process_that_asks_fails(case, name):
    result, tree = case.shape(name, "attempt")
    case.ends(result, 1, ", in 1 of ")
    # This one lacks CUDAGUARD_HELLO, which makes it a doubt.
    assert (tree["doubts"] == []) == (name != "execs_unguarded"), str(result)
    # refuses_getpid makes an ioctl in place of the beacon, which carries no stack. Only root may look
    # at the stack of not_dumpable.
    if name != "refuses_getpid" and (
            name != "not_dumpable" or not machine.missing("other_users_processes")):
        stack = [frame["symbol"] for frame in case.document["calls"][0]["native"]]
        assert stack[0] == "ask", str(result)


# The program "killed" fails, and the other one is a doubt (test_starts.py).
@pytest.mark.parametrize("name", [name for name in SHAPES
                                  if name not in ("killed", "execs_unguarded")])
def test_process_that_does_not_ask_passes(case, name):
    result, tree = case.shape(name, "none")
    case.ends(result, 0, "PASS: no CUDA use (")
    assert (tree["doubts"], tree["heard"]) == ([], case.processes()), str(result)


class Forged(test_verify_tree.Case):
    """A program that forges beacons cannot crash or block verify, or hide an attempt."""

    def send(self, calls, after="", rc=0, options=()):
        text = ("import ctypes, sys\n"
                "MAGIC = 0x6375646167756172\n"
                "libc = ctypes.CDLL(None)\n"
                "U = ctypes.c_ulong\n"
                "def send(*words): return libc.syscall(39, *map(U, words))\n"
                "record = ctypes.create_string_buffer(%r)\n"
                "message = (ctypes.c_ulong * 16)(ctypes.addressof(record), len(record) - 1)\n"
                "at = ctypes.addressof(message)\n"
                % verified.record(decision="allow", event="work").encode() + calls + "\n" + after)
        result, tree = self.tree(self.python(text), options)
        self.assertEqual(result.rc, rc, result)
        return tree

    def test_call_without_the_magic_number_is_an_ordinary_getpid(self):
        self.send("import os\nfor magic in (0, MAGIC - 1, MAGIC ^ 1 << 63, MAGIC & 0xffffffff):\n"
                  "    assert send(magic, 2, 0, at) == os.getpid()")

    def test_attempt_at_an_unreadable_address_counts(self):
        """A message at an unreadable address counts as an attempt."""
        for address in ("1", "1 << 63", "(1 << 64) - 8", "0xffffffffff600000"):
            self.send("assert send(MAGIC, 2, 0, %s) == -1" % address, rc=1)

    def test_attempt_with_an_unreadable_record_counts(self):
        for first, second in (("0", "10"), ("1 << 47", "100"), ("message[0]", "1 << 63"),
                              ("message[0]", "0"), ("message[0]", "65537"), ("at", "16")):
            self.send("message[0] = %s; message[1] = %s; send(MAGIC, 2, 0, at)" % (first, second), rc=1)

    def test_announced_attempt_counts_with_a_record_of_something_else(self):
        self.send("send(MAGIC, 2, 0, at)", rc=1)

    def test_start_or_unknown_kind_is_no_attempt(self):
        """--deny decides about NVML and OpenCL."""
        self.send("for kind in (0, 1, 3, 4, 5, 6, 1 << 40): send(MAGIC, kind, 0, at)")
        self.send("send(MAGIC, 3, 0, 1)", rc=1, options=["--deny=nvml"])
        self.send("send(MAGIC, 4, 0, 1)", rc=1, options=["--deny=opencl"])

    def test_announced_refusal_with_an_unreadable_record_is_a_doubt(self):
        report = self.path("report")
        tree = self.send("send(MAGIC, 7, 0, 1)", rc=3, options=["--report", report])
        self.assertIn("was refused NVIDIA's CUDA library", tree["doubts"][0])
        self.assertEqual([one["api"] for one in harness.records(report) if "api" in one], ["dlopen"])

    def test_flood_of_beacons_does_not_block_verify(self):
        count = 1000000 if harness.FULL else 20000
        program = launcher.program("flood")
        result = self.verify([program, count], ["--json", self.path("out.json")], timeout=800)
        if harness.FULL:
            self.ends(result, 3, "INCOMPLETE: ", "in doubt: too many beacons (more than 1 GB")
        else:
            self.ends(result, 0, "PASS: no CUDA use (")


class Doubt(test_verify_tree.Case):
    """INCOMPLETE has exit code 3 and a reason. --allow-incomplete makes it PASS."""

    def incomplete(self, words, reason, options=(), **more):
        result, tree = self.tree(words, options, **more)
        self.assertEqual(result.rc, 3, result)
        self.assertIn("cudaguard: INCOMPLETE: ", result.err)
        self.assertRegex("\n".join(tree["doubts"]), reason, result)
        self.assertEqual((self.document["verdict"], self.document["exit_code"]), ("incomplete", 3))
        result, tree = self.tree(words, ["--allow-incomplete", *options], **more)
        self.ends(result, 0, "PASS: no CUDA use (", "in doubt: ")
        self.assertRegex("\n".join(tree["doubts"]), reason, result)

    # The program's own seccomp filter refuses getpid, so what it executes sends no beacon.
    REFUSES_GETPID = ("import ctypes, os, struct, sys\n"
                      "libc = ctypes.CDLL(None)\n"
                      "code = struct.pack('HBBI' * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 39,\n"
                      "                   6, 0, 0, 0x50001, 6, 0, 0, 0x7fff0000)\n"
                      "libc.prctl(38, 1, 0, 0, 0)\n"
                      "code = ctypes.create_string_buffer(code)\n"
                      "libc.prctl(22, 2, struct.pack('HxxxxxxP', 4, ctypes.addressof(code)))\n")

    def test_process_without_a_start_beacon_makes_the_result_incomplete(self):
        script = self.REFUSES_GETPID + "os.execvp('sleep', ['sleep', '1'])\n"
        self.incomplete(self.python(script), "sleep may not be guarded")

    def test_refused_start_beacon_is_missed_although_the_last_look_was_in_the_loader(self):
        program = launcher.program("slow_user")  # a constructor takes a while, and main no time
        script = self.REFUSES_GETPID + ("os.environ['WHAT'] = 'nothing'\n"
                                        "os.execv(%r, ['slow_user'])\n" % program)
        self.incomplete(self.python(script), "slow_user may not be guarded")

    def test_programs_that_end_in_the_loader_cause_no_doubt(self):
        """A missing library, too little memory or a kill ends them before the guard's constructor."""
        program = launcher.program("lacks_library")
        self.command = ["sh", "-c", 'ulimit -Sn 256; exec "$0" "$@"', *self.command]
        little = "for i in $(seq 60); do (ulimit -v 1200; exec true); done & "
        for script in ('for i in 1 2 3 4 5 6 7 8 9; do "$0"; sleep 1 & kill -9 $!; done; true',
                       little * 6 + "(ulimit -v 1200; exec true); [ $? = 127 ] && wait && "
                       "[ $(ulimit -Sn) = 256 ]"):
            result, tree = self.tree(["bash", "-c", script, program])
            self.ends(result, 0, "PASS: no CUDA use (")
            self.assertEqual(tree["doubts"], [], result)

    def test_missing_proc_makes_the_result_incomplete(self):
        """The beacon alone tells what a start is."""
        bwrap = ["--tmpfs", "/proc"]
        self.incomplete(["sh", "-c", "env -i true; :"], "true may not be guarded", bwrap=bwrap)
        result, _ = self.tree(["sh", "-c", "env true; :"], bwrap=bwrap)
        self.ends(result, 0, "PASS: ")
