# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own kernel module on a GPU made in software (driver/fakegpu.c), in a QEMU machine.

The module fails to initialise this GPU, so cuInit fails, as with a broken GPU. The rows of one
version of the driver share a machine, but nvidia-smi's row starts a new one. The first version has
all rows, the others those that depend on the ioctls.
"""

import atexit
import dataclasses
import functools
import inspect
import json
import pathlib
import re
import time

from lab import vm

HERE = pathlib.Path(__file__).parent / "driver"
# The RAM that fakegpu.c uses for its registers.
KERNEL_WORDS = ("memmap=96M$0x90000000",)


def recipe(name, suite, *packages, files=()):
    """A machine with these packages of one version of the driver."""
    return vm.Recipe(
        name=name, suite=suite, components="main contrib non-free non-free-firmware",
        packages=("linux-headers-amd64", *packages, "nvidia-modprobe"),
        files=tuple((f"/root/fakegpu/{name}", (HERE / name).read_text())
                    for name in ("fakegpu.c", "Kbuild")) + files,
        commands="""
kernel=$(basename /lib/modules/*)
dkms autoinstall -k "$kernel"
dkms status -k "$kernel" | grep -q installed
make -C /lib/modules/"$kernel"/build M=/root/fakegpu modules
# The rows load the module, and start the daemon.
systemctl -q disable nvidia-persistenced || true
ls /lib/modules/"$kernel"/updates/dkms | sed -n 's/^\\(nvidia[^.]*\\)\\.ko.*/blacklist \\1/p' \\
  >/etc/modprobe.d/lab.conf
echo blacklist nvidia >>/etc/modprobe.d/lab.conf
""",
        gigabytes=10)


# The open modules do not build for Debian's newest kernels, whose pci_resize_resource() has one more
# parameter. So dpkg adds it after it has unpacked the sources, and before it builds them.
OPEN = ("/etc/dpkg/dpkg.cfg.d/open", "post-invoke=sed -i 's/(pci_dev, NV_GPU_BAR1, requested_size)/"
        "(pci_dev, NV_GPU_BAR1, requested_size, 0)/' /usr/src/nvidia-current-open-*/nvidia/nv-pci.c "
        "2>/dev/null || true\n")
# Debian's security updates have newer libraries than 535's open module.
OLDER = ("/etc/apt/preferences.d/older", "Package: src:nvidia-graphics-drivers\n"
         "Pin: version 535.261.*\nPin-Priority: 1001\n")
# Debian's experimental has newer drivers. No other package may come from there. A mirror's copy may
# be older than the week for which it is valid.
EXPERIMENTAL = (
    ("/etc/apt/sources.list.d/experimental.list", f"deb [check-valid-until=no] {vm.MIRROR} "
     "experimental main contrib non-free non-free-firmware\n"),
    ("/etc/apt/preferences.d/experimental",
     "Package: src:nvidia-graphics-drivers src:nvidia-open-gpu-kernel-modules "
     "src:firmware-nvidia-graphics\nPin: release a=experimental\nPin-Priority: 1001\n"))
LIBRARIES = ("libcuda1", "libnvidia-ml1", "nvidia-smi", "firmware-nvidia-gsp")
# Each major version that Debian 12, 13 and experimental have, with the open kernel module if there is
# one. The packages of 525 install 535. Debian 11's 418 does not load in its newest kernel: "nvidia_uvm:
# Unknown symbol radix_tree_preloads". 390 and 340 do not know the GPU of fakegpu.c.
RECIPES = {
    "": recipe("driver", "bookworm", "nvidia-kernel-dkms", *LIBRARIES, "nvidia-persistenced"),
    "470": recipe("nvidia470", "bookworm", "nvidia-tesla-470-kernel-dkms",
                  "libnvidia-tesla-470-cuda1", "libnvidia-tesla-470-ml1", "nvidia-tesla-470-smi"),
    "550": recipe("nvidia550", "trixie", "nvidia-kernel-dkms", *LIBRARIES),
    "535-open": recipe("nvidia535open", "bookworm", "nvidia-open-kernel-dkms", *LIBRARIES,
                       files=(OPEN, OLDER)),
    "550-open": recipe("nvidia550open", "trixie", "nvidia-open-kernel-dkms", *LIBRARIES,
                       files=(OPEN,)),
    "555": recipe("nvidia555", "trixie", "nvidia-kernel-dkms", *LIBRARIES, files=EXPERIMENTAL),
    "555-open": recipe("nvidia555open", "trixie", "nvidia-open-kernel-dkms", *LIBRARIES,
                       files=(OPEN, *EXPERIMENTAL)),
}

# Makes the GPU, loads NVIDIA's modules and makes the device nodes, as root's first CUDA program
# would.
START = """set -e
ldconfig
insmod /root/fakegpu/fakegpu.ko
for module in $(sed -n 's/^blacklist \\(nvidia-.*\\)/\\1/p' /etc/modprobe.d/lab.conf |
  grep -Ev 'drm|modeset|peermem' | sort); do
  modprobe $module
done
nvidia-modprobe -c 0 -c 255
nvidia-modprobe -u -c 0
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
def opened(node):
    try:
        return os.open(node, os.O_RDWR)
    except OSError:  # since 550, a GPU that fails cannot be opened twice; the fence ignores the node
        return os.open("/dev/nvidiactl", os.O_RDWR)
for node, *numbers in (line.split() for line in sys.stdin):
    for number in numbers:
        file = opened(node)
        try:
            fcntl.ioctl(file, int(number, 16), bytearray(0x4000))
            print(node, number, "answered")
        except OSError as error:
            print(node, number, error.strerror)
        os.close(file)
"""
TRACE = ("strace -f -qq -y -X raw -e trace=ioctl,openat -e signal=none -o /root/trace")
NO_GUARD = "env -u LD_PRELOAD"
RUNNING = []  # the machine that runs, or none


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    check: str  # in CHECKS
    text: str  # of the function that checks it, so that a changed check runs again
    machine: vm.Recipe
    version: str  # how the driver's version begins


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
    found = []
    for version, machine in RECIPES.items():
        for name, check in CHECKS.items():
            if not version or check in OF_EACH_VERSION:
                full = f"{name}-{version}" if version else name
                found.append(Row(full, name, inspect.getsource(check), machine,
                                 version.partition("-")[0] or "535"))
    return found


def run(lab, row):
    if row.check == "nvidia-smi":  # after other rows, 555's does not end, even unguarded
        machine_of.cache_clear()
    driver = Driver(lab, row.machine)
    assert driver.version.startswith(row.version), f"the driver is {driver.version}"
    facts = CHECKS[row.check](driver)
    return {"outcome": "passed", "driver": driver.version, **facts}


@functools.lru_cache(maxsize=1)
def machine_of(lab, recipe_of_row):
    """The machine of one version's rows. It ends with the next version, or this process."""
    end_machine()
    machine = vm.Machine(vm.image(lab, recipe_of_row), lab.state / "machine", KERNEL_WORDS)
    RUNNING.append(machine)
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


@atexit.register
def end_machine():
    while RUNNING:
        RUNNING.pop().__exit__()


class Fence:
    """The ioctls of policy/nvidia_requests.h."""

    def __init__(self, checkout):
        header = (checkout / "policy/nvidia_requests.h").read_text()
        self.uvm_initialize = int(re.search(r"kUvmInitialize = (\w+);", header)[1], 16)
        self.numbers = {int(number, 0)
                        for number in re.findall(r'^    \{(\w+), "\w+"\},$', header, re.MULTILINE)}
        assert len(self.numbers) > 30, "policy/nvidia_requests.h has another form"

    def knows(self, ioctl):
        """True if the header has this ioctl."""
        if ioctl.node.startswith("/dev/nvidia-uvm"):
            return ioctl.number == self.uvm_initialize
        return (ioctl.number >> 30 == 3 and ioctl.number >> 8 & 0xff == ord("F")
                and ioctl.number & 0xff in self.numbers)

    def all(self):
        """One ioctl for each number of the header, with a size that NVIDIA has."""
        return [Ioctl("/dev/nvidiactl", 3 << 30 | 32 << 16 | ord("F") << 8 | number, "")
                for number in sorted(self.numbers)]


def logged(log):
    """The ioctls to NVIDIA's devices in a log of strace."""
    return [Ioctl(node, int(number, 16), error) for node, number, error in LOGGED.findall(log)]


class Driver:
    """The machine with the driver, in which the rows run their commands."""

    def __init__(self, lab, recipe_of_row):
        self.machine = machine_of(lab, recipe_of_row)
        self.fence = Fence(lab.checkout)

    @functools.cached_property
    def version(self):
        """What the kernel module says, such as "535.261.03"."""
        return re.search(r"  (\d+\.[\d.]+) ", self.run("cat /proc/driver/nvidia/version", 0))[1]

    def sent(self, before, ioctls):
        """Sends the ioctls and returns a line for each answer."""
        lines = "\n".join(map(str, ioctls))
        return self.run(f"{before} python3 /root/send.py <<'END'\n{lines}\nEND", 0).splitlines()

    def run(self, command, code=None, timeout=300):
        """Runs a command in the machine. Returns its output, as does the command's pipe."""
        done = self.machine.ssh(f"timeout -k 9 {timeout} {command}", timeout=timeout + 60)
        assert code in (None, done.returncode), (
            f"{command} ended with {done.returncode}: {done.stdout[-1500:]}")
        return done.stdout

    def traced(self, before, command, code=None, timeout=300):
        """Runs `before strace command`. Returns the output, the opened nodes and the ioctls."""
        output = self.run(f"{before} {TRACE} {command}", code, timeout)
        log = self.machine.must("cat /root/trace")
        return output, OPENED.findall(log), logged(log)

    def launches(self, number):
        """Starts this many programs, eight at a time. Returns the output, the probes that the
        launchers started, and the seconds."""
        start = time.monotonic()
        output = self.run(
            f"{TRACE.replace('ioctl,openat', 'execve')} --seccomp-bpf sh -c 'seq {number} | "
            "xargs -P 8 -I NUMBER cudaguard run --if-healthy --report /root/health.jsonl -- "
            "sh -c \"echo started \\$CUDAGUARD_POLICY\"'", 0)
        seconds = round(time.monotonic() - start)
        log = self.machine.must("cat /root/trace")
        # The result is in another line if another process's call came between.
        return output, re.findall(r'execve\("([^"]*/cudaguard-probe)"(?!.* = -1)', log), seconds

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
    """cuInit fails, and each ioctl is one that policy/nvidia_requests.h has."""
    result, seconds = answer(driver.run("python3 /root/ask.py", 0))
    assert result != 0  # 999, or 100 by 470
    sent = driver.unguarded
    assert any(one.node == "/dev/nvidiactl" for one in sent), sent
    # After its first ioctl, the fence has refused a descriptor of UVM.
    unknown = [str(one) for one in sent if not driver.fence.knows(one)
               and not one.node.startswith("/dev/nvidia-uvm")]
    assert not unknown, f"policy/nvidia_requests.h lacks {unknown}"
    uvm = [one.number for one in sent if one.node.startswith("/dev/nvidia-uvm")]
    assert not uvm or uvm[0] == driver.fence.uvm_initialize, uvm
    return {"cuInit": result, "seconds of cuInit": seconds, "ioctls": [str(one) for one in sent]}


def guarded(driver):
    """cuInit returns 100, and no process opens the driver's devices."""
    output, opened, sent = driver.traced("", "cudaguard run -- python3 /root/ask.py", 0)
    result, seconds = answer(output)
    assert (result, opened, sent) == (100, [], []), (output, opened, sent)
    return {"seconds of cuInit": seconds}


def fenced(driver):
    """Without the guard, the fence still refuses each ioctl."""
    fence = f"cudaguard run --fence -- {NO_GUARD}"
    output, _, sent = driver.traced(fence, "python3 /root/ask.py", 0)
    result, seconds = answer(output)
    assert result == 100, output
    assert sent and {one.error for one in sent} == {"ENODEV"}, sent
    known = [one for one in driver.unguarded if driver.fence.knows(one)]
    every = driver.fence.all()
    refused = driver.sent(fence, known + every)
    wrong = [line for line in refused if not line.endswith(" No such device")]
    assert len(refused) == len(known + every) and not wrong, wrong
    control = driver.sent("", known)
    assert not any(line.endswith(" No such device") for line in control), control
    return {"cuInit": result, "seconds of cuInit": seconds,
            "refused": [str(one) for one in known], "refused by number": len(every)}


def if_healthy(driver):
    """The program runs on the CPU, and 64 launches ask the driver once."""
    program = "sh -c 'echo started $CUDAGUARD_POLICY; exit 3'"
    first = driver.run(f"cudaguard run --if-healthy=10,fresh -- {program}", 3)
    message = re.search(r"^cudaguard: --if-healthy: cuInit failed with 999 \(CUDA_ERROR_UNKNOWN\) "
                        r"after [\d.]+ m?s; the program runs without CUDA$", first, re.MULTILINE)
    assert message and "started FORCE_CPU\n" in first, first
    driver.run("rm -rf /run/cudaguard /root/health.jsonl", 0)
    # An answer is valid for 60 seconds.
    output, probes, seconds = driver.launches(64)
    assert seconds < 60, f"64 launches took {seconds} s, so this machine is too busy"
    reasons = re.findall(r"^cudaguard: --if-healthy: (cuInit failed with 999 .*); the program runs "
                         r"without CUDA$", output, re.MULTILINE)
    assert output.count("started FORCE_CPU\n") == 64 and len(reasons) == 64, output
    assert len(set(reasons)) == 1, f"more than one answer: {set(reasons)}"
    assert len(probes) == 1, probes
    report = driver.run("cudaguard report /root/health.jsonl")
    listed = re.search(r"started programs without CUDA on 1 host:\n +guest +64 programs.*", report)
    assert listed, report
    refused = driver.run("cudaguard run --if-healthy=10,require -- echo started", 125)
    assert "started\n" not in refused, refused
    return {"message": message[0], "probes": probes, "seconds of 64 launches": seconds,
            "report": listed[0].splitlines(), "require": refused.strip()}


def doctor_gpu(driver):
    """cudaguard doctor --gpu ends with 1 and has the reason."""
    text = driver.run("cudaguard doctor --gpu", 1)
    document = json.loads(driver.run("cudaguard doctor --gpu --json -", 1))
    assert document["healthy"] is False and "999" in document["reason"], document
    return {"text": text.strip(), "document": document}


def verify(driver):
    """verify fails for a guarded process, and for one that has lost the guard."""
    texts = {}
    for name, before in (("guarded", ""), ("bypassing the guard", "env -i ")):
        text = driver.run(f"cudaguard verify -- {before}python3 /root/ask.py", 1)
        assert "cudaguard: FAIL: 1 " in text and answer(text)[0] == 100, text
        texts[name] = text.splitlines()
    passing = driver.run("cudaguard verify -- python3 -c 'import json'", 0)
    assert "cudaguard: PASS: " in passing, passing
    return texts


def validate(driver):
    """VALIDATE and a list allow CUDA, so the program gets the driver's error."""
    result, seconds = answer(driver.run("cudaguard run --policy VALIDATE -- python3 /root/ask.py",
                                        0))
    assert result == 999, f"cuInit returned {result}"
    return {"seconds of cuInit": seconds}


def gpus(driver):
    """With a list, cuInit fails, too, and the message blames the driver, not the list."""
    text = driver.run("cudaguard run --gpus 0 -- python3 /root/ask.py", 0)
    result, seconds = answer(text)
    assert result == 999 and '--gpus "0": the driver fails with error 999' in text, text
    return {"cuInit": result, "seconds of cuInit": seconds, "text": text.splitlines()}


def observe(driver):
    """run --observe allows CUDA and records the attempt."""
    text = driver.run("cudaguard run --observe -- python3 /root/ask.py", 0)
    result, seconds = answer(text)
    assert result == 999 and "  asked by ask.py:4 through ctypes/cffi: cuInit" in text, text
    return {"seconds of cuInit": seconds, "text": text.splitlines()}


def doctor(driver):
    """doctor names the error, which ends both calls with 1, and finds that Python can be guarded."""
    text = driver.run("cudaguard doctor", 1)
    assert "cuInit fails with 999 CUDA_ERROR_UNKNOWN" in " ".join(text.split()), text
    guarded = driver.run("cudaguard doctor python3", 1)
    assert guarded.startswith("guarded: yes\n"), guarded
    return {"text": text.splitlines(), "python3": guarded.splitlines()}


def smi(driver):
    """nvidia-smi fails unguarded. Guarded it finds no driver, and fenced it asks in vain."""
    facts = {}
    for name, words in (("unguarded", ""), ("guarded", "cudaguard run -- "),
                        ("fenced", f"cudaguard run --fence -- {NO_GUARD} ")):
        output, opened, sent = driver.traced("", f"{words}nvidia-smi")
        facts[name] = output.splitlines()
        if name == "guarded":
            assert "communicate with the NVIDIA driver" in output and not opened and not sent, output
        if name == "fenced":
            assert sent and {one.error for one in sent} == {"ENODEV"}, sent
        if name == "unguarded":
            assert sent, "the kernel module was not asked"
    return facts


def persistenced(driver):
    """nvidia-persistenced as a guarded service asks nothing. CUDAGUARD_POLICY=OFF is the way out
    that docs/integrations/whole-machine.md names."""
    facts = {}
    driver.run("sh -c 'echo /usr/local/lib/libcudaguard.so >/etc/ld.so.preload'", 0)
    try:
        for name, words in (("guarded", ""), ("allowed", "env CUDAGUARD_POLICY=OFF ")):
            # strace follows the daemon until the time is over.
            # The daemon keeps its stdout, and ssh waits until nothing has its own stdout.
            _, opened, _ = driver.traced(
                words, "nvidia-persistenced --verbose </dev/null >/root/output 2>&1", timeout=60)
            driver.run("sh -c 'pkill -x nvidia-persiste; sleep 2'")
            output = driver.run("cat /root/output", 0)
            facts[name] = {"opened": sorted(set(opened)), "output": output.splitlines()}
    finally:
        driver.run("rm /etc/ld.so.preload", 0)
    assert not facts["guarded"]["opened"], facts
    return facts


CHECKS = {"unguarded": unguarded, "if-healthy": if_healthy, "doctor-gpu": doctor_gpu,
          "guarded": guarded, "fenced": fenced, "verify": verify, "validate": validate,
          "gpus": gpus, "observe": observe, "doctor": doctor, "nvidia-smi": smi,
          "nvidia-persistenced": persistenced}
OF_EACH_VERSION = (unguarded, guarded, fenced, verify, smi)
