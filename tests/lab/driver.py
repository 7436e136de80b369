# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own kernel module on a GPU made in software (driver/fakegpu.c), in a QEMU machine.

The module fails to initialise this GPU, so cuInit returns 999, as with a broken GPU. All rows of a
run share one machine.
"""

import atexit
import dataclasses
import functools
import inspect
import json
import pathlib
import re

from lab import vm

HERE = pathlib.Path(__file__).parent / "driver"
# The RAM that fakegpu.c uses for its registers.
KERNEL_WORDS = ("memmap=96M$0x90000000",)

RECIPE = vm.Recipe(
    name="driver",
    suite="bookworm",
    components="main contrib non-free non-free-firmware",
    packages=("linux-headers-amd64", "nvidia-kernel-dkms", "firmware-nvidia-gsp", "libcuda1",
              "libnvidia-ml1", "nvidia-smi", "nvidia-modprobe", "nvidia-persistenced"),
    files=tuple((f"/root/fakegpu/{name}", (HERE / name).read_text())
                for name in ("fakegpu.c", "Kbuild")) + (
        # The machine loads the modules only when START does.
        ("/etc/modprobe.d/lab.conf", "blacklist nvidia\nblacklist nvidia-current\n"),),
    commands="""
kernel=$(basename /lib/modules/*)
dkms autoinstall -k "$kernel"
dkms status -k "$kernel" | grep -q installed
make -C /lib/modules/"$kernel"/build M=/root/fakegpu modules
systemctl -q disable nvidia-persistenced
""",
    gigabytes=10,
)

# Makes the GPU, loads NVIDIA's modules and makes the device nodes, as root's first CUDA program
# would.
START = """
ldconfig
insmod /root/fakegpu/fakegpu.ko
modprobe nvidia
modprobe nvidia-uvm
nvidia-modprobe -c 0 -u
ls /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm
"""
# Prints the answer of cuInit, and how many seconds it took.
ASK = """import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
start = time.monotonic()
answer = cuda.cuInit(0)
print("cuInit", answer, round(time.monotonic() - start, 1))
"""
# Sends each ioctl to each device, as a program without any library of NVIDIA's would.
SEND = """import fcntl, os, sys
for node, *numbers in (line.split() for line in sys.stdin):
    for number in numbers:
        file = os.open(node, os.O_RDWR)
        try:
            fcntl.ioctl(file, int(number, 16), bytearray(0x4000))
            print(node, number, "answered")
        except OSError as error:
            print(node, number, error.strerror)
        os.close(file)
"""
TRACE = ("strace -f -qq -y -X raw -e trace=ioctl,openat -e signal=none -o /root/trace")
NO_GUARD = "env -u LD_PRELOAD"


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    text: str  # of the function that checks it, so that a changed check runs again


@dataclasses.dataclass(frozen=True)
class Ioctl:
    node: str
    number: int
    error: str  # the name of the errno, or ""

    def __str__(self):
        return f"{self.node} {self.number:#x}"


# One ioctl in the log of strace: ioctl(3</dev/nvidiactl>, 0xc00846d6, …) = -1 ENODEV (…)
LOGGED = re.compile(r"ioctl\(\w+<(/dev/nvidia[^<>]*)(?:<[^>]*>)?>, (0x\w+).* = (?:-1 (\w+)|\w+)")
OPENED = re.compile(r'openat\(.*"(/dev/nvidia[^"]*)".* = \d+')


def rows(lab):
    return [Row(name, inspect.getsource(check)) for name, check in CHECKS.items()]


def run(lab, row):
    return {"outcome": "passed", "driver": RECIPE.name, **CHECKS[row.name](Driver(lab))}


@functools.cache
def machine_of(lab):
    """The machine that all rows of a run share. It ends with this process."""
    machine = vm.Machine(vm.image(lab, RECIPE), lab.state / "machine", KERNEL_WORDS)
    atexit.register(machine.__exit__)
    machine.boot()
    machine.send(lab.cudaguard, "/usr/local/bin")
    machine.send(lab.library, "/usr/local/lib")
    machine.send(lab.library.parent / "cudaguard", "/usr/local/lib")
    for name, text in (("ask.py", ASK), ("send.py", SEND)):
        file = lab.scratch / name
        file.write_text(text)
        machine.send(file, "/root")
    machine.must(START)
    return machine


class Driver:
    """The machine with the driver, and what it takes to judge the driver's ioctls."""

    def __init__(self, lab):
        self.machine = machine_of(lab)
        header = (lab.checkout / "policy/nvidia_requests.h").read_text()
        self.uvm_initialize = int(re.search(r"kUvmInitialize = (\w+);", header)[1], 16)
        self.numbers = {int(number, 0)
                        for number in re.findall(r'^    \{(\w+), "\w+"\},$', header, re.MULTILINE)}
        assert len(self.numbers) > 30, "policy/nvidia_requests.h has another form"

    def knows(self, ioctl):
        """True if policy/nvidia_requests.h has this ioctl."""
        if ioctl.node.startswith("/dev/nvidia-uvm"):
            return ioctl.number == self.uvm_initialize
        return (ioctl.number >> 30 == 3 and ioctl.number >> 8 & 0xff == ord("F")
                and ioctl.number & 0xff in self.numbers)

    def run(self, command, code=None, timeout=300):
        """Runs a command in the machine. Returns its output, as does the command's pipe."""
        done = self.machine.ssh(f"timeout {timeout} {command}", timeout=timeout + 60)
        assert code in (None, done.returncode), (
            f"{command} ended with {done.returncode}: {done.stdout[-1500:]}")
        return done.stdout

    def failures(self):
        """How many times the kernel module has tried to initialise the GPU, and failed."""
        return int(self.machine.ssh("dmesg | grep -c RmInitAdapter").stdout)

    def traced(self, before, command, code=None):
        """Runs `before strace command`. Returns the output, the opened nodes and the ioctls."""
        output = self.run(f"{before} {TRACE} {command}", code)
        log = self.machine.must("cat /root/trace")
        return output, OPENED.findall(log), [
            Ioctl(node, int(number, 16), error) for node, number, error in LOGGED.findall(log)]

    @functools.cached_property
    def unguarded(self):
        """What cuInit and nvidia-smi send to the driver, in order and each once."""
        _, _, cuda = self.traced("", "python3 /root/ask.py")
        _, _, smi = self.traced("", "nvidia-smi")
        return list(dict.fromkeys(Ioctl(one.node, one.number, "") for one in cuda + smi))


def answer(output):
    """The result of cuInit and its seconds, by ask.py."""
    found = re.search(r"^cuInit (\d+) ([\d.]+)$", output, re.MULTILINE)
    assert found, f"no answer of cuInit: {output}"
    return int(found[1]), float(found[2])


def unguarded(driver):
    """cuInit fails with 999, and each ioctl is one that policy/nvidia_requests.h has."""
    before = driver.failures()
    result, seconds = answer(driver.run("python3 /root/ask.py", 0))
    assert result == 999, f"cuInit returned {result}"
    failures = driver.failures() - before
    assert failures > 0, "the kernel module was not asked"
    sent = driver.unguarded
    assert any(one.node == "/dev/nvidiactl" for one in sent), sent
    # After its first ioctl, the fence has refused a descriptor of UVM.
    unknown = [str(one) for one in sent if not driver.knows(one)
               and not one.node.startswith("/dev/nvidia-uvm")]
    assert not unknown, f"policy/nvidia_requests.h lacks {unknown}"
    uvm = [one.number for one in sent if one.node.startswith("/dev/nvidia-uvm")]
    assert not uvm or uvm[0] == driver.uvm_initialize, uvm
    return {"seconds of cuInit": seconds, "failed initialisations": failures,
            "ioctls": [str(one) for one in sent]}


def guarded(driver):
    """cuInit returns 100, and no process opens the driver's devices."""
    before = driver.failures()
    output, opened, sent = driver.traced("", "cudaguard run -- python3 /root/ask.py", 0)
    result, seconds = answer(output)
    assert (result, opened, sent) == (100, [], []), (output, opened, sent)
    assert driver.failures() == before
    return {"seconds of cuInit": seconds}


def fenced(driver):
    """Without the guard, the fence still refuses each ioctl."""
    before = driver.failures()
    output, opened, sent = driver.traced(f"cudaguard run --fence -- {NO_GUARD}",
                                         "python3 /root/ask.py", 0)
    result, seconds = answer(output)
    assert result not in (0, 999), output
    assert sent and {one.error for one in sent} == {"ENODEV"}, [*map(repr, sent)]
    nodes = {}
    for one in driver.unguarded:
        if driver.knows(one):
            nodes.setdefault(one.node, []).append(hex(one.number))
    nodes.setdefault("/dev/nvidia-uvm", [hex(driver.uvm_initialize)])
    lines = "\n".join(" ".join([node, *numbers]) for node, numbers in nodes.items())
    replay = f"python3 /root/send.py <<'END'\n{lines}\nEND"
    refused = driver.run(f"cudaguard run --fence -- {NO_GUARD} {replay}", 0).splitlines()
    wrong = [line for line in refused if not line.endswith(" No such device")]
    assert refused and not wrong, wrong
    control = driver.run(replay, 0)
    assert "No such device" not in control, control
    assert driver.failures() > before  # by the control alone
    return {"cuInit": result, "seconds of cuInit": seconds, "refused": refused}


def if_healthy(driver):
    """The program runs on the CPU, and 64 launches ask the driver once."""
    program = "sh -c 'echo started $CUDAGUARD_POLICY; exit 3'"
    before = driver.failures()
    first = driver.run(f"cudaguard run --if-healthy=10,fresh -- {program}", 3)
    said = re.search(r"cudaguard: --if-healthy: (cuInit failed with 999 \(CUDA_ERROR_UNKNOWN\) "
                     r"after [\d.]+ s); the program runs without CUDA\n", first)
    assert said and "started FORCE_CPU\n" in first, first
    probe = driver.failures() - before
    assert probe > 0, "the kernel module was not asked"
    driver.run("rm -r /run/cudaguard", 0)
    before = driver.failures()
    output = driver.run(
        "sh -c 'for i in $(seq 64); do cudaguard run --if-healthy --report /root/health.jsonl -- "
        "python3 /root/ask.py & done; wait'", 0)
    asked = driver.failures() - before
    reasons = re.findall(r"--if-healthy: (cuInit failed with 999 .* after [\d.]+ s); the program "
                         r"runs without CUDA$", output, re.MULTILINE)
    assert output.count("cuInit 100 ") == 64 and len(reasons) == 64, output
    assert len(set(reasons)) == 1, f"more than one answer: {set(reasons)}"
    assert asked == probe, f"one probe is {probe} failed initialisations, 64 launches are {asked}"
    report = driver.run("cudaguard report /root/health.jsonl")
    assert re.search(r"started programs without CUDA on 1 host:\n +guest +64 programs", report), (
        report)
    assert driver.run("cudaguard run --if-healthy=10,require -- true").startswith("cudaguard: ")
    driver.run("cudaguard run --if-healthy=10,require -- true", 125)
    return {"message": said[0].strip(), "failed initialisations of a probe": probe,
            "of 64 launches": asked}


def doctor_gpu(driver):
    """cudaguard doctor --gpu ends with 1 and has the reason."""
    text = driver.run("cudaguard doctor --gpu", 1)
    document = json.loads(driver.run("cudaguard doctor --gpu --json -", 1))
    assert document["healthy"] is False and "999" in document["reason"], document
    return {"text": text.strip(), "reason": document["reason"], "time": document["seconds"]}


CHECKS = {"unguarded": unguarded, "if-healthy": if_healthy, "doctor-gpu": doctor_gpu,
          "guarded": guarded, "fenced": fenced}
