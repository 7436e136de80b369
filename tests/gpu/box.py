# SPDX-License-Identifier: Apache-2.0
"""Represents the machine that scripts/gpu-check runs on, and runs programs there.

With a GPU the programs run as they are. Without one they run in a private /dev (bubblewrap),
because as root NVIDIA's driver would create device nodes of this machine. Without bubblewrap
either, the driver is not entered at all.
"""

import concurrent.futures
import dataclasses
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from support import harness

# /run has the answers of --if-healthy, which other programs must not use.
PRIVATE_DEV = ["bwrap", "--dev-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/run",
               "--die-with-parent", "--"]
# A program must not inherit these. LD_LIBRARY_PATH stays, because it may lead to the driver.
SCRUBBED = re.compile(r"^(LD_(PRELOAD|AUDIT|DEBUG.*|BIND_NOW)|CUDA_.*|CUDAGUARD_.*|NVIDIA_.*|"
                      r"OCL_ICD_.*|PYTORCH_.*|CG_.*)$")
OUR_LINE = re.compile(r"^cudaguard\[\d+\]: .*$", re.M)
RUNTIMES = ("11", "12", "13")
KINDS = ("shared", "static")
NO_GPU = "no GPU here"
GRACE = 20  # seconds that a program may continue after the time limit


def words_of(text):
    """Returns the words key=value that a program printed."""
    return dict(re.findall(r"([\w.\-]+)=(\S*)", text))


@dataclasses.dataclass
class Run:
    """The result of one run."""

    command: str = ""
    rc: int = None
    out: str = ""
    err: str = ""
    timed_out: bool = False
    seconds: float = 0.0
    opens: list = dataclasses.field(default_factory=list)  # opens of /dev/nvidia*
    mapped: list = dataclasses.field(default_factory=list)  # driver files
    attempts: list = dataclasses.field(default_factory=list)  # programs executed, but not by libc

    @property
    def words(self):
        return words_of(self.out)

    def number(self, key, otherwise=None):
        try:
            return int(self.words[key])
        except (KeyError, ValueError):
            return otherwise

    def lines(self):
        """Returns the lines that the guard printed."""
        return OUR_LINE.findall(self.err)

    def listed(self, prefix=""):
        """Returns the UUIDs in the order of the program's devices."""
        words = self.words
        count = int(words.get(prefix + "count", "0") or 0)
        return [words.get("%suuid%d" % (prefix, i), "?") for i in range(max(0, count))]

    def short(self):
        return {"command": self.command, "rc": self.rc, "out": self.out.strip()[:6000],
                "err": self.err.strip()[-3000:], "opens": len(self.opens),
                "seconds": round(self.seconds, 3)}


class Held:
    """A program that waits for lines on its stdin."""

    def __init__(self, process, deadline):
        self.process = process
        self.deadline = deadline
        self.lines = []
        self.errors = []
        self.arrived = threading.Condition()
        for stream, to in ((process.stdout, self.lines), (process.stderr, self.errors)):
            threading.Thread(target=self._read, args=(stream, to), daemon=True).start()

    def _read(self, stream, to):
        for line in stream:
            with self.arrived:
                to.append(line)
                self.arrived.notify_all()

    def line(self, timeout):
        """Returns the next line of output, or None if no line came in time."""
        end = min(time.monotonic() + timeout, self.deadline + GRACE)
        with self.arrived:
            while not self.lines:
                left = end - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self.arrived.wait(0.5)):
                    return None
                self.arrived.wait(min(left, 0.5))
            return self.lines.pop(0)

    def send(self, text):
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def end(self, timeout=30):
        """Closes its stdin, waits, and returns the rest of its output."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(max(1, min(timeout, self.deadline + GRACE - time.monotonic())))
        except subprocess.TimeoutExpired:
            stop(self.process)
        time.sleep(0.05)
        with self.arrived:
            return "".join(self.lines)

    def err(self):
        with self.arrived:
            return "".join(self.errors)


def stop(process):
    """Ends a process that gpu-check started, and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def works(command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Box:
    def __init__(self, source, build, lib=None, library_path=None, seconds=440):
        self.source = source
        self.build = os.path.abspath(build)
        self.lib = os.path.abspath(lib or os.path.join(build, "lib"))
        self.guard = os.path.join(self.lib, "libcudaguard.so")
        self.proxies = [os.path.join(self.lib, "cudaguard", "libcudaguard-%s.so" % name)
                           for name in ("driver", "nvml")]
        self.launcher = os.path.join(self.build, "bin", "cudaguard")
        self.directory = os.path.join(self.build, "tests", "gpu")
        self.deadline = time.monotonic() + seconds
        self.fake = library_path  # directories of a fake driver, which needs no device
        self.scratch = tempfile.mkdtemp(prefix="cg-gpu-")
        self.nodes = sorted(glob.glob("/dev/nvidia[0-9]*"))
        self.has_device = bool(self.nodes) and os.path.exists("/dev/nvidiactl")
        sandboxed = not self.has_device and works(PRIVATE_DEV + ["true"])
        self.prefix = PRIVATE_DEV if sandboxed else []
        # True if gpu-check may enter NVIDIA's driver here. With a fake driver that can still
        # happen, for example through NVIDIA's OpenCL.
        self.may_enter = self.has_device or sandboxed
        self.can_watch = works([*self.watcher(os.path.join(self.scratch, "try")), "true"])
        self.environment = {k: v for k, v in os.environ.items() if not SCRUBBED.match(k)}
        self.environment["LC_ALL"] = "C.UTF-8"
        if self.fake:
            old = self.environment.get("LD_LIBRARY_PATH")
            self.environment["LD_LIBRARY_PATH"] = self.fake + (":" + old if old else "")
        self.counter = 0
        self.lock = threading.Lock()
        self.gpus = []
        self.nvml = None  # the unguarded program's Run
        self.driver = None

    def watcher(self, log):
        """Returns the strace of this machine, or that of a packed tree with its loader."""
        packed = os.path.join(self.build, "strace")
        strace = [os.path.join(packed, "ld.so"), "--library-path", packed,
                  os.path.join(packed, "strace")] if os.path.exists(packed) else ["strace"]
        return [*strace, "-f", "-qq", "-s", "256", "-o", log, "-e", "trace=" + harness.TRACED, "-e",
                "signal=none", "--"]

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def left(self):
        return self.deadline - time.monotonic()

    def program(self, name):
        return os.path.join(self.directory, name)

    def have(self, name):
        return os.path.exists(self.program(name))

    def scratch_file(self, stem):
        with self.lock:
            self.counter += 1
            return os.path.join(self.scratch, "%s-%d" % (stem, self.counter))

    def runtimes(self):
        """Returns (major, kind, name of its program) of each runtime that was built."""
        return [(major, kind, "gpu_runtime_%s_%s" % (major, kind)) for major in RUNTIMES
                for kind in KINDS if self.have("gpu_runtime_%s_%s" % (major, kind))]

    def command(self, argv, env, preload, traced=None):
        """Builds the command. env(1) sets LD_PRELOAD after the sandbox and strace, which are not
        guarded."""
        words = ["%s=%s" % item for item in (env or {}).items() if item[1] is not None]
        words = ["-u" + key for key, value in (env or {}).items() if value is None] + words
        if preload:
            words.append("LD_PRELOAD=" + ":".join(preload))
        watcher = self.watcher(traced) if traced else []
        return self.prefix + watcher + (["env"] + words if words else []) + [str(a) for a in argv]

    def run(self, argv, guard=False, env=None, preload=(), timeout=60, watch=False, cwd=None,
            is_first=False):
        """Runs argv to its end. watch: record what it opens. is_first: the program's own process id
        is its CUDAGUARD_ROOT."""
        libraries = ([self.guard] if guard else []) + list(preload)
        log = self.scratch_file("opens") if watch else None
        if is_first:
            argv = as_first_process(argv)
        command = self.command(argv, env, libraries, log)
        result = Run(command=shlex.join(command[len(self.prefix):]))
        start = time.monotonic()
        try:
            process = subprocess.Popen(command, env=self.environment, cwd=cwd,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            result.err = str(error)
            return result
        try:
            out, err = process.communicate(timeout=max(1, min(timeout, self.left() + GRACE)))
        except subprocess.TimeoutExpired:
            result.timed_out = True
            stop(process)
            out, err = process.communicate()
        result.seconds = time.monotonic() - start
        result.rc = process.returncode
        result.out, result.err = (part.decode("utf-8", "replace") for part in (out, err))
        if watch and os.path.exists(log):
            read_trace(log, result, cwd)
        return result

    def launch(self, *words, **more):
        """Runs the launcher."""
        return self.run([self.launcher, *words], timeout=90, **more)

    def many(self, function, items, jobs=None):
        """Calls function(item) for each item, several at a time, and keeps the order."""
        jobs = jobs or max(1, min(8, os.cpu_count() or 1))
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(function, items))

    def hold(self, argv, guard=False, env=None, is_first=False):
        """Starts argv, which waits for its stdin."""
        command = self.command(as_first_process(argv) if is_first else argv, env,
                               [self.guard] if guard else [])
        return Held(subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     start_new_session=True), self.deadline)

    def look(self):
        """Lists the GPUs with an unguarded program."""
        if not self.may_enter:
            return
        if self.have("gpu_nvml"):
            self.nvml = self.run([self.program("gpu_nvml")])
        if self.have("gpu_driver"):
            self.driver = self.run([self.program("gpu_driver")],
                                   env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        # The indices of the allow-list follow NVML's order, or the driver's order without NVML.
        for answer in (self.nvml, self.driver):
            if answer and not self.gpus:
                words = answer.words
                self.gpus = [{"uuid": uuid, "name": words.get("name%d" % i, "gpu"),
                              "pci": words.get("pci%d" % i, ""),
                              "memory": int(words.get("total%d" % i, 0))}
                             for i, uuid in enumerate(answer.listed())]

    def uuids(self):
        return [gpu["uuid"] for gpu in self.gpus]

    def why_not(self):
        """Returns why a row that needs a GPU cannot be filled, or None."""
        if not self.have("gpu_driver"):
            return "tests/gpu is not built in " + self.build
        if not self.may_enter:
            return NO_GPU + ", and no bubblewrap: the driver is not entered"
        if self.left() <= 0:
            return "out of time"
        if not self.gpus:
            return NO_GPU
        if not self.driver or self.driver.number("cuInit") != 0:
            return "unguarded, cuInit answers %s" % (self.driver and self.driver.words.get("cuInit"))
        return None

    def why_no_launcher(self):
        return self.why_not() or self.why_no_proxy() or (
            None if os.path.exists(self.launcher) else "%s is not built" % self.launcher)

    def why_not_watched(self):
        return None if self.can_watch else "there is no strace, or it may trace no program"

    def why_no_proxy(self):
        for path in self.proxies:
            if not os.path.exists(path):
                return "%s is not built" % os.path.basename(path)
        return None

    def used_memory(self):
        """Returns the bytes in use on each GPU, or None if NVML does not report them."""
        words = self.run([self.program("gpu_nvml")]).words
        used = [int(words["used%d" % i]) for i in range(len(self.gpus)) if "used%d" % i in words]
        return used if used and len(used) == len(self.gpus) else None


def read_trace(log, result, cwd):
    seen = harness.Result()
    with open(log, encoding="utf-8", errors="replace") as stream:
        harness.parse_trace(stream, seen, cwd)
    result.opens = seen.device_opens + seen.device_nodes
    result.mapped = seen.driver_files
    result.attempts = seen.exec_attempts


def workers(count, how):
    """The command of a trainer and its workers."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers.py")
    return [sys.executable, path, str(count), how]


def as_first_process(argv):
    return ["sh", "-c", 'CUDAGUARD_ROOT=$$ exec "$@"', "sh"] + [str(word) for word in argv]
