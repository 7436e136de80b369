# SPDX-License-Identifier: Apache-2.0
"""`doctor` says what keeps a program from a GPU: with fake device nodes in a private /dev, the fake
driver, and a real sandbox of each kind."""

import json
import os

import pytest

from support import doctor, fence, fixtures, harness, launcher, machine, manager, nodes

GPU = "mknod -m 666 nvidia0 c 1 3\nmknod -m 666 nvidiactl c 1 3\n"
NOBODY = machine.AS_NOBODY


class Case(doctor.Case):
    def setUp(self):
        super().setUp()
        top = manager.top_cgroup()
        self.cgroup = top and os.path.join(top, "cudaguard-test-%d" % os.getpid())

    def asked(self, answer, *sandbox, fakes=GPU, more="", command=launcher.LAUNCHER):
        """doctor's answer in this sandbox, with a driver whose cuInit gives `answer`."""
        env = launcher.environment(LD_LIBRARY_PATH=self.sick(), CG_ANSWER=str(answer))
        words = [*sandbox, command, "doctor", "--json", "-"]
        done = self.unguarded(*nodes.in_private_dev(*words, fakes=fakes, more=more), env=env)
        self.assertEqual(done.stderr, "", done.stdout)
        return doctor.Answer(done.returncode, json.loads(done.stdout))

    def says(self, answer, why, nodes_say=None):
        """The one sentence, besides that the driver fails."""
        sentences = [text for text in answer.problems if text.startswith("cuInit answers")]
        self.assertEqual(sentences, [why] if why else [], answer.document)
        if nodes_say is not None:
            self.assertEqual(answer.facts("device nodes"), nodes_say)


make_case = fixtures.lent("case", Case)


def test_control_without_a_sandbox_nothing_is_explained(case):
    for answer in (0, 100, 304):
        case.says(case.asked(answer), "", ["/dev/nvidia0", "/dev/nvidiactl"])
    answer = case.asked(100, fakes="")
    case.says(answer, "", [])
    assert answer.facts("sandbox") == []


def test_mode_of_a_node(case):
    answer = case.asked(100, *NOBODY, more="chmod 600 /dev/nvidia0\n", command=case.installed())
    case.says(answer, "cuInit answers 100, although /dev/nvidia0 is there, because its mode is 600 "
              "and its owner is 0:0 (EACCES)",
              ["/dev/nvidia0 cannot be opened: its mode is 600 and its owner is 0:0 (EACCES)",
               "/dev/nvidiactl"])


def test_closed_node_of_another_gpu_is_no_reason(case):
    """As in a container that got one GPU, or on a server, where root alone may manage MIG."""
    close = "chmod 600 /dev/nvidia0 /dev/nvidia-caps/nvidia-cap1"
    fakes = GPU + nodes.nulls("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap1")
    command = case.installed()
    case.says(case.asked(999, *NOBODY, fakes=fakes, more=close + "\n", command=command), "")
    answer = case.asked(999, *NOBODY, fakes=fakes, more=close + " /dev/nvidia1\n", command=command)
    case.says(answer, "cuInit answers 999 here, because /dev/nvidia0 cannot be opened: its mode is 600 "
              "and its owner is 0:0 (EACCES)")


def test_capability_of_mig_is_only_read(case):
    """Its mode is 444. One that a listed MIG device needs is a reason, even if a GPU can be opened."""
    cap = "/dev/nvidia-caps/nvidia-cap12"
    fakes = GPU + nodes.nulls("/dev/nvidia8", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap13", cap)
    command = case.installed()
    for mode, hindrance in (("444", ""), ("400", "its mode is 400 and its owner is 0:0 (EACCES)")):
        answer = case.asked(100, *NOBODY, fakes=fakes, more=MACHINE + "chmod %s %s\n" % (mode, cap),
                            command=command)
        case.says(answer, hindrance and "cuInit answers 100, although %s is there, because %s" % (
            cap, hindrance))
        assert (cap in answer.facts("device nodes")) == (mode == "444")


def test_nodev(case):
    answer = case.asked(100, more="mount -o remount,nodev /dev\n")
    case.says(answer, "cuInit answers 100, although /dev/nvidia0 is there, because its mount is nodev; "
              "mount /dev without nodev; with bwrap: --dev-bind /dev /dev",
              ["/dev/nvidia0 cannot be opened: its mount is nodev",
               "/dev/nvidiactl cannot be opened: its mount is nodev"])


def test_file_or_directory_in_place_of_a_node(case):
    """Docker's -v makes a directory if the host has no such node."""
    answer = case.asked(100, fakes="", more=MACHINE + "mkdir nvidia3 nvidia8\ntouch nvidiactl\n")
    case.says(answer, "cuInit answers 100, although /dev/nvidia3 is there, because it is no device node")
    assert "/dev/nvidiactl cannot be opened: it is no device node" in answer.facts("device nodes")


def test_device_filter_of_a_cgroup(case):
    if not case.cgroup:
        harness.skip(case, "no cgroup2 file system")
    try:
        os.mkdir(case.cgroup)
    except OSError as error:
        harness.skip(case, "no cgroup can be made: %s" % error)
    try:
        answer = case.asked(999, fence.program("no_devices"), case.cgroup)
        case.says(answer, "cuInit answers 999 here, because /dev/nvidia0 cannot be opened: a cgroup's "
                  "device filter forbids it (EPERM)")
    finally:
        os.rmdir(case.cgroup)


def test_landlock(case):
    """The domain grants all of /dev but the nodes, as --fence=devices does, and has no filter."""
    fence.Case.need_fence_of_devices(case)
    granted = ["/usr", "/etc", "/proc", "/tmp", "/dev/urandom", os.path.dirname(harness.BUILD),
               case.directory]
    answer = case.asked(100, fence.program("landlock"), *granted, "--")
    case.says(answer, "cuInit answers 100, although /dev/nvidia0 is there, because Landlock forbids it; "
              "allow reading, writing and ioctl of /dev/nvidia0, /dev/nvidiactl",
              ["/dev/nvidia0 cannot be opened: Landlock forbids it",
               "/dev/nvidiactl cannot be opened: Landlock forbids it"])
    assert answer.facts("sandbox") == ["this process is in 1 Landlock domain"]
    # Control: in a domain that grants them, nothing is wrong with them.
    answer = case.asked(100, fence.program("landlock"), *granted, "/dev", "--",
                        fence.program("landlock"), "/", "--")
    case.says(answer, "", ["/dev/nvidia0", "/dev/nvidiactl"])
    assert answer.facts("sandbox") == ["this process is in 2 Landlock domains"]


GRANTED = ["/usr", "/etc", "/proc", "/tmp", "/dev/urandom", os.path.dirname(harness.BUILD)]


def test_landlock_that_hides_dev(case):
    """Most sandboxes do not let a program list /dev. Its nodes are there nevertheless."""
    fence.Case.need_fence_of_devices(case)
    start = [fence.program("landlock"), "--lists", *GRANTED, case.directory]
    here = [node for node in NEEDED if node not in OPTIONAL]
    fakes = nodes.nulls(*here)
    answer = case.asked(999, *start, "--", fakes=fakes, more=MACHINE)
    listed = sorted(here, key=lambda node: ("caps" in node, node))
    case.says(answer, "cuInit answers 999 here, because /dev/nvidia-uvm cannot be opened: Landlock "
              "forbids it; allow reading, writing and ioctl of " + ", ".join(listed),
              sorted(node + " cannot be opened: Landlock forbids it" for node in here))
    assert answer.facts("missing nodes") == []
    # A new thread's name is written, too.
    answer = case.asked(999, *(word for word in start if word != "/proc"), "--", fakes=fakes)
    assert "; and writing of /proc/self/task/*/comm" in " ".join(answer.problems)
    answer = case.asked(304, *(word for word in start if word != "/proc"), *here, "--", fakes=fakes)
    case.says(answer, "cuInit answers 304 here, because /proc/self/task/*/comm cannot be written "
              "(EACCES); allow writing of /proc/self/task/*/comm")
    # What it says helps.
    answer = case.asked(999, *start, *here, "--", fakes=fakes, more=MACHINE)
    case.says(answer, "", sorted(here))
    assert answer.facts("missing nodes") == []


def test_memfd_create_that_a_filter_refuses(case):
    answer = case.asked(304, fence.program("without"), "memfd=1", "--")
    case.says(answer, "cuInit answers 304 here, because memfd_create is refused (EPERM)")
    assert answer.facts("sandbox") == ["this process is in a seccomp filter",
                                       "memfd_create is refused (EPERM)"]
    # If the driver finds no device, it does not come so far.
    case.says(case.asked(100, fence.program("without"), "memfd=1", "--"), "")


def test_comm_that_cannot_be_written(case):
    answer = case.asked(304, more="mount --bind /proc /proc\nmount -o remount,bind,ro /proc\n")
    case.says(answer,
              "cuInit answers 304 here, because /proc/self/task/*/comm cannot be written (EROFS)")


@pytest.mark.needs("user_namespaces")
def test_sandbox_without_nodes(case):
    case.need("bwrap")
    answer = case.asked(304, "bwrap", "--unshare-user", "--dev-bind", "/", "/", "--dev", "/dev", "--")
    case.says(answer, "cuInit answers 304 here, because this sandbox has no /dev/nvidia*", [])
    assert "this process is in a user namespace" in answer.facts("sandbox")


def test_under_cudaguards_own_fence_the_answer_is_not_explained(case):
    fence.Case.need_fence_of_devices(case)
    case.says(case.asked(304, launcher.LAUNCHER, "run", "--log=off", "--fence=devices", "--",
                         "env", "-u", "LD_PRELOAD"), "")


MACHINE = nodes.driver_files([("0000:4e:00.0", "GPU-1", 3), ("0000:07:00.0", nodes.UNKNOWN, 8)],
                             [("gpu8/mig/gi1", 12), ("gpu8/mig/gi1/ci0", 13), ("mig/config", 1)])
OPTIONAL = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")  # a server may lack them
NEEDED = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset",
          "/dev/nvidia8", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13",
          "/dev/nvidia3"]


CAPABILITY = "-f /proc/driver/nvidia/capabilities/gpu8/mig/gi1/%saccess"
COMMANDS = ["-c 255", "-u -c 0", "-c 8", CAPABILITY % "", CAPABILITY % "ci0/", "-c 3"]


@pytest.mark.parametrize("code", [100, 999])
def test_module_without_nodes_is_one_problem_with_what_the_sandbox_needs(case, code):
    """As in bwrap --dev /dev. The nodes are those of the machine's GPUs."""
    answer = case.asked(code, fakes="", more=MACHINE)
    sentences = [text for text in answer.problems if text.startswith("cuInit answers")]
    assert sentences == [
        "cuInit answers %d here, because there is no /dev/nvidia*, although NVIDIA's kernel module "
        "is loaded (/proc/driver/nvidia); outside a sandbox, run %s; inside, it "
        "needs the nodes; with bwrap:%s; with Docker or Podman:%s; with Landlock, allow reading, writing and "
        "ioctl of %s" % (code, " && ".join("nvidia-modprobe " + one for one in COMMANDS), "".join(" --dev-bind%s %s %s" % (
            "-try" if node in OPTIONAL else "", node, node) for node in NEEDED),
                         "".join(" --device " + node for node in NEEDED if node not in OPTIONAL),
                         ", ".join(NEEDED))]
    assert answer.facts("missing nodes") == NEEDED
    assert answer.code == 1


@pytest.mark.parametrize(("code", "there", "missing"), [
    (999, ["/dev/nvidiactl", "/dev/nvidia3"], ["/dev/nvidia-uvm"]),
    (100, ["/dev/nvidiactl", "/dev/nvidia-uvm"],
     ["/dev/nvidia8", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13",
      "/dev/nvidia3"])])
def test_sandbox_with_some_of_the_nodes_needs_the_others(case, code, there, missing):
    """One GPU is enough."""
    answer = case.asked(code, fakes=nodes.nulls(*there), more=MACHINE)
    sentences = [text for text in answer.problems if text.startswith("cuInit answers")]
    assert len(sentences) == 1, answer.document
    assert "cuInit answers %d here, because %s is missing, although" % (code, missing[0]) in sentences[0]
    for node in missing:
        assert " --dev-bind %s %s" % (node, node) in sentences[0]
    for node in there:
        assert node + " " not in sentences[0]
    assert [node for node in answer.facts("missing nodes") if node not in OPTIONAL] == missing


def test_gpu_of_mig_needs_one_of_its_capabilities(case):
    """cuInit finds no device without one. The GPU's own node is there."""
    parts = [("gpu8/mig/gi1", 12), ("gpu8/mig/gi1/ci0", 13), ("gpu8/mig/gi2", 14)]
    more = nodes.driver_files([("0000:07:00.0", "GPU-1", 8)], parts)
    there = [node for node in NEEDED[:5] if node not in OPTIONAL]
    caps = ["/dev/nvidia-caps/nvidia-cap%d" % minor for _, minor in parts]
    answer = case.asked(100, fakes=nodes.nulls(*there), more=more)
    text = " ".join(answer.problems)
    assert "cuInit answers 100 here, because %s is missing, although" % caps[0] in text
    assert [text.count(" --device " + node) for node in there + caps] == [0, 0, 0, 1, 1, 1]
    case.says(case.asked(100, fakes=nodes.nulls(*there, *caps[:2]), more=more), "")


def test_gpu_of_mig_needs_nothing_of_another_gpu(case):
    parts = [("gpu8/mig/gi1", 12), ("gpu7/mig/gi1", 21)]
    more = nodes.driver_files([("0000:07:00.0", "GPU-1", 8), ("0000:08:00.0", "GPU-2", 7)], parts)
    there = [node for node in NEEDED[:5] if node not in OPTIONAL]
    text = " ".join(case.asked(100, fakes=nodes.nulls(*there), more=more).problems)
    assert "because /dev/nvidia-caps/nvidia-cap12 is missing" in text
    assert "nvidia7" not in text and "nvidia-cap21" not in text


@pytest.mark.needs("user_namespaces")
def test_bwrap_with_the_printed_arguments_has_the_nodes(case):
    case.need("bwrap")
    start = ["bwrap", "--unshare-user", "--bind", "/", "/", "--dev", "/dev"]
    here = [node for node in NEEDED if node not in OPTIONAL]
    fakes = nodes.nulls(*here)
    text = " ".join(case.asked(999, *start, "--", fakes=fakes, more=MACHINE).problems)
    printed = text.partition("with bwrap: ")[2].partition(";")[0].split()
    answer = case.asked(999, *start, *printed, "--", fakes=fakes, more=MACHINE)
    case.says(answer, "", sorted(here))


def test_control_module_with_nodes_or_an_answer_of_the_driver_is_no_problem(case):
    for code, fakes in ((100, GPU), (0, "")):
        answer = case.asked(code, fakes=fakes, more=MACHINE)
        assert (answer.problems, answer.facts("missing nodes")) == ([], [])
