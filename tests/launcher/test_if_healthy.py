# SPDX-License-Identifier: Apache-2.0
"""`run --if-healthy` and `doctor --gpu`: the program gets CUDA only if the driver answers in time."""

import concurrent.futures
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from support import doctor, fixtures, harness, launcher, machine, messages

SICK_NVML = harness.public(os.path.join(harness.FAKES, "sick_nvml"))
LAUNCHER = launcher.public_launcher()
NOBODY = "65534"
SHOW = ["sh", "-c", 'echo "$CUDAGUARD_POLICY list=$CUDAGUARD_VISIBLE_DEVICES"']
ON_CPU = "FORCE_CPU list=\n"


def limit_for(illness):
    """In seconds: only a driver that hangs has a short time limit."""
    return "1" if illness and re.search("hangs|ignores signals", illness) else "60"


class Case(doctor.Case):
    """An ordinary user starts the launcher, which keeps its answers in run/."""

    user = NOBODY if os.geteuid() == 0 else None
    mounts = ()  # the sandbox has them

    def setUp(self):
        super().setUp()
        machine.need("ordinary_user")
        os.mkdir(self.path("run"))
        self.driver = self.path("driver")
        os.mkdir(self.driver)
        self.copied("two_gpus/libcuda.so.1", "driver/libcuda.so.1")
        self.asked = self.path("asked")
        if self.user:
            for directory in (self.directory, self.path("run")):
                os.chown(directory, int(self.user), -1)

    def box(self):
        """A driver with eight GPUs. No other test has asked this copy."""
        return shutil.copytree(os.path.join(harness.FAKES, "lazy"), self.path("box"))

    def environment(self, **env):
        return launcher.environment(**{"LD_LIBRARY_PATH": self.driver, "CG_ASKED": self.asked,
                                       "XDG_RUNTIME_DIR": self.path("run"), **env})

    def as_user(self):
        return ["setpriv", "--reuid", self.user, "--clear-groups"] if self.user else []

    def run_here(self, command, bwrap=(), user=None, **env):
        """(code, stdout, stderr) of the command"""
        return self.run_in(command, bwrap=[*self.mounts, *bwrap], user=user or self.user,
                           env=self.environment(**env))[:3]

    def launch(self, *words, **more):
        return self.run_here([LAUNCHER, *words], **more)

    def run_if(self, value=None, words=(), **env):
        if value is None:
            value = limit_for(env.get("CG_SICK_NVML") or env.get("CG_SICK"))
        option = "--if-healthy" + ("=" + value if value else "")
        return self.launch("run", option, *words, "--", *SHOW, **env)

    def on_cpu(self, reason, *words, **env):
        code, out, err = self.run_if(words=words, **env)
        self.assertEqual((code, out), (0, ON_CPU), err)
        self.assertEqual(err, "cudaguard: --if-healthy: %s; the program runs without CUDA\n" % reason)

    def on_gpu(self, *words, policy="VALIDATE list=\n", **env):
        self.assertEqual(self.run_if("60", words, **env), (0, policy, ""))

    def number_of_questions(self):
        if not os.path.exists(self.asked):
            return 0
        with open(self.asked, encoding="utf-8") as stream:
            return len(stream.readlines())

    def forget(self):
        for name in os.listdir(self.path("run", "cudaguard")):
            os.unlink(self.path("run", "cudaguard", name))

    def answer(self):
        """The path of the one answer."""
        directory = self.path("run", "cudaguard")
        names = [name for name in os.listdir(directory) if "." not in name]
        self.assertEqual(len(names), 1, os.listdir(directory))
        return os.path.join(directory, names[0])


make_case = fixtures.lent("case", Case)


class Decision(Case):
    def test_healthy_driver_gives_the_program_cuda(self):
        self.on_gpu()
        self.on_gpu(LD_LIBRARY_PATH=self.box())

    def test_driver_that_forks_is_healthy_and_its_child_is_killed(self):
        # On a busy machine a killed process lives on for a moment. The user can read its maps.
        script = ('grep -q /libc.so /proc/$$/maps || exit 9; "$@"; timeout 60 sh -c "while grep -qs '
                  '%s/libcuda.so.1 /proc/[0-9]*/maps; do sleep 0.1; done"' % self.driver)
        ends = self.run_here(
            ["sh", "-c", script, "-", LAUNCHER, "run", "--if-healthy=60", "--", "true"],
            CG_SICK="forks")
        self.assertEqual(ends, (0, "", ""))

    def test_stuck_probe_is_abandoned_and_never_a_child_of_the_program(self):
        machine.need("tracing")
        script = 'cat /proc/$$/task/$$/children; ls /proc/$$/fd'
        code, out, err = self.launch("run", "--if-healthy=1", "--", "sh", "-c", script,
                                     LD_LIBRARY_PATH=self.sick(), CG_SICK="stuck")
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"\Acudaguard: --if-healthy: the driver did not answer in 1 s "
                         r"\(cuInit\); the program runs without CUDA; process \d+, which asked the "
                         r"driver, survives SIGKILL\n\Z")
        control = self.launch("run", "--", "sh", "-c", script)[1]
        self.assertEqual(len(out.split()), len(control.split()), (out, control))

    def test_missing_program_is_refused_before_the_driver_is_asked(self):
        code, out, err = self.launch("run", "--if-healthy=30", "--", "no-such-program",
                                     PATH="/usr/bin")
        self.assertEqual((code, out, self.number_of_questions()), (127, "", 0), err)

    def test_require_refuses_to_start(self):
        code, out, err = self.run_if("60,require", CG_SICK="no GPU")
        self.assertEqual((code, out, err), (
            125, "", "cudaguard: --if-healthy: the driver shows no GPU; nothing was started\n"))
        self.assertEqual(self.run_if("require,fresh")[:2], (0, "VALIDATE list=\n"))

    def test_message_of_a_program_does_not_advise_to_use_the_broken_driver(self):
        """With the policy OFF, the program would hang as the driver does."""
        ask = ["python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]
        remedy = messages.text("remedy_driver")
        for inner in ([], [LAUNCHER, "run"], [LAUNCHER, "run", "--cpu"]):
            code, _, err = self.launch("run", "--if-healthy=60", *inner, *ask, CG_SICK="no GPU")
            self.assertEqual((code, len(messages.find(err, "no_cuda", remedy=remedy))), (0, 1), err)
        control = self.launch("run", "--cpu", "--", *ask, CG_SICK="no GPU")
        self.assertTrue(messages.find(control[2], "no_cuda", remedy="cudaguard run --policy OFF"))

    def test_message_of_a_program_blames_the_driver_only_for_its_faults(self):
        """Nor is it to blame if another launch has kept the answer."""
        ask = ["python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]
        for options in (["--gpus", "7"], ["--gpus", "7"], ["--gpus", ""]):
            code, _, err = self.launch("run", "--if-healthy=60", *options, "--", *ask)
            self.assertIn("; the program runs without CUDA\n", err)
            found = messages.find(err, "no_cuda", remedy="cudaguard run --policy OFF")
            self.assertEqual((code, len(found)), (0, 1), err)
        self.assertEqual(self.number_of_questions(), 1)
        words = ["run", "--if-healthy=60", "--", *ask]
        code, _, err = self.run_here(["sh", "-c", 'ulimit -n 8; exec "$0" "$@"', LAUNCHER, *words])
        self.assertIn("the driver was not asked", err)
        self.assertNotIn(messages.text("remedy_driver"), err)

    def test_policy_word_of_the_environment_asks_the_driver(self):
        words = ("run", "--", *SHOW)
        self.assertEqual(self.launch(*words, CUDAGUARD_POLICY="IF_HEALTHY"),
                         (0, "VALIDATE list=\n", ""))
        code, out, err = self.launch(*words, CUDAGUARD_POLICY="if_healthy", CG_SICK="no GPU",
                                     CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.assertEqual((code, out), (0, ON_CPU))
        self.assertEqual(err, "cudaguard: CUDAGUARD_POLICY=IF_HEALTHY: the driver shows no GPU; the "
                         "program runs without CUDA\n")
        self.assertEqual(self.launch(*words, CUDAGUARD_POLICY="if-healthy")[1],
                         "VALIDATE list=\n")
        # An option is stronger.
        self.assertEqual(self.launch("run", "--policy", "CLAMP", "--", *SHOW,
                                     CUDAGUARD_POLICY="IF_HEALTHY")[1], "CLAMP list=\n")

    def test_log_off_silences_the_message(self):
        self.assertEqual(self.run_if(words=("--log", "off"), CG_SICK="fails"), (0, ON_CPU, ""))

    def test_contradictions_are_refused(self):
        for other in ("--cpu", "--policy=OFF", "--fence", "--print"):
            code, out, err = self.run_if(words=(other,))
            self.assertEqual((code, out), (125, ""))
            self.assertEqual(err, "cudaguard: --if-healthy and %s contradict each other; leave one "
                             "out\n" % other.split("=", maxsplit=1)[0])
        self.assertEqual(self.number_of_questions(), 0)


@pytest.mark.parametrize(("sick", "policies"), [
    ("", "VALIDATE FORCE_CPU\n"), ("fails", "FORCE_CPU unset\n")])
def test_children_option_holds_if_the_driver_is_healthy(case, sick, policies):
    show = ["--", "sh", "-c", 'echo "$CUDAGUARD_POLICY ${CUDAGUARD_CHILDREN-unset}"']
    code, out, err = case.launch("run", "--if-healthy=60,fresh", "--children=cpu", *show,
                                 CG_SICK=sick)
    assert (code, out) == (0, policies), err


# {a driver: {its illness: the reason}}
ILLNESSES = {
    "driver": {
        "hangs in count": "the driver did not answer in 1 s (cuDeviceGetCount)",
        "hangs for GPU 1": "the driver did not answer in 1 s (the calls about GPU 1)",
        "fails in count": "cuDeviceGetCount failed with 3 (CUDA_ERROR_NOT_INITIALIZED) after ",
        "no GPU": "the driver shows no GPU",
        "closes descriptors": "libcuda.so.1 does not work: the probe ended without an answer",
        "signals itself": "the driver crashed (SIGTERM in cuInit)",
        "fails": "cuInit failed with 999 (CUDA_ERROR_UNKNOWN) after "},
    "sick": {
        "hangs when loaded": "the driver did not answer in 1 s (while it was loaded)",
        "ignores signals": "the driver did not answer in 1 s (cuInit)",
        "crashes": "the driver crashed (SIGSEGV in cuInit)",
        "exits": "libcuda.so.1 does not work: the probe ended without an answer"},
    "none": {"": "libcuda.so.1 does not work: error while loading shared libraries: libcuda.so.1: "
             "cannot open shared object file: No such file or directory"}}


@pytest.mark.parametrize(("driver", "illness", "reason"), [
    (driver, *row) for driver, rows in ILLNESSES.items() for row in rows.items()])
def test_each_illness_is_the_reason_for_force_cpu(case, driver, illness, reason):
    case.sick()
    code, out, err = case.run_if(limit_for(illness) + ",fresh", CG_SICK=illness,
                                 LD_LIBRARY_PATH=case.path(driver))
    assert (code, out) == (0, ON_CPU), err
    assert err.startswith("cudaguard: --if-healthy: " + reason), err
    assert err.endswith("; the program runs without CUDA\n"), err


@pytest.mark.parametrize(("fault", "reason"), [
    ("hangs", "the driver did not answer in 1 s (nvmlInit)"),
    ("crashes", "the driver crashed (SIGSEGV in nvmlInit)")])
def test_nvml_that_hangs_or_crashes_is_not_healthy(case, fault, reason):
    both = SICK_NVML + ":" + case.driver
    case.on_cpu(reason, LD_LIBRARY_PATH=both, CG_SICK_NVML=fault)
    assert case.launch("doctor", "--gpu", LD_LIBRARY_PATH=both, CG_SICK_NVML=fault,
                       **doctor.WAIT)[:2] == (1, "driver: not healthy: %s\n" % reason)


@pytest.mark.parametrize("fault", [None, "fails"])
def test_control_nvml_that_answers_is_healthy(case, fault):
    """Its error does not count, because a container may have CUDA alone."""
    both = SICK_NVML + ":" + case.driver
    case.on_gpu(LD_LIBRARY_PATH=both, CG_SICK_NVML=fault)


class RootsCase(Case):
    """Root starts the launcher. Its answers are in /run, which is run/ in a sandbox."""

    user = None

    def setUp(self):
        super().setUp()
        machine.need("sandbox")
        self.mounts = ["--bind", self.path("run"), "/run"]

    def environment(self, **env):
        return super().environment(**{"XDG_RUNTIME_DIR": "/run", **env})  # not used by root


class RealDriver(RootsCase):
    def test_driver_without_a_gpu_is_not_healthy_and_makes_no_device_node(self):
        self.need_real_driver()
        code, out, err, nodes = self.run_in(
            [LAUNCHER, "run", "--if-healthy", "--", *SHOW], world="real", bwrap=self.mounts,
            env=launcher.environment())
        self.assertEqual((code, out, nodes), (0, ON_CPU, []), err)
        self.assertRegex(err, r"cuInit failed with 100 \(CUDA_ERROR_NO_DEVICE\) after \d+")


class List(Case):
    def test_listed_gpus_are_checked(self):
        self.on_gpu("--gpus", "1", policy="VALIDATE list=1\n")
        self.on_cpu("GPU 7 is not there", "--gpus", "0,7")
        self.on_cpu("GPU 2 is not there", CUDAGUARD_VISIBLE_DEVICES="2")

    def test_gpu_that_is_not_listed_may_be_sick(self):
        self.on_gpu("--gpus", "0", policy="VALIDATE list=0\n", CG_SICK="hangs for GPU 1")
        self.on_cpu("the driver did not answer in 1 s (the calls about GPU 1)", "--gpus", "1",
                    CG_SICK="hangs for GPU 1")

    def test_beginning_of_a_uuid_is_checked(self):
        uuid = "c7750e1d-3b"
        box = self.box()
        self.on_gpu("--gpus", "GPU-" + uuid, LD_LIBRARY_PATH=box,
                    policy="VALIDATE list=GPU-%s\n" % uuid)
        self.on_cpu("GPU-ffffffff is not there", "--gpus", "GPU-ffffffff", LD_LIBRARY_PATH=box)

    def test_list_that_cannot_be_checked_is_refused(self):
        for value in ("0,GPU-5", "0,0", "x"):
            code, out, err = self.run_if(words=("--gpus", value))
            self.assertEqual((code, out), (125, ""), err)
            self.assertIn("--if-healthy cannot check --gpus \"%s\": " % value, err)
        for words, name in ((["run", "--if-healthy", "--", *SHOW], "--if-healthy"),
                            (["doctor", "--gpu"], "doctor --gpu")):
            code, out, err = self.launch(*words, CUDAGUARD_VISIBLE_DEVICES="x")
            self.assertEqual((code, out), (125, ""), err)
            self.assertIn('%s cannot check CUDAGUARD_VISIBLE_DEVICES="x": ' % name, err)


class Cache(Case):
    def test_later_launches_use_the_recorded_answer(self):
        for _ in range(3):
            self.on_gpu()
        self.assertEqual(self.number_of_questions(), 1)
        self.on_gpu(CUDA_VISIBLE_DEVICES="1")
        self.assertEqual(self.number_of_questions(), 2, "another list asks again")
        self.run_if("60,fresh")
        self.assertEqual(self.number_of_questions(), 3, "fresh asks again")

    def test_bad_answer_is_used_again_if_the_limit_is_not_longer(self):
        sick = {"CG_SICK": "hangs in count"}
        self.on_cpu("the driver did not answer in 1 s (cuDeviceGetCount)", **sick)
        self.assertRegex(self.run_if(**sick)[2], r"^cudaguard: --if-healthy: the driver did not "
                         r"answer in 1 s \(cuDeviceGetCount\) \(asked \d+ s ago; to ask again: "
                         r"--if-healthy=fresh\); the program runs without CUDA\n$")
        self.assertEqual(self.number_of_questions(), 1)
        self.assertEqual(self.run_if("60")[:2], (0, "VALIDATE list=\n"))
        self.assertEqual(self.number_of_questions(), 2)

    def words(self, *command, **env):
        """The command line of run_here()."""
        return [*harness.sandbox("none"), *self.as_user(), "env", "-i",
                *map("%s=%s".__mod__, self.environment(**env).items()), *command]

    def parallel(self, illness):
        """Like run_if(), for many at a time."""
        done = self.unguarded(*self.words(
            LAUNCHER, "run", "--if-healthy=3" if illness else "--if-healthy=60", "--", *SHOW,
            CG_SICK=illness))
        return done.returncode, done.stdout

    def test_launch_that_is_killed_does_not_block_the_next(self):
        words = self.words("sh", "-c", 'echo $$; exec "$@"', "sh", LAUNCHER, "run",
                           "--if-healthy=60", "--", *SHOW, CG_SICK="hangs in count")
        with subprocess.Popen(words, stdout=subprocess.PIPE) as first:
            number = int(first.stdout.readline())
            self.until(self.number_of_questions, "the question")
            os.kill(number, signal.SIGKILL)
        self.assertEqual(self.run_if("60")[:2], (0, "VALIDATE list=\n"))
        self.assertEqual(self.number_of_questions(), 2)

    def forged(self, change, owner_stays=True, **more):
        """Fails unless an answer "healthy" after `change` is not believed."""
        self.on_gpu()
        owner = os.stat(self.answer()).st_uid
        change(self.answer())
        if owner_stays:
            os.chown(self.answer(), owner, -1, follow_symlinks=False)
        questions = self.number_of_questions()
        self.on_cpu("the driver shows no GPU", CG_SICK="no GPU", **more)
        self.assertEqual(self.number_of_questions(), questions + 1)
        self.forget()

    def rewrite(self, **fields):
        def change(path):
            with open(path, encoding="utf-8") as stream:
                answer = json.load(stream)
            answer.update(fields)
            with open(path, "w", encoding="utf-8") as stream:
                json.dump(answer, stream)
        return change

    def test_control_answer_is_believed_although_the_driver_is_sick_now(self):
        self.on_gpu()
        self.on_gpu(CG_SICK="no GPU")
        self.rewrite(took=100000)(self.answer())
        self.on_gpu(CG_SICK="no GPU")

    @pytest.mark.needs("other_users")
    def test_another_users_answer_is_not_believed(self):
        self.forged(lambda path: os.chown(path, 65533, 65533), owner_stays=False)

    def test_answer_is_for_its_user_alone(self):
        self.on_gpu()
        self.assertEqual(os.stat(self.answer()).st_mode & 0o777, 0o600)

    def test_without_a_directory_each_launch_asks(self):
        with open(self.path("run", "cudaguard"), "w", encoding="utf-8"):
            pass
        for _ in range(2):
            self.on_gpu()
        self.assertEqual(self.number_of_questions(), 2)


@pytest.mark.needs("root")
class Roots(RootsCase):

    @pytest.mark.needs("other_users")
    def test_users_believe_roots_answer_and_not_each_other(self):
        os.chmod(self.path("run"), 0o755)
        os.makedirs(self.path("run", "user"))
        os.chmod(self.path("run", "user"), 0o777)

        def as_user(illness, uid):
            os.makedirs(self.path("run", "user", uid), exist_ok=True)
            os.chown(self.path("run", "user", uid), int(uid), int(uid))
            return self.launch("run", "--if-healthy=60", "--", *SHOW, user=uid, CG_SICK=illness,
                               XDG_RUNTIME_DIR="/run/user/" + uid)[1]
        self.assertEqual(as_user("no GPU", "65534"), ON_CPU)
        self.assertEqual(as_user("", "65533"), "VALIDATE list=\n")
        self.assertEqual(as_user("", "65534"), ON_CPU, "its own answer is valid")
        self.on_gpu()
        self.assertEqual(as_user("no GPU", "65532"), "VALIDATE list=\n")

    def test_every_user_may_read_roots_answer_whatever_the_umask_is(self):
        command = ["sh", "-c", 'umask 077; "$@"', "sh", LAUNCHER, "run", "--if-healthy", "true"]
        self.assertEqual(self.run_here(command)[0], 0)
        self.assertEqual(os.stat(self.path("run", "cudaguard")).st_mode & 0o777, 0o755)
        self.assertEqual(os.stat(self.answer()).st_mode & 0o777, 0o644)

    @pytest.mark.needs("other_users")
    def test_the_younger_of_two_answers_is_valid(self):
        os.makedirs(self.path("run", "own"))
        os.chown(self.path("run", "own"), int(NOBODY), -1)
        os.chmod(self.path("run"), 0o755)

        def as_user():
            return self.launch("run", "--if-healthy=60", "--", *SHOW, user=NOBODY,
                               XDG_RUNTIME_DIR="/run/own")[1]
        self.assertEqual(as_user(), "VALIDATE list=\n")
        self.launch("doctor", "--gpu", CG_SICK="no GPU")
        self.assertEqual(as_user(), ON_CPU)


make_cache = fixtures.lent("cache", Cache)


@pytest.mark.parametrize(("illness", "wanted"), [
    ("hangs in count", ON_CPU), ("", "VALIDATE list=\n")])
def test_many_launches_share_one_question(cache, illness, wanted):
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        before = cache.number_of_questions()
        ends = list(pool.map(lambda _: cache.parallel(illness), range(24)))
        assert {out for _, out in ends} == {wanted}, ends
        assert cache.number_of_questions() == before + 1
        cache.forget()


@pytest.mark.parametrize("fields", [
    {"at": 0}, {"at": 1 << 40}, {"at": -1}, {"boot": "x"}, {"question": "x"}, {"healthy": 2},
    {"v": 2}, {"at": "now"}])
def test_answer_of_another_time_boot_or_question_is_not_believed(cache, fields):
    cache.forged(cache.rewrite(**fields))


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def link(path):
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


def pipe(path):
    os.unlink(path)
    os.mkfifo(path)


def writable(path):
    os.chmod(path, 0o666)


@pytest.mark.parametrize("change", [cut, link, pipe, writable])
def test_damaged_answer_is_not_believed(cache, change):
    cache.forged(change)


class Surroundings(Case):
    """What is special about one process or sandbox must not become the answer for all."""

    def in_shell(self, script, *bwrap):
        """Runs the script, in which "$@" is `run --if-healthy=60`; returns (code, stdout, stderr)."""
        return self.run_here(["bash", "-c", 'cd "$0" && ' + script, self.directory, LAUNCHER, "run",
                              "--if-healthy=60"], bwrap)

    def test_module_that_does_not_answer_its_proc_file_cannot_block_the_launcher(self):
        os.mkfifo(self.path("version"))
        script = 'timeout 100 "$@" -- sh -c "echo started"'
        code, out, err = self.in_shell(script, "--tmpfs", "/proc/driver", "--dir",
                                       "/proc/driver/nvidia", "--bind", self.path("version"),
                                       "/proc/driver/nvidia/version")
        self.assertEqual((code, out), (0, "started\n"), err)

    def test_relative_library_path_asks_in_each_working_directory(self):
        script = ('export LD_LIBRARY_PATH=%s; cd %s && "$@" -- sh -c "echo \\$CUDAGUARD_POLICY"')
        for path in (".", "/nowhere:", "/nowhere:."):
            for directory, policy in ((self.driver, "VALIDATE"), ("/", "FORCE_CPU")):
                code, out, err = self.in_shell(script % (path, directory))
                self.assertEqual((code, out), (0, policy + "\n"), err)

    def test_shortage_of_one_process_is_no_answer_for_others(self):
        code, _, err = self.in_shell('(ulimit -n 8; "$@" -- true)')
        self.assertEqual(code, 0, err)
        self.assertIn("the driver was not asked: cannot start a process: Too many open files", err)
        self.on_gpu()

    def test_shortage_leaves_an_ignored_sigchld_ignored(self):
        script = 'trap "" CHLD; ulimit -n %d; "$@" -- grep SigIgn /proc/self/status'
        for number in (8, 64):
            code, out, err = self.in_shell(script % number)
            self.assertEqual(code, 0, err)
            self.assertTrue(int(out.split()[1], 16) & 1 << signal.SIGCHLD - 1, out)

    def test_limit_on_file_sizes_does_not_kill_the_launcher(self):
        script = 'ulimit -f 0; "$@" --report report -- sh -c "exit 3"'
        self.assertEqual(self.in_shell(script)[0], 3)  # also writes a message about CG_ASKED
        self.assertEqual(self.in_shell("ulimit -f 0; cat /proc/self/status >x")[0],
                         128 + signal.SIGXFSZ, "the control")

    def test_file_system_without_locks_does_not_delay_the_launch(self):
        self.need("strace")
        code, out, err = self.in_shell('strace -qq -o /dev/null -e inject=flock:error=ENOLCK "$@" '
                                       '-- sh -c "echo \\$CUDAGUARD_POLICY"')
        self.assertEqual((code, out), (0, "VALIDATE\n"), err)

    def is_open_elsewhere(self, path):
        """True if another process has the file open."""
        done = self.unguarded(*self.as_user(), "sh", "-c", 'find /proc/[0-9]*/fd -lname "$0"', path)
        ours = "/proc/%d/" % os.getpid()
        return any(not name.startswith(ours) for name in done.stdout.splitlines())

    def test_rest_of_a_time_limit_is_not_recorded_as_the_whole(self):
        self.on_gpu()
        lock = self.answer() + ".lock"
        os.unlink(self.answer())
        with open(lock, "wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                end = pool.submit(self.run_if, "3", CG_SICK="hangs in count")
                self.until(lambda: self.is_open_elsewhere(lock), "the wait for the lock")
                time.sleep(1.2)
                fcntl.flock(stream, fcntl.LOCK_UN)
                code, out, err = end.result()
        self.assertEqual((code, out), (0, ON_CPU), err)
        self.assertRegex(err, r"did not answer in [12] s \(cuDeviceGetCount\)")
        self.assertEqual(self.run_if("3"), (0, "VALIDATE list=\n", ""))

    def test_answer_under_a_fence_is_no_answer_for_others(self):
        code, out, err = self.launch("run", "--fence", "--", LAUNCHER, "run",
                                     "--if-healthy=60", "--", *SHOW)
        self.assertEqual((code, out), (0, ON_CPU), err)
        self.assertIn("--if-healthy: this process is under a fence (cudaguard run --fence)", err)
        self.assertEqual(self.number_of_questions(), 0)

    def test_sandbox_without_devices_does_not_use_the_answer_of_the_host(self):
        with open(self.path("node"), "w", encoding="utf-8"):
            pass
        self.on_gpu()
        self.on_gpu()
        self.assertEqual(self.number_of_questions(), 1)
        for _ in range(2):
            self.in_shell('"$@" -- true', "--bind", self.path("node"), "/dev/nvidiactl")
        self.assertEqual(self.number_of_questions(), 2)

    @pytest.mark.needs("other_users", "user_namespaces")
    def test_user_namespace_does_not_make_another_users_answer_ours(self):
        os.chmod(self.path("run"), 0o1777)

        def as_user(uid, illness, *unshare):
            return self.run_here([*unshare, LAUNCHER, "run", "--if-healthy=60", "--", *SHOW],
                                 user=uid, CG_SICK=illness)[:2]
        self.assertEqual(as_user("65533", ""), (0, "VALIDATE list=\n"))
        os.chmod(self.path("run", "cudaguard"), 0o755)
        os.chmod(self.answer(), 0o644)
        self.assertEqual(as_user("65532", "no GPU", "unshare", "-U"), (0, ON_CPU))


@pytest.mark.parametrize("illness", ["hangs in count", "forks"])
def test_process_1_of_a_container_passes_no_zombie_to_the_program(case, illness):
    done = case.unguarded(
        *harness.sandbox("none", ["--unshare-pid", "--as-pid-1", "--proc", "/proc",
                                  "--tmpfs", "/run"]),
        LAUNCHER, "run", "--if-healthy=1", "--", sys.executable, "-c",
        "print(open('/proc/1/task/1/children').read())",
        env=launcher.environment(LD_LIBRARY_PATH=case.driver, CG_SICK=illness))
    assert (done.returncode, done.stdout.strip()) == (0, ""), str(done)


class DoctorGpu(Case):
    def test_healthy_driver_exits_with_0(self):
        self.assertEqual(self.launch("doctor", "--gpu"), (0, "driver: healthy, with 2 GPUs\n", ""))

    def test_json_has_the_answer(self):
        code, out, err = self.launch("doctor", "--gpu", "--json", "-", CG_SICK="no GPU")
        document = json.loads(out)
        doctor.validate(document)
        self.assertEqual((code, err, document.pop("seconds") >= 0), (1, "", True))
        document.pop("cudaguard")
        self.assertEqual(document, {"v": 1, "healthy": False, "reason": "the driver shows no GPU",
                                    "gpus": 0})

    def test_process_that_cannot_ask_exits_with_125(self):
        short = self.run_here(["sh", "-c", 'ulimit -n 8; exec "$0" doctor --gpu', LAUNCHER])
        self.assertEqual(short, (125, "", "cudaguard: the driver was not asked: cannot start a "
                                     "process: Too many open files\n"))
        code, out, err = self.launch("run", "--fence", "--", LAUNCHER, "doctor", "--gpu")
        self.assertEqual((code, out), (125, ""), err)
        self.assertEqual(self.launch("doctor", "--gpu", CUDAGUARD_VISIBLE_DEVICES=""),
                         (125, "", 'cudaguard: CUDAGUARD_VISIBLE_DEVICES="" has no GPU\n'))

    def test_always_asks_and_later_launches_use_the_answer(self):
        self.launch("doctor", "--gpu")
        self.launch("doctor", "--gpu")
        self.assertEqual(self.number_of_questions(), 2)
        self.on_gpu()
        self.assertEqual(self.number_of_questions(), 2)

    def test_presets_of_an_outer_run_do_not_count(self):
        box = self.box()
        hidden = self.launch("doctor", "--gpu", LD_LIBRARY_PATH=box, CUDA_VISIBLE_DEVICES="")
        self.assertRegex(hidden[1], "^driver: not healthy: cuInit failed with 100 ")  # the control
        outer = ("run", "--", LAUNCHER)
        self.assertEqual(self.launch(*outer, "doctor", "--gpu", LD_LIBRARY_PATH=box),
                         (0, "driver: healthy, with 8 GPUs\n", ""))
        self.assertIn("driver: answers\n", self.launch(*outer, "doctor", LD_LIBRARY_PATH=box)[1])
        self.assertEqual(self.launch(*outer, "run", "--if-healthy=60", "--", *SHOW,
                                     LD_LIBRARY_PATH=box), (0, "VALIDATE list=\n", ""))

    def test_doctor_gpu_refuses_a_program(self):
        code, out, err = self.launch("doctor", "--gpu", "sh")
        self.assertEqual((code, out, err), (
            125, "", 'cudaguard: doctor --gpu takes no program, not "sh"\n'))


class Recorded(Case):
    def test_report_lists_hosts_with_a_sick_driver(self):
        report = self.path("report.jsonl")
        for illness in ("no GPU", "fails"):
            self.run_if("60,fresh", ("--report", report), CG_SICK=illness)
        self.run_if("60,fresh", ("--report", report), SLURM_JOB_ID="77")
        for by in ((), ("--by", "host")):
            done = self.start("report", *by, report)
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.stdout,
                             r"  --if-healthy started programs without CUDA on 1 host:\n"
                             r"    \S+  2 programs  cuInit failed with 999 \(CUDA_ERROR_UNKNOWN\)")
            done = self.start("report", *by, "--json", "-", report)
            self.assertNotIn("processes  asked", self.start("report", *by, report).stdout)
            sick = json.loads(done.stdout)["sick_drivers"]
            self.assertEqual([row["programs"] for row in sick], [2])
        with open(report, encoding="utf-8") as stream:
            records = [json.loads(line) for line in stream]
        records = [record for record in records if record.get("event") == "health"]
        self.assertEqual([record["decision"] for record in records], ["deny", "deny", "allow"])
        self.assertEqual(records[0]["reason"], "the driver shows no GPU")
        self.assertIsNone(records[2]["reason"])
        self.assertGreaterEqual(records[0]["seconds"], 0)
        self.assertEqual([record.get("slurm") for record in records], [None, None, "77"])
        for record in records:
            self.validates(record, "guard", "record", "record.schema.json")
