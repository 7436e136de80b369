# SPDX-License-Identifier: Apache-2.0
"""verify reports each process that sends an ioctl to NVIDIA's driver and bypasses the guard. It
reports any kind of process and any number of processes, and waits for none."""

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from support import fence, fixtures, harness, launcher, machine, verified

ASKS = fence.program("asks_static")
LOADS = fence.program("asks")  # dynamic
RM_CONTROL = "0xc020462a RM_CONTROL"
REQUEST = "\n  bypassing the guard\n    asked    ioctl " + RM_CONTROL + " to NVIDIA's driver\n"
ANOTHER = "ioctls that the fence refuses are not reported: this command is already under a fence"
NOT_HEARD = "verify may miss CUDA attempts: "
PATIENCE = 60  # seconds, then something hangs


class Case(fence.Case):
    def setUp(self):
        super().setUp()
        self.document = None

    def verify(self, *words, options=(), rc=1, **more):
        """Returns (done, what it reports: {object: {process ids}})."""
        path = self.path("verify.json")
        done = self.start("verify", "--json", path, *options, "--", *words, **more)
        self.assertEqual(done.returncode, rc, done)
        self.document = json.loads(harness.read(path))
        processes = self.document["processes"]
        reported = {}
        for one in self.document["calls"]:
            if one["api"] == "ioctl":
                numbers = reported.setdefault(one["object"], set())
                numbers.update(processes[number]["pid"] for number in one["processes"])
        return done, reported

    def asked(self, done, answer="ENODEV"):
        """The numbers of the processes that were answered so; none was otherwise."""
        answers = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual({word for _, word in answers}, {answer}, done)
        return {int(pid) for pid, _ in answers}


class Outputs(Case):
    """Each kind of output reports the process in its own words."""

    def test_verify_reports_the_process_and_its_ioctl(self):
        """The control: other ioctls are no CUDA attempt, and without a fence verify reports
        nothing."""
        done, reported = self.verify(ASKS, "ask")
        self.assertEqual(reported, {RM_CONTROL: self.asked(done)})
        self.assertIn("cudaguard: FAIL: 1 place asked for CUDA, in 1 of 1 process" + REQUEST +
                      "    process  asks_static ask (%d)\n" % next(iter(self.asked(done))),
                      done.stderr)
        self.assertIn("1 program started: 1 unguarded:", done.stderr)
        requests = [fence.program("requests_static"), "/dev/null", *fence.OTHERS]
        self.assertEqual(self.verify(*requests, rc=0)[1], {})
        done, reported = self.verify(ASKS, "ask", options=["--fence=off"], rc=3)
        self.assertEqual((reported, self.document["tree"]["doubts"]),
                         ({}, [NOT_HEARD + "--fence=off"]))
        self.asked(done, "ENOTTY")

    def test_each_nvidia_ioctl_is_reported_by_its_name(self):
        requests = [fence.program("requests_static"), "/dev/null", *fence.NVIDIA]
        done, reported = self.verify(*requests)
        self.assertEqual([int(name.split()[0], 16) for name in reported],
                         [int(one, 16) for one in fence.NVIDIA], done)
        self.assertEqual([name.split()[1] for name in reported],
                         ["RM_CONTROL", "SYS_PARAMS", "CHECK_VERSION_STR", "CARD_INFO",
                          "UVM_INITIALIZE"])

    def test_result_files_name_the_ioctl(self):
        files = {name: self.path(name) for name in ("junit", "html", "report")}
        options = [word for name, path in files.items() for word in ("--" + name, path)]
        done, _ = self.verify(ASKS, "ask", options=options)
        pid = next(iter(self.asked(done)))
        texts = {}
        for name, path in files.items():
            texts[name] = harness.read(path)
        self.assertIn('failures="1"', texts["junit"])
        self.assertIn(REQUEST, texts["junit"])
        self.assertIn("RM_CONTROL", texts["html"])
        self.validates(self.document, "launcher", "print", "verify.schema.json")
        record = json.loads(texts["report"])
        self.validates(record, "guard", "record", "record.schema.json")
        wanted = {"pid": pid, "tid": pid, "uid": os.geteuid(), "argv": [ASKS, "ask"], "exe": ASKS,
                  "api": "ioctl", "object": RM_CONTROL, "decision": "deny", "caller": "?"}
        self.assertEqual({key: record[key] for key in wanted}, wanted)
        for words, wanted in ((["report"], "RM_CONTROL bypassing the guard"),
                              (["report", "--by", "line"], "bypassing the guard\n"),
                              (["report", "--by", "exe"], ASKS)):
            self.assertIn(wanted, self.start(*words, files["report"]).stdout)
        shown = json.loads(self.start("report", "--json", "-", files["report"]).stdout)
        self.validates(shown, "launcher", "print", "report.schema.json")

    def test_limit_observe_lists_no_ioctl(self):
        """The fence of run refuses it, and reports nothing. Without a fence it passes."""
        words = ["sh", "-c", '"$0" ask; exit 7', ASKS]
        for options, answer in (["--fence"], "ENODEV"), (["--cpu"], "ENOTTY"):
            done = self.start("run", *options, "--observe", "--", *words)
            self.assertEqual((len(self.asked(done, answer)), done.returncode), (1, 7))
            self.assertIn("no process was seen to ask", done.stderr)

    def test_allow_and_deny_apply_to_ioctls(self):
        done, reported = self.verify(ASKS, "ask", options=["--allow", "asks_*"], rc=0)
        self.assertEqual(reported, {RM_CONTROL: self.asked(done)})
        self.assertIn("PASS: no CUDA use except in 1 allowed process (1 process checked)\n"
                      "  allowed: bypassing the guard\n    asked    ioctl ",
                      done.stderr)
        done, _ = self.verify(ASKS, "ask", options=["--deny", "nvml"], rc=0)
        self.assertIn("\n  CUDA was asked by 1 process: bypassing the guard (not denied)\n", done.stderr)

    def test_ioctl_of_nvml_is_no_cuda_attempt(self):
        """The code that makes the ioctl decides, and not which libraries are mapped."""
        nvml, uvm, other = ("call=" + fence.program("ioctls/" + name)
                            for name in ("libnvidia-ml.so.1", "libnvidia-ml.so.2", "libother.so"))
        unguarded = ["env", "-i", LOADS]
        by_nvml = RM_CONTROL + " (NVML)"
        done, reported = self.verify(*unguarded, nvml, rc=0)
        self.assertEqual(set(reported), {by_nvml})
        self.assertIn("\n  NVML was asked by 1 process: bypassing the guard (not denied); ", done.stderr)
        self.verify(*unguarded, nvml, options=["--deny=nvml"])
        done, reported = self.verify(*unguarded, nvml, other)
        self.assertEqual(set(reported), {by_nvml, RM_CONTROL})
        _, reported = self.verify(*unguarded, "map=" + fence.program("ioctls/libnvidia-ml.so.1"), other)
        self.assertEqual(set(reported), {RM_CONTROL})
        _, reported = self.verify(*unguarded, uvm)
        self.assertFalse([one for one in reported if "NVML" in one], reported)


class Programs(Case):
    """The kind of process makes no difference."""

    def test_storm_of_ioctls_delays_no_signal(self):
        """Requests without end: the first SIGTERM ends the program, the next one the waiting. The
        storm goes on: the keeper answers."""
        storm = [ASKS, "ask", "loop=2000000000"]
        verify = subprocess.Popen(
            [launcher.LAUNCHER, "verify", "--", "setsid", "-w", "sh", "-c", '"$@" & "$@" & wait',
             "-", *storm], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=launcher.environment())
        with verify:
            pids = {int(verify.stdout.readline().split()[0]) for _ in range(2)}

            def ends():
                verify.terminate()
                return verify.poll() is not None

            self.until(ends, "the launcher")
            for pid in pids:
                self.assertFalse(self.has_ended(pid))
                os.kill(pid, signal.SIGKILL)
            _, err = verify.communicate(timeout=PATIENCE)
        self.assertEqual(verify.returncode, 1, err)
        self.assertIn(REQUEST, err)
        for pid in pids:
            self.assertRegex(err, r"(?s)not waited for: .*asks_static \(%d\)" % pid)

    def test_ioctl_of_an_i386_program_is_reported(self):
        words = [fence.program("freestanding"), "/dev/null", "c020462a"]
        try:
            self.assertEqual(self.unguarded(*words).stdout, "c020462a ENOTTY\n")
        except OSError:
            self.skipTest("no i386 programs here")
        done, reported = self.verify(*words)
        self.assertEqual((done.stdout, set(reported)), ("c020462a ENODEV\n", {RM_CONTROL}))

    def test_ioctl_of_another_user_is_reported(self):
        machine.need("other_users", "other_users_processes")
        self.need("setpriv")
        program = shutil.copy(ASKS, self.path("asks_static"))
        report = self.path("report")
        done, reported = self.verify(*machine.AS_NOBODY, program, "ask", options=["--report", report])
        self.assertEqual(reported, {RM_CONTROL: self.asked(done)})
        record = [one for one in harness.records(report) if one.get("api")][0]
        self.assertEqual((record["uid"], record["exe"]), (machine.NOBODY, program))

    def test_proc_of_another_namespace_names_no_wrong_process(self):
        """If /proc has other process ids than the kernel reports, the launcher names no process by
        such an id. The control: with the right /proc it names the program."""
        self.need("unshare")
        last = "/proc/sys/kernel/ns_last_pid"
        unshare = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-pf"]
        if self.unguarded(*unshare, "sh", "-c", "cat %s >%s" % (last, last)).returncode != 0:
            self.skipTest("no PID namespace, or its next number cannot be set")
        other = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        path = self.path("verify.json")
        inside = "echo %%d >%s; exec %s verify --json %s -- %s ask" % (
            last, launcher.LAUNCHER, path, ASKS)
        blind = ASKS + " may not be guarded; to accept it: --allow program:asks_static"
        for option, command, doubts in ((["--mount-proc"], "asks_static ask", []), ([], "?", [blind])):
            # A first run shows how many processes the launcher starts before the program: that
            # depends on the kernel and on /proc.
            pid = other.pid
            for _ in range(2):
                done = self.unguarded(*unshare, *option, "sh", "-c", inside % pid)
                (asked,) = self.asked(done)
                pid -= asked - other.pid
            self.assertEqual(self.asked(done), {other.pid})
            document = json.loads(harness.read(path))
            self.assertEqual([one["command"] for one in document["processes"]], [command])
            self.assertEqual(document["tree"]["doubts"], doubts)


make_programs_case = fixtures.lent("programs_case", Programs)


@pytest.mark.parametrize(("steps", "records"), [
    (["thread", "thread", "ask"], 1),
    # The process id stays the same, and each program is reported.
    (["ask", "exec", "ask"], 2),
    # The record is that of the first ioctl, and of the first size of a number.
    (["ask", "loop=%d" % (100000 if harness.FULL else 3000), "sizes=2000"], 1)])
def test_each_program_of_a_process_makes_one_record(programs_case, steps, records):
    done, reported = programs_case.verify(ASKS, *steps)
    assert reported == {RM_CONTROL: programs_case.asked(done)}
    assert programs_case.document["records"]["read"] == records


def test_many_short_processes_are_all_reported(programs_case):
    """They are unguarded, and only the listener sees most of them."""
    count = 1000 if harness.FULL else 200
    script = 'i=0; while [ $i -lt %d ]; do env -i "$0" ask & i=$((i+1)); done; wait' % count
    done, reported = programs_case.verify("sh", "-c", script, ASKS)
    pids = programs_case.asked(done)
    assert (len(pids), reported) == (count, {RM_CONTROL: pids})
    assert ", in {:,} of ".format(count) in done.stderr
    unguarded = {one["pid"] for one in programs_case.document["tree"]["unguarded"]}
    assert pids <= unguarded
    assert programs_case.document["tree"]["doubts"] == []


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_launcher_answers_with_descriptors_0_to_2_closed(programs_case, closed):
    """The launcher's own descriptors are none of 0 to 2, which it gives up. The launcher sleeps
    while no process asks."""
    programs_case.need("strace")
    log, answer = programs_case.path("trace"), programs_case.path("answer")
    inside = "sleep 0.5; exec %s ask >%s" % (ASKS, answer)
    for name in (log, answer):
        programs_case.make(os.path.basename(name), "")
    programs_case.unguarded("strace", "-o", log, "-e", "trace=ppoll", "--", "sh", "-c",
                            'exec "$0" "$@" ' + closed, launcher.LAUNCHER, "verify", "--", "sh",
                            "-c", inside)
    assert re.search(r"\A\d+ ENODEV\n\Z", harness.read(answer))
    lines = harness.read(log).count("\n")
    assert 0 < lines < 200, str(lines)


class OtherListeners(Case):
    """Another launcher gets the kernel's notifications, or no process gets them."""

    def test_only_the_outermost_launcher_reports(self):
        """The inner launchers print that they get no notifications."""
        def words(*inner):
            return [launcher.LAUNCHER, *inner, "--", ASKS, "ask"]
        done, reported = self.verify(*words("run", "--fence"))
        self.assertEqual(reported, {RM_CONTROL: self.asked(done)})
        done, reported = self.verify(*words("verify"))
        self.assertEqual(reported, {RM_CONTROL: self.asked(done)})
        self.assertIn(NOT_HEARD + "another process has", " ".join(done.stderr.split()))
        self.assertIn("INCOMPLETE", done.stderr)  # the inner one's

    def test_verify_under_an_outer_fence_is_incomplete(self):
        """Its filter refuses the ioctls before the listener receives them. The control: without the
        outer fence, each process fails the run."""
        outer = [launcher.LAUNCHER, "run", "--fence", "--", launcher.LAUNCHER]
        for options, words in (([], [ASKS, "ask"]), (["--strict"], [LOADS, "ask"])):
            _, reported = self.verify(*words, options=options)
            self.assertEqual(set(reported), {RM_CONTROL})
            done, reported = self.verify(*words, options=options, before=outer, rc=3)
            self.asked(done)
            tree = self.document["tree"]
            self.assertEqual((reported, tree["why_unheard"]), ({}, ANOTHER))
            self.assertIn(ANOTHER, tree["doubts"])
            shown = " ".join(done.stderr.split())
            self.assertEqual(shown.count(ANOTHER), 1, shown)
            self.assertIn("INCOMPLETE", shown)
            self.assertNotIn("the result lists its ioctls", shown)
        self.assertEqual(tree["value"], "all_guarded")
        script = self.make("script", "#!/usr/bin/env -S -i /bin/sh\nexit 0\n")
        done = self.unguarded(*outer, "verify", "--", script)
        self.refused(done, 125, "may not be guarded, because its #! line")

    def test_ioctl_that_signals_interrupt_is_reported_once(self):
        """The process repeats its ioctl. Before Linux 5.19 a signal interrupts it at any time,
        since then only until the launcher has read the notification."""
        for rules in ([], ["killable=%d" % errno.EINVAL]):
            before = [fence.program("without"), *rules, "--", launcher.LAUNCHER]
            _, reported = self.verify(ASKS, "timer", "loop=5000", before=before)
            self.assertEqual(self.document["program"]["exit_code"], 0)
            self.assertEqual((set(reported), self.document["records"]["read"]), ({RM_CONTROL}, 1))
            self.assertEqual(self.document["tree"]["doubts"], [])

    def test_launcher_that_cannot_receive_blocks_no_process(self):
        """Nor does the keeper: both close the listener, so that no process waits. The result is not
        PASS, as before Linux 5.5."""
        before = [fence.program("without"), "receive=%d" % errno.EINVAL, "--", launcher.LAUNCHER]
        done, reported = self.verify(ASKS, "ask", "ask", rc=3, before=before)
        self.asked(done, "ENOSYS")
        self.assertEqual((reported, self.document["tree"]["doubts"]),
                         ({}, ["programs may be missing: the kernel does not report each start "
                               "(Linux 5.5)", "some records were not received or not written"]))

    def test_result_says_that_the_fence_cannot_be_set_up(self):
        """There is no other message."""
        denied = ["seccomp=%d" % errno.EPERM, "prctl=%d" % errno.EPERM]
        before = [fence.program("without"), *denied, "--", launcher.LAUNCHER]
        done, reported = self.verify(ASKS, "ask", rc=3, before=before)
        self.asked(done, "ENOTTY")
        why = (NOT_HEARD + "the fence cannot be set up: another seccomp filter, or a container's "
               "profile, forbids it")
        self.assertEqual((reported, self.document["tree"]["why_unheard"]), ({}, why))
        self.assertNotIn("--fence", done.stderr)
        done = self.unguarded(*before, "verify", "--fence=require", "--", ASKS, "ask")
        self.refused(done, 125, "--fence=require: the fence cannot be set up: ")

    def start(self, *words, before=(), **more):
        """`before`: the launcher, and what stands in front of it."""
        return self.unguarded(*before, *words) if before else super().start(*words, **more)


make_other_listeners = fixtures.lent("other_listeners", OtherListeners)


@pytest.mark.parametrize(
    ("rule", "why"),
    [("busy", "another process has the kernel's notifications"),
     ("listener=%d" % errno.EINVAL, "this kernel sends no notifications"),
     ("listener=%d" % errno.EPERM, "another seccomp filter, or a container's profile, forbids it"),
     ("listener=%d" % errno.EMFILE, "the kernel says: Too many open files")])
def test_fence_holds_if_the_kernel_sends_no_notifications(other_listeners, rule, why):
    """The result names what is not known."""
    before = [fence.program("without"), rule, "--", launcher.LAUNCHER]
    done, reported = other_listeners.verify(ASKS, "ask", rc=3, before=before)
    other_listeners.asked(done)
    tree = other_listeners.document["tree"]
    assert (reported, tree["why_unheard"], tree["doubts"]) == ({}, NOT_HEARD + why,
                                                               [NOT_HEARD + why])
    assert "in doubt: " + NOT_HEARD + why in " ".join(done.stderr.split())


@pytest.mark.parametrize(("rules", "command"),
                         [(["valid=%d" % errno.ENOENT], "?"), ([], "asks_static thread ask")])
def test_process_that_is_killed_meanwhile_counts_once(other_listeners, rules, command):
    """A process that is killed while the launcher looks at it has a record with its process id
    alone."""
    before = [fence.program("without"), *rules, "--", launcher.LAUNCHER]
    done, reported = other_listeners.verify(ASKS, "thread", "ask", before=before)
    assert reported == {RM_CONTROL: other_listeners.asked(done)}
    assert [one["command"] for one in other_listeners.document["processes"]] == [command]
    assert other_listeners.document["records"]["read"] == 1
    assert other_listeners.document["tree"]["doubts"] == []


class Gone(Case):
    """The process that waits may be killed, and so may the launcher."""

    def popen(self, *words):
        process = subprocess.Popen(
            [launcher.LAUNCHER, "verify", "--", *words], stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=launcher.environment())
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def file(self, name):
        if not os.path.exists(self.path(name)):
            return ""
        return harness.read(self.path(name))

    def waits(self, pid):
        """In a request: the kernel's place says so."""
        if "seccomp" in harness.read("/proc/%d/wchan" % pid):
            return True
        return "0xc020462a" in harness.read("/proc/%d/syscall" % pid)

    def stop(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            self.until(lambda one=pid: self.state(one) == "T", "the stop")

    def unanswered(self, script):
        """The launcher and its keeper, which are stopped, and the script's child, which waits for
        the answer to its ioctl."""
        process = self.popen("sh", "-c", script, ASKS, self.directory, launcher.LAUNCHER)
        self.until(lambda: self.file("child").endswith("\n"), "the child")
        child = int(self.file("child"))
        keeper = verified.keeper_of(self, process.pid)
        self.stop(process.pid, keeper)
        self.make("go", "")
        self.until(lambda: self.waits(child), "the request")
        return process, keeper, child

    def test_limit_ioctl_of_a_killed_process_is_not_reported(self):
        """No other process is harmed. Documented: the launcher does not report the ioctl, because it
        has not read the notification."""
        script = 'echo $$ >"$1/pid"; "$0" "wait=$1/go" ask & echo $! >"$1/child"; wait $!; echo $?; "$0" ask'
        process, keeper, child = self.unanswered(script)
        os.kill(child, signal.SIGKILL)
        # The kernel takes the notification back when the child dies.
        self.until(lambda: self.has_ended(child), "its death")
        process.send_signal(signal.SIGCONT)
        # On a busy machine the launcher may have finished, and killed the keeper.
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(out, r"\A137\n\d+ ENODEV\n\Z")
        self.assertEqual(re.findall(r"process  .* \((\d+)\)", err), [out.split()[1]])

    def has_begun(self, pid):
        return harness.read("/proc/%d/comm" % pid).strip() == os.path.basename(ASKS)

    def has_signals(self, pid):
        return "\nShdPnd:\t0000000000000000\n" not in harness.read("/proc/%d/status" % pid)

    def test_ioctls_are_refused_after_the_launchers_death(self):
        """An ioctl that waits already, and a later one. A launcher inside finds the fence."""
        script = ('{ "$0" "wait=$1/go" ask "wait=$1/later" ask >"$1/out";'
                  ' "$2" run --policy OFF -- true 2>"$1/err"; } & echo $! >"$1/shell";'
                  ' until pgrep -P $! >"$1/child"; do sleep 0.01; done; wait')
        process, keeper, child = self.unanswered(script)
        process.kill()
        process.wait(timeout=PATIENCE)
        os.kill(keeper, signal.SIGCONT)
        self.until(lambda: self.file("out"), "an answer")
        self.make("later", "")
        self.until(lambda: self.file("out") == "%d ENODEV\n" % child * 2, "another one")
        self.until(lambda: "already under a fence" in self.file("err"), "the message")

    def test_process_killed_in_a_storm_is_reported_once(self):
        """A reported process that dies while it asks again is no second process, nor a doubt."""
        count = 500 if harness.FULL else 50
        script = ('i=0; while [ $i -lt %d ]; do "$0" ask loop=2000000000 >"$1" & '
                  'read -r line <"$1"; kill -KILL $!; wait $!; echo "$line"; i=$((i+1)); '
                  'done' % count)
        os.mkfifo(self.path("pipe"))
        done, reported = self.verify("sh", "-c", script, ASKS, self.path("pipe"))
        pids = self.asked(done)
        self.assertEqual((len(pids), reported), (count, {RM_CONTROL: pids}))
        self.assertEqual(len(self.document["processes"]), count + 1)  # the shell
        self.assertEqual(self.document["tree"]["doubts"], [])

    @pytest.mark.needs("ordinary_user", "new_privileges")
    def test_failure_names_no_new_privs(self):
        """Where the program failed, the block says what the fence took from it."""
        row = ("  sudo and setuid programs got no more rights under the fence (no_new_privs); "
               "--fence=off avoids\n  this\n")
        words = [*self.ordinary_user(), "verify"]
        for option, code, is_printed in (("--fence=auto", 3, True), ("--fence=auto", 0, False),
                                         ("--fence=off", 3, False)):
            done = self.unguarded(*words, option, "--", "sh", "-c", "exit %d" % code)
            self.assertEqual(done.returncode, 2 if code else 3 if option == "--fence=off" else 0, done)
            self.assertEqual(row in done.stderr, is_printed, done)
        # Without the fence, verify refuses such a program.
        machine.need("setuid_programs")
        program = shutil.copy(launcher.program("exits_7"), self.path("privileged"))
        os.chmod(program, 0o4755)
        done = self.unguarded(*words, "--", program)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("(no_new_privs); to check it: sudo cudaguard verify -- PROGRAM",
                      " ".join(done.stderr.split()))


make_gone = fixtures.lent("gone", Gone)


@pytest.mark.parametrize(("step", "first"), [("restart", "ENODEV"), ("no-restart", "EINTR")])
def test_limit_handler_without_sa_restart_gets_eintr(gone, step, first):
    """The control: with SA_RESTART the ioctl goes on. Only a call that nobody has received yet can
    be interrupted, so the keeper is stopped, too."""
    process = gone.popen("sh", "-c", 'echo $$ >"$1"; exec "$0" "$2" "wait=$3" ask ask', ASKS,
                         gone.path("pid-" + step), step, gone.path(step))
    gone.until(lambda name="pid-" + step: gone.file(name).endswith("\n"), "its number")
    pid = int(gone.file("pid-" + step))
    gone.until(lambda one=pid: gone.has_begun(one), "the program")  # execve, too, is a request
    gone.stop(process.pid, verified.keeper_of(gone, process.pid))
    gone.make(step, "")
    gone.until(lambda one=pid: gone.waits(one), "the request")
    os.kill(pid, signal.SIGALRM)
    gone.until(lambda one=pid: not gone.has_signals(one), "the handler")
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE)
    assert out == "%d %s\n%d ENODEV\n" % (pid, first, pid), str(err)
    assert process.returncode == 1, str(err)
