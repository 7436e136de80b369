# SPDX-License-Identifier: Apache-2.0
"""run --fence=devices --gpus LIST: only the nodes of the listed GPUs can be opened, in any way. The
nodes and /proc/driver/nvidia are made up. Each control runs the same program without the fence."""

import os
import re
import shutil
import sys

import pytest

from support import box, fence, fixtures, harness, launcher, machine, nodes

UUIDS = [box.uuid(gpu) for gpu in box.ALL]
# The addresses do not sort as text.
ADDRESSES = ["0000:07:00.0", "0000:0f:00.0", "0000:47:00.0", "0000:4e:00.0", "0000:87:00.0",
             "0000:90:00.0", "0000:b7:00.0", "10000:01:00.0"]
GPUS = list(zip(ADDRESSES, UUIDS, nodes.MINORS))
SHARED = ["/dev/" + name for name in nodes.SHARED]
OTHERS = ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/kfd", "/dev/nvidia-nvswitch0",
          "/dev/nvidia-nvlink", "/dev/nvidia-caps/nvidia-cap1",
          "/dev/nvidia-caps-imex-channels/channel0"]
NAMED = "GPU-5b1f0c77-9d52-4e0a-8c61-7a3e55d0c0"


def node(gpu):
    return "/dev/nvidia%d" % nodes.MINORS[gpu]


def fenced(gpus, *words, how="--fence=devices"):
    return [launcher.LAUNCHER, "run", "--log=off", how, "--gpus", gpus, "--", *words]


class Case(fence.Case):
    def setUp(self):
        super().setUp()
        self.need("unshare")
        self.need_fence_of_devices()

    def on_machine(self, *words, gpus=GPUS, parts=(), more="", env=None):
        """Runs these words on the made-up machine."""
        made = nodes.gpu_nodes() + nodes.nulls(*OTHERS)
        made += nodes.driver_files(gpus, parts) + more
        return self.unguarded(*nodes.in_private_dev(*words, fakes=made), env=env)

    def answers(self, *words, **more):
        """{path: the answers that its ways had} of the program `opens`."""
        done = self.on_machine(*words, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {}
        for line in done.stdout.splitlines():
            _, path, answer = line.split(" ")
            found.setdefault(path, []).append(answer)
        return found

    def leaves(self, allow, listed, paths, program="opens_static", **more):
        """All ways open the listed paths and none of the others. The control opens all."""
        words = [fence.program(program), *paths]
        control = self.answers(*words, **more)
        self.assertEqual(sorted(control), sorted(paths))
        self.assertEqual({answer for ways in control.values() for answer in ways}, {"opened"})
        for path, ways in self.answers(*fenced(allow, *words), **more).items():
            self.assertEqual(len(ways), len(control[path]))
            if path in listed:
                # Access mode 3 and, before Linux 6.10, openat2 are refused for each file.
                self.assertGreater(ways.count("opened"), len(ways) // 2, path)
            else:
                self.assertLessEqual(set(ways), {"EACCES", "ENOSYS"}, path)
                self.assertIn("EACCES", ways, path)

    def list_inside(self, allow, **more):
        """What the guard inside gets as its list."""
        done = self.on_machine(*fenced(allow, "printenv", "CUDAGUARD_VISIBLE_DEVICES"), **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def refuses(self, allow, *meaning, **more):
        done = self.on_machine(*fenced(allow, "echo", "started"), **more)
        self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in meaning:
            self.assertIn(word, done.stderr)
        # Control: with all that it needs, it starts.
        control = self.on_machine(*fenced("2", "echo", "started"))
        self.assertEqual((control.returncode, control.stdout), (0, "started\n"), control.stderr)


make_case = fixtures.lent("case", Case)

# Minor 11 is the kernel's log, which not every superuser may open.
OPENED = [node(gpu) for gpu in (0, 1, 2, 3, 5)]


@pytest.mark.parametrize("program", ["opens", "opens_static"])
def test_only_listed_nodes_open_in_any_way(case, program):
    case.leaves("2,5", [node(2), node(5), *SHARED], [*OPENED, *SHARED, *OTHERS], program=program)


@pytest.mark.parametrize(("gpus", "listed"), [
    ("0", [0]), ("5,2", [2, 5]), ("0,1,2,3,4,5", [0, 1, 2, 3, 4, 5]), (box.uuid(3, 8), [3]),
    (UUIDS[5] + ",1", [1, 5])])
def test_indices_in_pci_order_and_uuids_choose_the_nodes(case, gpus, listed):
    case.leaves(gpus, [node(gpu) for gpu in listed], OPENED)


def test_only_listed_nodes_open_for_an_ordinary_user(case):
    command = case.installed()
    opens = shutil.copy(fence.program("opens"), case.path("opens"))
    paths = [node(1), node(2)]
    assert set(sum(case.answers(*machine.AS_NOBODY, opens, *paths).values(), [])) == {"opened"}
    found = case.answers(*machine.AS_NOBODY, command, *fenced("2", opens, *paths)[1:])
    assert "opened" not in found[node(1)]
    assert "opened" in found[node(2)]


def test_guard_inside_gets_uuids_in_the_order_of_the_list(case):
    """The driver inside numbers what it can open from 0, so indices would choose others."""
    assert case.list_inside("2,5") == UUIDS[2] + "," + UUIDS[5]
    assert case.list_inside("5,2") == UUIDS[5] + "," + UUIDS[2]
    assert case.list_inside(box.uuid(3, 8)) == UUIDS[3]


def test_index_of_a_gpu_without_uuid_becomes_its_number_inside(case):
    """The kernel module knows a GPU's UUID when the GPU has been used. The PCI address decides."""
    unknown = [(address, nodes.UNKNOWN, minor) for address, _, minor in GPUS]
    assert case.list_inside("2,5", gpus=unknown) == "0,1"
    assert case.list_inside("5,2", gpus=unknown) == "1,0"
    case.leaves("2,5", [node(2), node(5)], OPENED, gpus=unknown)
    # One UUID is known.
    one = unknown[:5] + GPUS[5:]
    assert case.list_inside("5,2", gpus=one) == "1,0"
    assert case.list_inside(UUIDS[5], gpus=one) == UUIDS[5]
    # A GPU whose UUID is not known could begin in this way, too.
    case.refuses(UUIDS[5][:8], "which GPU has this UUID yet", gpus=one)


def test_gpu_whose_minor_is_not_known_is_refused(case):
    """All later indices would be wrong. An excluded GPU has no index."""
    file = "/proc/driver/nvidia/gpus/%s/information" % ADDRESSES[1]
    for change, answers in (("/Device Minor/d", False), ("s/Minor:.*/Minor: x/", False),
                            ("/Device Minor/d; s/No$/Yes/", True)):
        done = case.on_machine(*fenced("2", "printenv", "CUDAGUARD_VISIBLE_DEVICES"),
                               more="sed -i '%s' %s\n" % (change, file))
        assert (done.returncode, done.stdout) == ((0, UUIDS[3] + "\n") if answers else (125, ""))
        assert (file in done.stderr) is not answers, done.stderr


def test_variable_of_cuda_set_before_the_launcher_has_the_machines_numbers(case):
    words = ["env", "CUDA_VISIBLE_DEVICES=5", *fenced("2,5", "printenv", "CUDA_VISIBLE_DEVICES")]
    assert case.on_machine(*words).stdout == "1\n"


@pytest.mark.parametrize("fence_of", [(), ("--fence=devices",)])
@pytest.mark.parametrize(("own", "left", "unknown"), [
    ("1,9,2", "0", "0,1"), ("2,8", "1", "1"), ("1,9,1", "0", "-1"), ("9,1", None, "0")])
def test_index_that_no_gpu_has_ends_the_variable_of_cuda(case, own, left, unknown, fence_of):
    """As in CUDA. /proc/driver/nvidia says how many GPUs there are."""
    words = ["env", "CUDA_VISIBLE_DEVICES=" + own, launcher.LAUNCHER, "run", *fence_of,
             "--gpus", "1,2", "--", "printenv", "CUDA_VISIBLE_DEVICES"]
    done = case.on_machine(*words)
    assert done.stdout == (left + "\n" if left else ""), done.stderr
    line = 'CUDA_VISIBLE_DEVICES="%s", set before cudaguard, leaves ' % own
    assert line in done.stderr and (done.returncode == 125) == (left is None), done.stderr
    if not fence_of:
        control = case.on_machine(*words, more="umount /proc/driver\n")
        assert control.stdout == unknown + "\n", control.stderr


@pytest.mark.parametrize(("allow", "gpus"), [("2,5", [2, 5]), ("5,2", [5, 2])])
def test_guarded_program_inside_sees_the_listed_gpus(case, allow, gpus):
    """The fake driver has the same GPUs, and no nodes: its numbers are the machine's."""
    env = {name: value for name, value in box.environment().items() if value is not None}
    done = case.on_machine(*fenced(allow, box.program("open"), "cu.see", "nv.see"),
                           env=launcher.environment(**env))
    assert done.returncode == 0, done.stderr
    answers = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert box.seen(answers["cu.see"]) == gpus
    assert box.seen(answers["nv.see"]) == gpus


RECEIVE = """
import array, os, socket, sys
peer = socket.socket(fileno=int(sys.argv[1]))
_, parts, _, _ = peer.recvmsg(1, socket.CMSG_LEN(4))
os.write(array.array("i", parts[0][2])[0], b"x")
print("received")
"""
SEND = """
import array, os, socket, subprocess, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
node = array.array("i", [os.open("/dev/nvidia3", os.O_RDWR)])
ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, node)])
sys.exit(subprocess.call([*sys.argv[1:], str(theirs.fileno())], pass_fds=[theirs.fileno()]))
"""


def test_limit_descriptor_of_another_gpu_that_was_opened_outside_can_be_used(case):
    """tests/lab/limits.md: inherited, or received from a process outside."""
    inside = ["sh", "-c", "echo x >&3 && echo inherited; echo x >/dev/nvidia3 && echo opened"]
    outside = ["sh", "-c", 'exec "$@" 3<>/dev/nvidia3', "sh"]
    assert case.on_machine(*outside, *inside).stdout == "inherited\nopened\n"
    done = case.on_machine(*outside, *fenced("2", *inside))
    assert done.stdout == "inherited\n"
    assert "Permission denied" in done.stderr
    send = [sys.executable, "-c", SEND, *fenced("2", sys.executable, "-c", RECEIVE)]
    assert case.on_machine(*send).stdout == "received\n"


def test_nvidias_ioctls_are_allowed(case):
    ask = [fence.program("requests_static"), "/dev/nvidiactl", *fence.NVIDIA, "5401"]
    control = case.on_machine(*ask)
    assert control.stdout.count("ENOTTY") == len(fence.NVIDIA) + 1
    assert case.on_machine(*fenced("2", *ask)).stdout == control.stdout
    other = case.on_machine(launcher.LAUNCHER, "run", "--log=off", "--fence", *ask)
    assert other.stdout != control.stdout


WRITES = """
set -e
echo cuda >/proc/self/task/$$/comm
mkdir -p "$HOME/.nv/ComputeCache" && echo kernel >"$HOME/.nv/ComputeCache/index"
echo segment >/dev/shm/cuda.shm.0
mkdir /tmp/nvidia-mps-test.$$ && rmdir /tmp/nvidia-mps-test.$$
echo written
"""


def test_what_cuda_writes_can_be_written(case):
    words = ["env", "HOME=" + case.directory, *fenced("2", "sh", "-c", WRITES)]
    done = case.on_machine(*words)
    assert (done.stdout, done.stderr) == ("written\n", "")


PARTS = [("gpu7/mig/gi1", 3), ("gpu7/mig/gi1/ci0", 5), ("gpu9/mig/gi2", 7), ("gpu9/mig/gi2/ci0", 8),
         ("mig/config", 1), ("mig/monitor", 2)]
CAPS = "".join("rm -f %s\nmknod -m 666 %s c 1 %d\n" % (path, path, minor if minor > 2 else 3)
               for path, minor in (("/dev/nvidia-caps/nvidia-cap%d" % minor, minor)
                                   for _, minor in PARTS))


def test_mig_capabilities_of_the_listed_gpus_open(case):
    paths = ["/dev/nvidia-caps/nvidia-cap%d" % minor for _, minor in PARTS]
    case.leaves("5", paths[:2], paths, parts=PARTS, more=CAPS)
    case.leaves("2,5", paths[:4], paths, parts=PARTS, more=CAPS)
    case.leaves("0", [], paths, parts=PARTS, more=CAPS)


def test_machine_that_cannot_tell_which_node_is_which_is_refused(case):
    case.refuses("2", "cannot be fenced: /proc/driver/nvidia/gpus names no GPU", "load NVIDIA's kernel module",
                 more="umount /proc/driver\n")
    case.refuses("2", "/dev/nvidia9 is missing", "nvidia-modprobe -c 9\n",
                 more="rm /dev/nvidia9\n")
    case.refuses("2", "/dev/nvidia9 is not the node of minor 9", "nvidia-modprobe -c 9\n",
                 more="rm /dev/nvidia9\nmknod /dev/nvidia9 c 1 3\n")
    case.refuses("2", "/dev/nvidia9 is not the node of minor 9",
                 more="rm /dev/nvidia9\nln -s nvidia3 /dev/nvidia9\n")
    # NVML would count the other GPUs in another way.
    case.refuses("2", "/dev/nvidia3 is missing", "name the GPUs by UUID",
                 more="rm /dev/nvidia3\n")
    for name in ("nvidiactl", "nvidia-uvm"):
        case.refuses("2", "/dev/%s is missing" % name, more="rm /dev/%s\n" % name)
    unknown = [(address, nodes.UNKNOWN, minor) for address, _, minor in GPUS]
    case.refuses(UUIDS[2], "the driver does not say which GPU has this UUID yet", "nvidia-smi -L",
                 gpus=unknown)
    case.refuses("5", "/dev/nvidia-caps/nvidia-cap5 is missing", "nvidia-modprobe -f",
                 parts=PARTS[:2], more="mknod /dev/nvidia-caps/nvidia-cap3 c 1 3\n")


def test_node_of_another_gpu_may_be_missing_if_uuids_are_given(case):
    """As in a container that got some of the nodes."""
    case.leaves(UUIDS[2], [node(2)], [node(2), node(1)], more="rm /dev/nvidia3\n")


@pytest.mark.parametrize(("gpus", "meaning"), [
    ("8", "--gpus \"8\": entry 1 \"8\""),
    (NAMED, "a longer part of the UUID"), ("GPU-ff", "--gpus \"GPU-ff\": entry 1"), ("2," + UUIDS[2], "each GPU once"),
    ("MIG-5c1b", "name its GPU")])
def test_wrong_list_is_refused(case, gpus, meaning):
    case.refuses(gpus, meaning)


def test_auto_starts_with_the_guard_alone(case):
    done = case.on_machine(launcher.LAUNCHER, "run", "--fence=devices,auto", "--gpus", "2,5",
                           "printenv", "CUDAGUARD_VISIBLE_DEVICES", more="umount /proc/driver\n")
    assert (done.returncode, done.stdout) == (0, "2,5\n"), done.stderr
    assert "--fence=devices,auto: the device nodes cannot be fenced: /proc" in done.stderr


def test_static_program_starts_and_is_told_of_once(case):
    done = case.on_machine(launcher.LAUNCHER, "run", "--fence=devices", "--gpus", "2", "--",
                           fence.program("opens_static"), node(2))
    assert done.returncode == 0
    assert "is not guarded (it is a static executable); the fence leaves it only the listed GPUs" \
        in done.stderr


def test_list_counts_inside_if_the_kernel_has_no_seccomp(case):
    """Landlock alone then leaves the listed nodes, which the driver numbers from 0."""
    rules = ["seccomp=38", "prctl=22"]  # ENOSYS, EINVAL
    words = [fence.program("without"), *rules, "--", *fenced(
        "2,5", "printenv", "CUDAGUARD_VISIBLE_DEVICES", how="--fence=devices,auto")]
    assert case.on_machine(*words).stdout == UUIDS[2] + "," + UUIDS[5] + "\n"


@pytest.mark.parametrize("place", ["--rule", "/etc/cudaguard.conf"])
@pytest.mark.parametrize(("rule", "warns"), [
    ("gpus=5", True), ("gpus=" + UUIDS[5], False), ("program=/none gpus=5", False), ("", False)])
def test_rule_whose_indices_mean_other_gpus_inside_is_told(case, rule, warns, place):
    more = "mount -t tmpfs -o mode=755 none /etc\necho 'VALIDATE %s' >/etc/cudaguard.conf\n" % rule
    given = ["--rule", "VALIDATE " + rule] if place == "--rule" else []
    for fence_of in (["--fence=devices"], []):
        done = case.on_machine(launcher.LAUNCHER, "run", *fence_of, "--gpus", "5", *given, "--", "true",
                               more="" if given else more)
        assert done.returncode == 0
        told = 'name them by UUID in gpus="5"\n' in done.stderr
        assert told is (warns and fence_of != []), done.stderr


def test_print_says_that_the_fence_is_not_among_the_variables(case):
    """They are for a program outside of it, where the user's own list is right."""
    done = case.on_machine(launcher.LAUNCHER, "run", "--fence=devices", "--gpus", "2", "--print")
    assert "CUDAGUARD_VISIBLE_DEVICES=2\n" in done.stdout.replace("'", "")
    assert "--fence is not among these" in done.stdout


with open(os.path.join(harness.SOURCE, "docs", "integrations", "agents.md"),
          encoding="utf-8") as stream:
    PAGE = stream.read()
ONE_COMMAND = ["cudaguard run --fence=devices --", "cudaguard run --fence=devices --gpus 2 -- COMMAND"]


def test_agent_outside_gives_one_command_a_gpu(case):
    """As docs/integrations/agents.md says. The shell is the agent."""
    script = ""
    for command in ONE_COMMAND:
        assert "`%s`" % command in PAGE
        script += command.replace("cudaguard run", '"$0" run --log=off').replace(" COMMAND", "") + ' "$@"\n'
    agent = ["sh", "-c", script, launcher.LAUNCHER, fence.program("opens_static"), node(2)]
    lines = case.on_machine(*agent).stdout.splitlines()
    half = len(lines) // 2
    assert not [line for line in lines[:half] if line.endswith(" opened")]
    assert "open %s opened" % node(2) in lines[half:]


def test_agent_under_a_fence_gets_no_gpu_for_one_command(case):
    ask = [fence.program("requests_static"), "/dev/nvidiactl", fence.NVIDIA[0]]
    listed = [launcher.LAUNCHER, "run", "--fence=devices", "--gpus", "2", "--", *ask]
    assert case.on_machine(*listed).stdout == "c020462a ENOTTY\n"
    done = case.on_machine(launcher.LAUNCHER, "run", "--log=off", "--fence", "--", "env", "-u",
                           "CUDAGUARD_LOG", *listed)
    assert done.stdout == "c020462a ENODEV\n"
    assert "already under a fence" in done.stderr


@pytest.mark.parametrize("start", [[], fenced("2")])
def test_agents_shell_starts_without_a_gpu(case, start):
    """The script for SHELL of docs/integrations/agents.md, also where the agent has a GPU."""
    script = re.search("^exec (cudaguard run .*)$", PAGE, re.MULTILINE)[1]
    script = script.replace("cudaguard", launcher.LAUNCHER, 1)
    ask = "echo started; : </dev/nvidia9"
    control = case.on_machine(*start, "sh", "-c", ask)
    assert (control.returncode, control.stdout) == (0, "started\n"), control.stderr
    done = case.on_machine(*start, "sh", "-c", script, "sh", "-c", ask)
    assert (done.returncode, done.stdout) == (1, "started\n"), done.stderr
