# SPDX-License-Identifier: Apache-2.0
"""Runs one program in a world with no driver, a recording fake driver or NVIDIA's real one.

If the machine has a driver, the program runs under bubblewrap, which hides the driver and gives the
program its own /dev, because as root NVIDIA's driver would create /dev/nvidiactl. Otherwise nothing
is to be hidden, and the program needs no namespace, which a container forbids. The log of strace
lists what the whole process tree opened.
The guard is preloaded into the program only, never into bubblewrap or strace.
"""

import atexit
import functools
import glob
import json
import os
import pty
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from support import machine, recorded, settings

try:
    import jsonschema
except ImportError:
    jsonschema = None

BUILD, DEPS, FULL, LIB, SOURCE = (settings.BUILD, settings.DEPS, settings.FULL, settings.LIB,
                                  settings.SOURCE)
read = settings.read
GUARD = os.path.join(LIB, "libcudaguard.so")
NULL_DRIVER_DIR = os.path.join(LIB, "cudaguard")
NULL_DRIVER_CUDA = os.path.join(NULL_DRIVER_DIR, "libcuda.so.1")
NULL_DRIVER_NVML = os.path.join(NULL_DRIVER_DIR, "libnvidia-ml.so.1")
# FAKE_DRIVER has one GPU and the layout of an installed driver. Other fakes are in other
# directories of FAKES (tests/fakes/CMakeLists.txt).
FAKES = os.path.join(BUILD, "tests", "fakes")
FAKE_DRIVER = os.path.join(FAKES, "driver")
PROGRAMS = os.path.join(BUILD, "tests", "programs")
TRACED = "open,openat,openat2,execve,execveat,mknod,mknodat"

# Debian keeps the driver's files in one directory to which the system's links lead. An empty file
# system over that directory makes a machine without a driver.
REAL_DRIVER_DIRS = [
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
]
# Files of CUDA, NVML and OpenCL. The tests ignore NVIDIA's OpenGL and Vulkan.
DRIVER_FILE = re.compile(r"^(?:nvidia--)?lib(cuda|nvcuvid|nvidia-(ml|cfg|opencl|nvvm\w*|encode|"
                         r"ptxjitcompiler|opticalflow|gpucomp|compiler))\.so(\.[0-9.]+)?"
                         r"(-\w+-linux-gnu)?$")
INIT_CALL = re.compile(r"^(cuInit|nvmlInit\w*|opencl)$")
NO_DRIVER = "NVIDIA's driver libraries (libcuda1, libnvidia-ml1) are not installed"
# For a program that makes nodes in /dev: with these arguments it always runs in the sandbox.
OWN_DEV = ("--dev", "/dev")
# Variables that a test must not inherit from the shell that starts it.
SCRUBBED = re.compile(r"^(LD_(PRELOAD|LIBRARY_PATH|AUDIT|DEBUG.*|BIND_NOW)|CUDA_.*|CUDAGUARD_.*|"
                      r"NVIDIA_.*|OCL_ICD_.*|PYTORCH_.*|PYTHON(PATH|WARNINGS)|FORCE_COLOR|PY_COLORS|"
                      r"GLIBC_TUNABLES|CG_FAKE_LOG)$")


def sample(items, most):
    """All items in scripts/test --full, otherwise at most `most`, evenly spread."""
    items = list(items)
    if FULL or len(items) <= most:
        return items
    return [items[i * len(items) // most] for i in range(most)]


def may_skip(reason):
    """False if --must-run forbids a skip for this reason. A tool may be missing without --all, for
    which it is installed."""
    if not settings.MUST_RUN:
        return True
    if reason.endswith(NO_DRIVER):
        return "driver" in settings.WITHOUT
    return machine.may_skip(reason) or not (settings.ALL or machine.is_need(reason))


def skip(case, reason):
    """Skips the test `case`. Under --must-run it fails the test instead. For what the machine lacks,
    use machine.need()."""
    if not may_skip(reason):
        case.fail("may not be skipped (--must-run): " + reason)
    case.skipTest(reason)


def real_driver_dir():
    """The directory that has both libraries of the real driver, libcuda and NVML, or None."""
    for directory in REAL_DRIVER_DIRS:
        if not missing_driver_files(directory, "libcuda.so.1", "libnvidia-ml.so.1"):
            return directory
    return None


def missing_driver_files(directory, *names):
    """The libraries of NVIDIA's driver in `names` that are not in the directory."""
    return [name for name in names if not os.path.exists(os.path.join(directory, name))]


def real_driver_file():
    """The path at which programs find the real driver: /usr/lib/<arch>/libcuda.so.1."""
    directory = real_driver_dir()
    return directory and os.path.join(directory[:-len("/nvidia/current")], "libcuda.so.1")


def have_real_driver():
    return real_driver_dir() is not None


def have_reference_driver():
    """True if the real driver is the release with which the committed tables were made."""
    path = real_driver_file()
    return bool(path) and os.path.basename(os.path.realpath(path)).startswith("libcuda.so.535.")


def have_fake_driver():
    return os.path.exists(os.path.join(FAKE_DRIVER, "libcuda.so.1"))


def guarded(library, place=r"\w+"):
    """The guarded names of DRIVER, CONTEXT (a part of DRIVER), NVML or RUNTIME
    (shim/api/guarded.inc)."""
    with open(os.path.join(SOURCE, "shim", "api", "guarded.inc"), encoding="utf-8") as stream:
        macro = library.replace("DRIVER", "DRIVER|CONTEXT")
        row = r"^GUARDED_(?:%s)\((\w+)(?:, (?:%s))?\)" % (macro, place)
        names = re.findall(row, stream.read(), re.MULTILINE)
    if len(names) < 5:
        raise RuntimeError("guarded.inc has hardly a row of " + library)
    return set(names)


def program(name):
    return os.path.join(PROGRAMS, name)


def bytes_of(path):
    with open(path, "rb") as stream:
        return stream.read()


def records(path):
    """The records of a report; none if there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def copy_install(target):
    """The lib directory under test, copied with its links; returns the guard in it."""
    ours = re.compile(r"(libcudaguard\.so|cudaguard|lib(cuda|nvidia-ml|nvidia-opencl)\.so(\..*)?)$")
    shutil.copytree(LIB, target, symlinks=True,
                    ignore=lambda directory, names: [n for n in names if not ours.match(n)]
                    if directory == LIB else [])
    return os.path.join(target, "libcudaguard.so")


def shown(command, terminal, **more):
    """What the command writes to its standard error, which is a terminal or a pipe, and to its
    standard output, unless `stdout` in `more` leads elsewhere. Returns (exit code, text)."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    more.setdefault("stdout", theirs)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=theirs, **more) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:
            pass  # a terminal without a writer
    os.close(ours)
    return process.returncode, text.decode("utf-8").replace("\r\n", "\n")


def reachable(path):
    """True if every user can read what is at the path: no directory above it is closed to others."""
    path = os.path.realpath(path)
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True


@functools.lru_cache(None)
def public_directory():
    directory = tempfile.mkdtemp(prefix="cg-public-")
    os.chmod(directory, 0o755)
    atexit.register(shutil.rmtree, directory, True)
    return directory


@functools.lru_cache(None)
def public(path):
    """A path at which every user finds this file or directory: itself, or a copy of the same name.
    A checkout in root's home, for example, is closed to others."""
    if reachable(path):
        return path
    directory = tempfile.mkdtemp(dir=public_directory())
    os.chmod(directory, 0o755)
    target = os.path.join(directory, os.path.basename(path))
    if os.path.isdir(path):
        return shutil.copytree(path, target, symlinks=True)
    return shutil.copy(path, target)


@functools.lru_cache(None)
def public_guard():
    """The guard, in an installation that every user can reach."""
    if reachable(GUARD):
        return GUARD
    return copy_install(os.path.join(public_directory(), "lib"))


@functools.lru_cache(None)
def which(name, _path):
    """shutil.which(), which looks into each directory of PATH, once for each PATH."""
    return shutil.which(name)


def loader_of(path):
    """The program interpreter that an executable names, for example /lib64/ld-linux-x86-64.so.2."""
    try:
        with open(path, "rb") as stream:
            match = re.search(rb"/lib[\w/.-]*/ld-linux[\w.-]*\.so\.\d", stream.read(1 << 16))
    except OSError:
        return ""
    return match[0].decode() if match else ""


class Result:
    """What the program did in one run."""

    def __init__(self):
        self.rc = None  # exit code; 128+n: killed by signal n
        self.out = ""
        self.err = ""
        self.timed_out = False
        self.words, self.environment, self.given = [], {}, set()
        self.fake_calls = []  # names logged by the recording fakes, in order
        self.device_opens = []  # paths below /dev/nvidia* that a process tried to open
        self.device_nodes = []  # such paths that a process tried to create
        self.driver_files = []  # driver libraries that were opened, without the null drivers
        self.execs = []  # programs executed
        self.exec_attempts = []  # programs executed, and failed attempts to execute

    @property
    def command(self):
        """The command without the variables that the test has not given."""
        hidden = {option + "%s=%s" % item for item in self.environment.items()
                  for option in ("", "-E")
                  if item[0] not in self.given and not item[0].startswith("LD_")}
        return shlex.join([word for word in self.words if word not in hidden])

    @property
    def answers(self):
        """The words key=value that the program printed. A later value replaces an earlier one."""
        return dict(re.findall(r"([\w.\-]+)=(\S*)", self.out))

    def init_calls(self):
        return [name for name in self.fake_calls if INIT_CALL.match(name)]

    def reached_driver(self):
        # Without a device, an ordinary user's driver only tries to make the device node.
        return bool(self.init_calls() or self.device_opens or self.device_nodes)

    def broken(self, linked=False):
        """The promises that this run breaks, as text; an empty list if none.

        linked: the program is linked to the driver and no null driver is preloaded. ld.so then maps
        the driver before the guard can act, and the driver must stay uninitialised.
        """
        found = []
        if self.init_calls():
            found.append("fake driver initialised: " + " ".join(self.init_calls()))
        if self.device_opens:
            found.append("opened " + " ".join(sorted(set(self.device_opens))))
        if self.device_nodes:
            found.append("created " + " ".join(sorted(set(self.device_nodes))))
        if any(os.path.basename(path) == "nvidia-modprobe" for path in self.exec_attempts):
            found.append("ran nvidia-modprobe")
        if not linked:
            if self.driver_files:
                found.append("mapped " + " ".join(sorted(set(self.driver_files))))
            if self.fake_calls and not self.init_calls():
                found.append("called the fake driver: " + " ".join(self.fake_calls[:8]))
        return found

    def assert_untouched(self, case, linked=False):
        found = self.broken(linked)
        if found:
            case.fail("the program reached the driver:\n  %s\n%s" % ("\n  ".join(found), self))

    def assert_reached(self, case):
        if not self.reached_driver():
            case.fail("control: the unguarded program does not reach the driver\n%s" % self)

    def __str__(self):
        def tail(text):
            return "\n".join("    | " + line for line in text.splitlines()[-30:])

        return ("  command: %s\n  exit code: %s%s\n  stdout:\n%s\n  stderr:\n%s\n"
                "  fake calls: %s\n  device opens: %s\n  driver files: %s" %
                (self.command, self.rc, " (timed out)" if self.timed_out else "", tail(self.out),
                 tail(self.err), " ".join(self.fake_calls[:20]), self.device_opens[:6],
                 sorted(set(self.driver_files))))


def child_environment(world, guard, env, preload, fake_log):
    """The environment of the program, without variables of the test runner."""
    result = {k: v for k, v in os.environ.items() if not SCRUBBED.match(k)}
    result["LC_ALL"] = "C.UTF-8"
    result["CG_FAKE_LOG"] = fake_log
    env = dict(env or {})
    libraries = ([GUARD] if guard else []) + [str(path) for path in preload]
    given = env.pop("LD_PRELOAD", None)
    if given:
        libraries.append(given)
    if libraries:
        result["LD_PRELOAD"] = ":".join(libraries)
    if world == "fake":
        given = env.pop("LD_LIBRARY_PATH", None)
        result["LD_LIBRARY_PATH"] = FAKE_DRIVER + (":" + given if given else "")
    for key, value in env.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = str(value)
    return result


@functools.lru_cache(None)
def nothing_to_hide():
    """True if the machine has neither a library of NVIDIA's driver nor a device node."""
    directories = [*REAL_DRIVER_DIRS, "/usr/lib", "/usr/lib64", "/usr/local/lib",
                   *glob.glob("/usr/lib/*-linux-gnu")]
    ldconfig = shutil.which("ldconfig", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    return not (any(glob.glob(os.path.join(directory, name + "*")) for directory in directories
                    for name in ("libcuda.so", "libnvidia-ml.so")) or glob.glob("/dev/nvidia*") or
                re.search(r"lib(cuda|nvidia-ml)\.so", known))


def sandbox(world, extra=()):
    """bubblewrap's command line for a world. It is empty if there is nothing to hide and the caller
    asks for no mount. Skips the test if bubblewrap is needed and the machine lacks it."""
    if world != "real" and not extra and nothing_to_hide():
        return []
    machine.need("sandbox")
    argv = ["bwrap", "--dev-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/dev/shm",
            "--die-with-parent"]
    if world != "real":
        for directory in REAL_DRIVER_DIRS:
            if os.path.isdir(directory):
                argv += ["--tmpfs", directory]
    return argv + list(extra) + ["--"]


def run(argv, world="fake", guard=True, env=None, preload=(), stdin=None, cwd=None, trace=True,
        timeout=settings.PATIENCE, bwrap=(), sandboxed=True):
    """Runs argv and returns a Result.

    world: "none", "fake" or "real". guard: put libcudaguard.so into the program's LD_PRELOAD.
    env: variables in addition to the test's own (None deletes one). preload: libraries after the
    guard in LD_PRELOAD (for another order, use guard=False and put harness.GUARD among them).
    stdin: text. bwrap: more arguments for the sandbox. sandboxed=False: no sandbox, for setuid
    programs, which bubblewrap forbids; only in the fake world, which cannot change the machine.
    """
    if world not in ("none", "fake", "real"):
        raise ValueError("world: " + world)
    if not sandboxed and world != "fake":
        raise ValueError("only the fake world may run outside the sandbox")
    if world == "fake" and not have_fake_driver():
        raise RuntimeError("no recording fake driver in " + FAKE_DRIVER)
    if world == "real" and not have_real_driver():
        raise RuntimeError("no real driver on this machine")
    box = sandbox(world, bwrap) if sandboxed else []
    if trace:
        machine.need("tracing")
    with tempfile.TemporaryDirectory(prefix="cg-") as scratch:
        os.chmod(scratch, 0o777)
        fake_log = os.path.join(scratch, "fake.log")
        trace_log = os.path.join(scratch, "strace.log")
        environment = child_environment(world, guard, env, preload, fake_log)
        variables = ["%s=%s" % item for item in sorted(environment.items())]
        words = ([settings.RUNNER] if settings.RUNNER else []) + [str(word) for word in argv]
        if trace:
            # Without a filter every system call stops the program. With a filter setuid does not
            # work, but it does not work in the sandbox either.
            quick = ["--seccomp-bpf"] if sandboxed else []
            launch = [which("strace", os.environ["PATH"]), *quick, "-f", "-qq", "-s", "256", "-o",
                      trace_log, "-e", "trace=" + TRACED, "-e", "signal=none", "-EPATH", "-EPWD"]
            launch += ["-E" + variable for variable in variables] + ["--"] + words
        else:
            launch = [which("env", os.environ["PATH"]), "-i"] + variables + words
        command = box + launch
        command[0] = which(command[0], os.environ["PATH"])
        result = Result()
        result.words, result.environment, result.given = command, environment, set(env or ())
        # strace searches for the program in its own PATH. bubblewrap adds PWD.
        outer = {"PATH": environment.get("PATH", os.defpath)}
        process = subprocess.Popen(
            command, cwd=cwd, env=outer, stdin=subprocess.DEVNULL if stdin is None else
            subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = process.communicate(
                None if stdin is None else stdin.encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
            result.timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        # A signal's number is 128+n, as bubblewrap and the shell report it.
        result.rc = process.returncode if process.returncode >= 0 else 128 - process.returncode
        result.out = out.decode("utf-8", "replace")
        result.err = err.decode("utf-8", "replace")
        if os.path.exists(fake_log):
            result.fake_calls = read(fake_log).split("\n")[:-1]
        if trace:
            if not os.path.exists(trace_log):
                raise RuntimeError("strace wrote no log:\n%s" % result)
            with open(trace_log, encoding="utf-8", errors="replace") as stream:
                parse_trace(stream, result, cwd)
        return result


CALL = re.compile(r"^(?P<pid>\d+)\s+(?P<name>\w+)\((?P<rest>.*)$")
RESUMED = re.compile(r"^(?P<pid>\d+)\s+<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
ANSWER = re.compile(r"\)\s+= (-?\d+|\?)")


def parse_trace(lines, result, cwd=None):
    """Fills result's lists from strace's log."""
    pending = {}
    for line in lines:
        match = CALL.match(line)
        if match:
            path = QUOTED.search(match["rest"])
            if not path:
                continue
            path = os.path.join(cwd or "", path[1])
            note_attempt(match["name"], path, result)
            if line.rstrip().endswith("<unfinished ...>"):
                pending[match["pid"]] = (match["name"], path)
                continue
            note_answer(match["name"], path, ANSWER.search(line), result)
            continue
        match = RESUMED.match(line)
        if match and match["pid"] in pending:
            name, path = pending.pop(match["pid"])
            note_answer(name, path, ANSWER.search(line), result)


def note_attempt(name, path, result):
    if name.startswith("exec"):
        result.exec_attempts.append(path)
    elif re.match(r"^/+dev/+nvidia", path):
        (result.device_nodes if name.startswith("mknod") else result.device_opens).append(path)


def note_answer(name, path, answer, result):
    # strace prints "?" if the thread vanishes in a successful execve. The program did start.
    worked = answer is not None and (answer[1] == "?" or int(answer[1]) >= 0)
    if not worked:
        return
    if name.startswith("exec"):
        result.execs.append(path)
    elif name.startswith("open") and DRIVER_FILE.match(os.path.basename(path)):
        directory = os.path.realpath(os.path.dirname(path))
        if directory != os.path.realpath(NULL_DRIVER_DIR):
            result.driver_files.append(path)


class Case(unittest.TestCase):
    """A test case with what most tests need. If a tool is missing, the test skips, with the reason."""

    maxDiff = None

    def need(self, *tools):
        if "strace" in tools:
            machine.need("tracing")
        missing = [tool for tool in tools if not shutil.which(tool)]
        if missing:
            skip(self, "not installed: " + ", ".join(missing))

    def need_fetched(self, name):
        """Returns the directory of the programs that scripts/fetch-frameworks has fetched."""
        directory = os.path.join(DEPS, "frameworks", name)
        if not os.path.exists(os.path.join(directory, ".fetched")):
            skip(self, "run scripts/fetch-frameworks %s %s" % (DEPS, name))
        return os.path.join(directory, "bin")

    def need_daemon(self, name):
        """Unpacks a service to DEPS/NAME (scripts/fetch-daemons), without packages that this
        machine has installed. Returns the directories of its libraries."""
        done = subprocess.run([os.path.join(SOURCE, "scripts", "fetch-daemons"), DEPS, name],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            skip(self, done.stderr.strip() or "fetch-daemons failed")
        return ":".join(glob.glob(os.path.join(DEPS, name, "usr/lib/*-linux-gnu")) +
                        glob.glob(os.path.join(DEPS, name, "lib/*-linux-gnu")))

    def validates(self, document, *schema):
        """The document follows the JSON schema in this file below shim/."""
        if jsonschema is None:
            skip(self, "python3-jsonschema is not installed")
        errors = jsonschema.Draft202012Validator(recorded.schema(*schema)).iter_errors(document)
        self.assertEqual([error.message for error in errors], [], document)

    @staticmethod
    def state(pid):
        """The process's state, as in /proc/PID/stat: R, S, D, T, …"""
        return read("/proc/%d/stat" % pid).rsplit(")", 1)[1].split()[0]

    @classmethod
    def has_ended(cls, pid):
        """A zombie has ended, too: a container without an init process reaps no orphan."""
        try:
            return cls.state(pid) in "ZX"
        except (FileNotFoundError, ProcessLookupError):  # reaped before open, or before read
            return True

    def until(self, condition, *what):
        """Waits up to a minute, which only a test that hangs needs."""
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end, "%s never came" % (what or condition,))
            time.sleep(0.01)

    def need_real_driver(self, *others):
        """others: libraries of the driver that the test needs in addition to libcuda and NVML."""
        if not have_real_driver():
            skip(self, NO_DRIVER)
        if missing := missing_driver_files(real_driver_dir(), *others):
            skip(self, "not installed: " + ", ".join(missing))


def lent(case):
    """For a fixture of test functions: the case's helpers, set up and cleaned up again."""
    try:
        case.setUp()
        yield case
    finally:
        assert case.doCleanups(), "a cleanup failed"


class DirectoryCase(Case):
    """A test case with its own directory, which bubblewrap and other users can see."""

    def setUp(self):
        super().setUp()
        self.directory = tempfile.mkdtemp(prefix="cg-")
        os.chmod(self.directory, 0o755)
        self.addCleanup(shutil.rmtree, self.directory, True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def make(self, name, text, mode=0o755):
        """Writes a file with these bytes or this text, also into a new directory. Returns its
        path."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as stream:
            stream.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(self.path(name), mode)
        return self.path(name)
