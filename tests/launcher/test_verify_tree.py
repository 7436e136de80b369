# SPDX-License-Identifier: Apache-2.0
"""verify finds each process of the tree that asks for CUDA, however it was started. It lists the
unguarded processes with the reason, and reports if records may be missing."""

import json
import os
import re
import shutil
import sys

import pytest

from support import harness, launcher, machine, verified
from support.observed import box

ATTEMPT = "ctypes.CDLL('libcuda.so.1').cuInit(0)"
# So long that a look from time to time finds it.
LONG = "1"
# Under OFF the driver answers, which must not look like an attempt that passed the guard.
OFF = 'unset CG_FAKE_LOG; CUDAGUARD_POLICY=OFF "$0" -c "$1" "$2"'


class Case(verified.Case):
    def tree(self, words, options=(), **more):
        """Returns (the result, the tree in verify's JSON)."""
        path = self.path("verify.json")
        result = self.verify(words, ["--json", path, *options], **more)
        try:
            self.document = json.loads(harness.read(path))
        except (FileNotFoundError, ValueError):
            self.fail("no document:\n%s" % result)
        return result, self.document["tree"]

    def reasons(self, tree):
        """{command: reason}"""
        return {os.path.basename(one["command"]): one["reason"] for one in tree["unguarded"]}

    def python(self, text, name="program.py"):
        return [sys.executable, self.make(name, text)]


class Starts(Case):
    """test_beacon.py has the shapes of processes that ask."""

    def test_one_attempt_among_a_thousand_processes_is_found(self):
        count = 1000 if harness.FULL else 300
        script = ('i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done; "$0" cu.init; '
                  '/bin/true' % (count - 1))
        words = ["sh", "-c", script, box.program("open")]
        result, tree = self.tree(words)
        headline = "FAIL: 1 place asked for CUDA, in 1 of {:,} processes\n".format(count + 2)
        block = self.ends(result, 1, headline)
        self.assertEqual((tree["start_records"], tree["doubts"], tree["value"]),
                         (count + 2, [], "all_guarded"), block)


class Executed(Case):
    def test_program_without_hello_is_not_the_one_before_it(self):
        """--allow takes the words of the command line, and only the first program has these."""
        self.make("evil.py", "import ctypes, time\n%s\ntime.sleep(0.2)\n" % ATTEMPT)
        script = ("import os, sys\n"
                  "env = {key: value for key, value in os.environ.items() if key != %r}\n"
                  "os.execve(sys.executable, [sys.executable, %r], env)\n")
        for variable in ("CUDAGUARD_HELLO", "NOTHING"):
            program = self.python(script % (variable, self.path("evil.py")), "train.py")
            result, _ = self.tree(program, ["--allow", "train.py"])
            self.assertEqual(result.rc, 1, (variable, str(result)))
        result, _ = self.tree([sys.executable, self.path("evil.py")], ["--allow", "evil.py"])
        self.assertEqual(result.rc, 0, result)


class Unguarded(Case):
    def one(self, script, reason, *words, driver=False):
        """A shell's script in which one process is not guarded; its last word is how long to live."""
        result, tree = self.tree(["sh", "-c", script, *words, LONG])
        self.assertEqual(tree["value"], "unguarded", (script, str(result)))
        self.assertEqual([one["reason"] for one in tree["unguarded"]], [reason],
                         (script, str(result)))
        self.assertEqual(tree["unguarded"][0]["has_driver"], driver, (script, str(result)))
        self.assertEqual(result.rc, 1 if driver else 0, (script, str(result)))
        block = " ".join(self.ends(result, result.rc, "").split())
        text = reason + ("; it has the driver open, which counts as a CUDA attempt" * driver)
        self.assertRegex(block, r" started: (\d+ guarded, )?1 unguarded: \S+ \(%s\)" % re.escape(text),
                         script)

    def test_guarded_processes_are_not_listed(self):
        """The control."""
        result, tree = self.tree(["sh", "-c", "sleep $0; exec sleep 0", LONG])
        self.assertEqual((tree["value"], tree["unguarded"], tree["doubts"]), ("all_guarded", [], []),
                         result)
        self.assertEqual((tree["seen"], tree["heard"]), (2, 2), result)

    def test_process_with_another_environment_is_listed(self):
        for script, reason in harness.sample((
                ("env -i sleep $0", "its environment has no LD_PRELOAD"),
                ("unset LD_PRELOAD; exec sleep $0", "its environment has no LD_PRELOAD"),
                ("LD_PRELOAD= sleep $0", "its LD_PRELOAD was replaced"),
                ("LD_PRELOAD=libm.so.6 sleep $0", "its LD_PRELOAD was replaced")), 3):
            self.one(script, reason)
        for variable in ("CUDAGUARD_POLICY=OFF", "CUDAGUARD_RULES='OFF program=sleep'"):
            self.one(variable + " sleep $0", "its policy is OFF")

    def test_process_with_a_missing_guard_is_listed(self):
        self.one("LD_PRELOAD=/none/libcudaguard.so sleep $0 2>/dev/null",
                  "its LD_PRELOAD names a guard that is not there")

    def test_static_process_is_listed(self):
        for name in ("waits_static", "waits_static_pie"):
            self.one('"$0" "$1"', "static", launcher.program(name))
        self.one('LD_TRACE_LOADED_OBJECTS=1 "$0" "$1"', "static", launcher.program("waits_static"))
        if not shutil.which("musl-gcc"):
            harness.skip(self, "not installed: musl-gcc")
        program = launcher.program("waits_musl")
        self.one('LD_PRELOAD= "$0" "$1"', "musl", program)

    @pytest.mark.needs("fixed_addresses")
    def test_reused_inode_does_not_hide_a_static_process(self):
        """A static program that has the inode of a dynamic one that was removed; and one that has
        the same addresses as the one that became it."""
        fixed = launcher.program("waits_static")
        bound = launcher.program("waits")
        script = ('set -e; cp "$1" one; ./one 0.3; before=$(stat -c %i one); rm one; i=0; '
                  'while cp "$0" one$i; [ "$(stat -c %i one$i)" != $before ] && [ $i != 50 ]; '
                  'do i=$((i + 1)); done; ./one$i "$2"')
        result, tree = self.tree(["sh", "-c", script, fixed, bound, LONG], cwd=self.directory)
        self.assertEqual(set(self.reasons(tree).values()), {"static"}, result)
        become = launcher.program("become")
        result, tree = self.tree(["setarch", "-R", become, fixed, LONG])
        self.assertEqual(len(tree["unguarded"]), 2, result)

    def test_unguarded_process_with_the_driver_is_a_cuda_attempt(self):
        script = 'env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$0" -c "$1" "$2"'
        text = "import ctypes, sys, time; %s; time.sleep(float(sys.argv[1]))" % ATTEMPT
        self.one(script, "its environment has no LD_PRELOAD", sys.executable, text, driver=True)
        self.one(OFF, "its policy is OFF", sys.executable, text, driver=True)

    def test_forked_process_whose_policy_is_off_is_listed(self):
        text = ("import ctypes, os, sys, time\nif os.fork(): os._exit(os.wait()[1] != 0)\n"
                "%s\ntime.sleep(float(sys.argv[1]))" % ATTEMPT)
        result, tree = self.tree(["sh", "-c", OFF, sys.executable, text, LONG])
        self.assertEqual([(one["reason"], one["has_driver"]) for one in tree["unguarded"]],
                         [("its policy is OFF", True)], result)
        self.ends(result, 1, "FAIL: 1 of 2 processes asked for CUDA")

    def test_unguarded_process_whose_first_thread_has_ended_is_listed(self):
        program = launcher.program("first_ends")
        result, tree = self.tree(["env", "-u", "LD_PRELOAD", program])
        self.assertEqual([(one["reason"], one["has_driver"]) for one in tree["unguarded"]],
                         [("its environment has no LD_PRELOAD", True)], result)
        self.assertEqual((result.rc, "cuInit:initialised" in result.fake_calls), (1, True), result)

    def test_limit_code_of_a_process_whose_first_thread_has_ended_has_no_name(self):
        """/proc/self shows no files. The launcher has seen which program it is."""
        words = [launcher.program("first_ends")]
        result, tree = self.tree(words)
        self.ends(result, 1, "FAIL: ", "code outside any file", "process  first_ends (")
        self.assertEqual((tree["seen"], tree["unguarded"]), (1, []), result)
        self.assertEqual([one["asked"] for one in self.document["processes"]], [True], result)
        self.ends(self.verify(words, ["--allow", "first_ends"]), 0, "PASS: ")

    def test_remedy_follows_a_long_path(self):
        directory = self.path("d" * 250, "e" * 250)
        os.makedirs(directory)
        program = shutil.copy(shutil.which("true"), directory)
        for allowed, code in (([], 3), (["--allow", "program:true"], 0)):
            result, tree = self.tree(["env", "-i", program], ["--strict", *allowed])
            self.assertEqual((result.rc, len(tree["unguarded"])), (code, 1), result)
            if code:
                self.assertIn("accept it: --allow program:true", " ".join(result.err.split()))

    def test_short_program_that_is_known_to_be_unguarded_is_listed(self):
        command = self.installed()
        guard = self.path("install", "lib", "libcudaguard.so")
        os.truncate(guard, 100)
        done = self.start("verify", "true", launcher=command)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PASS: no CUDA use (1 process checked)", done.stderr)
        self.assertRegex(done.stderr, r"1 program started: 1 unguarded: \S*true \(its ld\.so says: ")

    def test_unguarded_process_with_nvml_alone_is_no_cuda_attempt(self):
        script = 'env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$0" -c "$1" "$2"'
        text = ("import ctypes, sys, time; ctypes.CDLL('libnvidia-ml.so.1'); %s"
                "time.sleep(float(sys.argv[1]))")
        for options, more, rc, printed in (
                ([], "", 0, "; it has NVML)\n"),
                (["--deny=nvml"], "", 1, "; it has NVML, which counts as a CUDA attempt)\n"),
                ([], ATTEMPT + "; ", 1,
                 "; it has the driver open, which counts as a CUDA attempt)\n")):
            result, tree = self.tree(["sh", "-c", script, sys.executable, text % more, LONG],
                                     options)
            self.assertEqual(result.rc, rc, result)
            self.assertIn(printed, " ".join(result.err.split()) + "\n")
            self.assertEqual(tree["unguarded"][0]["fails"], rc == 1, result)

    def test_guarded_program_that_maps_the_driver_is_not_listed(self):
        words = [box.program("cuda"), "spawn=a", "end"]
        result, tree = self.tree(words)
        self.assertEqual((result.rc, tree["unguarded"]), (0, []), result)

    def test_fork_whose_parent_has_ended_causes_no_doubt(self):
        """A daemon's parent may have ended unseen; the fork itself writes no start record."""
        for _ in range(4):
            result, tree = self.tree(["sh", "-c", "(sleep 0.4; true) & exit 0"])
            self.assertEqual((result.rc, tree["doubts"]), (0, []), result)

    def test_processes_of_another_pid_namespace_are_recognised(self):
        """They know themselves by other numbers."""
        words = [*harness.sandbox("none", ["--unshare-pid", "--proc", "/proc"]), "sh", "-c",
                 "sleep 1; true"]
        result, tree = self.tree(words)
        self.assertEqual((tree["value"], tree["doubts"], result.rc), ("all_guarded", [], 0), result)
        self.assertGreaterEqual(tree["seen"], 3, result)

    def test_program_that_was_removed_while_it_runs_stays_guarded(self):
        """The removal changes the ctime of its executable."""
        script = 'cp "$0" copy; ./copy "$1" & sleep 0.3; rm copy; wait'
        result, tree = self.tree(["sh", "-c", script, launcher.program("waits"), LONG],
                                 cwd=self.directory)
        self.assertEqual((result.rc, tree["unguarded"], tree["doubts"]), (0, [], []), result)


class OtherUsers(Case):
    def setUp(self):
        super().setUp()
        machine.need("other_users")
        self.waits = self.copied("waits")
        self.command = self.installed()

    def verify_as_nobody(self, options, *words):
        env = launcher.environment(TMPDIR="/tmp")
        return self.unguarded(*machine.AS_NOBODY, self.command, "verify", *options, "--", *words,
                              env=env)

    def control_of_mounts(self, script):
        if self.unguarded("unshare", "--mount", "sh", "-c", script).returncode != 0:
            harness.skip(self, "root may not change mounts here")

    def test_process_inside_execve_causes_no_doubt(self):
        """Other users may not look at it there, for a moment."""
        program = self.copied("static_0")
        loop = 'i=0; while [ $i -lt 1500 ]; do "$0"; i=$((i + 1)); done'
        done = self.verify_as_nobody([], "sh", "-c", loop, program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("in doubt", done.stderr)

    def test_process_that_proc_hides_makes_the_result_incomplete(self):
        """With hidepid, other users see nothing of a process whose memory they may not read."""
        self.control_of_mounts("mount -t proc -o hidepid=2 proc /proc")
        script = ('mount -t proc -o hidepid="$1" proc /proc && exec setpriv --reuid=65534 '
                  '--regid=65534 --clear-groups "$0" verify -- sh -c "$2 $3 0.5; true"')
        for how, mode, start, code in (("1", 0o111, "env -i", 3), ("2", 0o111, "env -i", 3),
                                       ("2", 0o111, "env", 0), ("2", 0o755, "env -i", 0)):
            os.chmod(self.waits, mode)
            done = self.unguarded("unshare", "--mount", "sh", "-c", script, self.command, how, start,
                                  self.waits, env=launcher.environment(TMPDIR="/tmp"))
            self.assertEqual(done.returncode, code, (how, mode, start, str(done)))
            self.assertEqual("waits (its file cannot be read)" in done.stderr, code == 3, done)

    def test_proc_that_is_unmounted_makes_the_result_incomplete(self):
        self.control_of_mounts("umount --lazy /proc")
        done = self.unguarded("unshare", "--mount", self.command, "verify", "--", "sh", "-c",
                              'umount --lazy /proc; env -i "$0" 0.5; true', self.waits,
                              env=launcher.environment(TMPDIR="/tmp"))
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("(/proc does not show it)", " ".join(done.stderr.split()))

    def test_verify_without_proc_knows_a_program_by_its_call(self):
        """Its file is not known, and the user from Linux 6.13 on."""
        self.control_of_mounts("umount --lazy /proc")
        linux = tuple(map(int, os.uname().release.split(".")[:2]))
        for hide, has_file, has_user in (("true", True, True),
                                         ("umount --lazy /proc", False, linux >= (6, 13))):
            path = self.path("verify.json")
            done = self.unguarded("unshare", "--mount", "sh", "-c",
                                  hide + '; exec "$0" verify --json "$1" -- setpriv --reuid=65534 '
                                  "--regid=65534 --clear-groups /bin/true",
                                  self.command, path, env=launcher.environment(TMPDIR="/tmp"))
            programs = {one["command"]: one for one in json.loads(harness.read(path))["processes"]}
            program = programs["true"]
            self.assertEqual(program["uid"], 65534 if has_user else 0, done)
            self.assertEqual(program["exe"] is not None, has_file, done)

    @pytest.mark.needs("other_users_processes")
    def test_records_of_another_user_arrive(self):
        """The user changes by execve or in the middle of a program."""
        becomes = "import ctypes, os; os.setgid(65534); os.setuid(65534); " + ATTEMPT
        for words in ([*machine.AS_NOBODY, "/usr/bin/python3", "-c", "import ctypes; " + ATTEMPT],
                      ["/usr/bin/python3", "-c", becomes]):
            done = self.start("verify", "--", *words, launcher=self.command,
                              env=launcher.environment(TMPDIR="/tmp"))
            self.assertIn(", in 1 of ", done.stderr)
            self.assertNotIn("in doubt", done.stderr)
            self.assertEqual(done.returncode, 1, done)


class Lost(Case):
    """Records may be missing."""

    def test_missing_proc_leaves_the_caller_unknown(self):
        """Who called is not known then (test_beacon.py has the doubt)."""
        result, _ = self.tree(self.python("import ctypes\n" + ATTEMPT),
                                 bwrap=["--tmpfs", "/proc"])
        self.assertNotIn("+0x0", self.ends(result, 1, ", in 1 of "))
