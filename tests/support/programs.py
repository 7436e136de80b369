# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs unguarded and guarded, with NVIDIA's driver libraries installed, and
writes the table of tests/lab/results/programs.md."""

import glob
import os
import re
import subprocess
import tempfile

from support import harness, messages

SOURCE = harness.SOURCE
HERE = os.path.join(SOURCE, "tests", "frameworks")
PAGE = os.path.join(SOURCE, "tests", "lab", "results", "programs.md")
HEAD = ("| program | version | unguarded: tries at `/dev/nvidia*` | guarded: tries | guarded: asked by "
        "| run by |\n|---|---|---|---|---|---|\n")
RUNTIME = "nvidia-cuda-runtime-cu12"  # of scripts/fetch-cuda
STACKS = os.path.join("tests", "stacks", "programs")
LANGUAGES = os.path.join("tests", "entry_points", "languages")


class Program:
    """name: the table's name. package: of the environment's pins, or of Debian. run: the command
    with {bin}, {site}, {nvidia} of the environment, {here}, {source}, {build}. test: which test
    runs it."""

    def __init__(self, name, package, run, test, environment=None, env=None):
        self.name, self.package, self.run, self.test = name, package, run, test
        self.environment, self.env = environment, env or {}

    def version(self):
        """Returns the pinned version. For Debian's packages, returns the installed version or an
        empty text."""
        if self.environment and self.package != "python3-pycuda":
            path = os.path.join(HERE, "requirements", self.environment + ".txt")
            with open(path, encoding="utf-8") as stream:
                return re.search(r"(?m)^%s==(\S+)" % re.escape(self.package), stream.read())[1]
        if self.package == RUNTIME:
            with open(os.path.join(SOURCE, "scripts", "fetch-cuda"), encoding="utf-8") as stream:
                return re.search(r'"%s", "([0-9.]+)"' % RUNTIME, stream.read())[1]
        done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", self.package], text=True,
                              capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else ""


def python(name, package, environment, program, test, **more):
    return Program(name, package, "{bin}/python -B {here}/programs/" + program, test, environment,
                   **more)


def tool(name, package, environment, command, test):
    return Program(name, package, "{bin}/" + command, test, environment)


def language(name, package, command):
    return Program(name, package, command + " cuda libcuda.so.1", "entry_points/test_entry_points.py")


PROGRAMS = [
    Program("C++, the static CUDA runtime", RUNTIME, "{build}/tests/programs/runtime_12_static",
            "entry_points/test_entry_points.py"),
    Program("C++, the shared CUDA runtime", RUNTIME, "{build}/tests/programs/runtime_12_shared",
            "entry_points/test_entry_points.py", env={"LD_LIBRARY_PATH": "{runtime}"}),
    python("PyTorch, `is_available()` and `device_count()`", "torch", "torch", "torch_query.py",
           "frameworks/test_torch.py"),
    python("PyTorch, DataLoader and spawned workers", "torch", "torch", "torch_workers.py",
           "frameworks/test_torch.py"),
    Program("PyTorch, the line that chooses CleanRL's device", "torch",
            "{bin}/python -B {source}/%s/device_line.py" % STACKS, "stacks/test_frameworks.py", "torch"),
    Program("TorchRL, a collector with two workers", "torchrl",
            "{bin}/python -B {source}/%s/torchrl_workers.py" % STACKS, "stacks/test_frameworks.py",
            "scenarios"),
    Program("YOLOv5, `select_device`", "yolov5",
            "{bin}/python -B {source}/%s/yolo_device.py" % STACKS, "stacks/test_frameworks.py", "scenarios"),
    Program("TensorFlow, `list_physical_devices`", "tensorflow",
            "{bin}/python -c 'import tensorflow; tensorflow.config.list_physical_devices(\"GPU\")'",
            "stacks/test_frameworks.py", "tensorflow"),
    Program("CuPy, `is_available()`", "cupy-cuda12x",
            "{bin}/python -c 'import cupy; cupy.cuda.is_available()'", "stacks/test_frameworks.py", "cupy"),
    Program("Numba, `is_available()`", "numba",
            "{bin}/python -c 'import numba.cuda; numba.cuda.is_available()'", "stacks/test_frameworks.py",
            "numba"),
    python("ONNX Runtime, CUDA and CPU providers", "onnxruntime-gpu", "onnxruntime",
           "onnxruntime_session.py CUDAExecutionProvider CPUExecutionProvider",
           "frameworks/test_onnxruntime.py", env={"LD_LIBRARY_PATH": "{nvidia}"}),
    python("CTranslate2", "ctranslate2", "ctranslate2", "ctranslate2_devices.py",
           "frameworks/test_ctranslate2.py"),
    python("cuda-python 12", "cuda-python", "cuda-python-12", "cuda_python.py count",
           "frameworks/test_cuda_python.py"),
    python("cuda-python 13", "cuda-python", "cuda-python-13", "cuda_python.py count",
           "frameworks/test_cuda_python.py"),
    Program("PyCUDA, linked to the driver", "python3-pycuda",
            "{bin}/python {source}/%s/pycuda_entry_point.py" % LANGUAGES, "entry_points/test_entry_points.py", "pycuda",
            {"PYTHONPATH": "{bin}/../debian/usr/lib/python3/dist-packages",
             "LD_LIBRARY_PATH": "{debian}:{nvidia}"}),
    Program("UCX, `ucx_info -e`", "libucx-cu12", "{site}/libucx/bin/ucx_info -e -u t",
            "frameworks/test_ucx.py", "ucx", {"LD_LIBRARY_PATH": "{site}/libucx/lib"}),
    python("nvidia-ml-py", "nvidia-ml-py", "nvml", "nvml_devices.py count", "frameworks/test_nvml.py"),
    tool("gpustat", "gpustat", "monitors", "gpustat --no-header", "frameworks/test_monitors.py"),
    tool("nvitop", "nvitop", "monitors", "nvitop --once --ascii", "frameworks/test_monitors.py"),
    tool("nvitop-exporter", "nvitop-exporter", "monitors", "nvitop-exporter --bind-address 127.0.0.1",
         "frameworks/test_monitors.py"),
    python("CodeCarbon", "codecarbon", "monitors", "codecarbon_gpus.py", "frameworks/test_monitors.py"),
    Program("nvidia-smi", "nvidia-smi", "nvidia-smi", "entry_points/test_entry_points.py"),
    Program("FFmpeg, `h264_nvenc`", "ffmpeg", "ffmpeg -v error -f lavfi -i color=s=64x64:d=0.1 "
            "-c:v h264_nvenc -f null -", "driver_package/test_programs.py"),
    Program("GStreamer, `nvcodec`", "gstreamer1.0-plugins-bad", "gst-inspect-1.0 nvcodec",
            "driver_package/test_programs.py", env={"HOME": "{directory}", "XDG_CACHE_HOME": "{directory}"}),
    Program("nvidia-persistenced", "nvidia-persistenced", "nvidia-persistenced",
            "driver_package/test_programs.py"),
    Program("clinfo, OpenCL", "clinfo", "clinfo -l", "entry_points/test_entry_points.py"),
    language("Python, ctypes", "python3", "/usr/bin/python3 {source}/%s/ctypes_entry_point.py" % LANGUAGES),
    language("Python, cffi", "python3-cffi", "/usr/bin/python3 {source}/%s/cffi_entry_point.py" % LANGUAGES),
    language("Ruby, Fiddle", "ruby", "ruby {source}/%s/fiddle.rb" % LANGUAGES),
    language("LuaJIT, ffi", "luajit", "luajit {source}/%s/ffi.lua" % LANGUAGES),
    language("Perl, FFI::Platypus", "libffi-platypus-perl",
             "perl {source}/%s/platypus.pl" % LANGUAGES),
    language("Go, cgo", "golang-go", "{build}/tests/entry_points/languages/cgo"),
    language("Java, JNA", "libjna-java", "java -Xshare:auto -cp "
             "/usr/share/java/jna.jar:{build}/tests/entry_points/languages JnaEntryPoint"),
]


def rows_of(page):
    """Returns the table's rows by name and ignores other text and the lab's table."""
    page = page.split("\n## Programs of the lab\n")[0]
    return {line.split(" | ")[0][2:]: line for line in page.splitlines()
            if re.match(r"\| .* \| .* \|$", line) and " | " in line and "program | v" not in line}


def places(program, build, directory):
    """Returns the values of the braces in a command."""
    environment = os.path.join(harness.DEPS, "frameworks", program.environment or "none")
    site = (glob.glob(environment + "/lib/python3*/site-packages") or [""])[0]
    return {"bin": environment + "/bin", "site": site, "here": HERE, "source": SOURCE,
            "build": build, "directory": directory,
            "runtime": os.path.join(harness.DEPS, "cuda-12", "lib"),
            "nvidia": ":".join(sorted(glob.glob(site + "/nvidia/*/lib"))),
            "debian": ":".join(glob.glob(environment + "/debian/usr/lib/*-linux-gnu"))}


def measure(program, build):
    """Returns a row, or the reason why there is none."""
    version = program.version()
    if program.environment and not os.path.exists(
            os.path.join(harness.DEPS, "frameworks", program.environment, ".fetched")):
        return None, "run scripts/fetch-frameworks build/_deps " + program.environment
    if program.package == "python3-pycuda":
        version = "Debian 12's"
    if not version:
        return None, "not installed: " + program.package
    results = []
    for guard in (False, True):
        with tempfile.TemporaryDirectory(prefix="cg-") as directory:
            os.chmod(directory, 0o777)
            known = places(program, build, directory)
            report = os.path.join(directory, "report.jsonl")
            env = {name: text.format(**known) for name, text in program.env.items()}
            if guard:
                env["CUDAGUARD_REPORT"] = report
            result = harness.run(["sh", "-c", "exec " + program.run.format(**known)], world="real",
                                 guard=guard, env={"OMP_NUM_THREADS": "1", **env}, timeout=600,
                                 cwd=directory)
            result.records = harness.records(report)
            results.append(result)
    unguarded, guarded = results
    if not unguarded.reached_driver():
        return None, "unguarded it does not reach the driver:\n%s" % unguarded
    if guarded.reached_driver():
        return None, "guarded it reaches the driver:\n%s" % guarded
    asked = sorted({message["asked_by"]
                    for message in messages.find(guarded.err, *messages.DENIED)} or {
        os.path.basename(record["caller"].split("+")[0]) for record in guarded.records})
    asked = sorted(re.sub(r"(?<!\S)/\S*/", "", name) for name in asked)
    mapped = sorted({os.path.basename(path) for path in guarded.driver_files})
    who = ", ".join("`%s`" % name for name in asked)
    if mapped:
        who += "; maps " + ", ".join("`%s`" % name for name in mapped)
    return "| %s | %s | %d | %d | %s | %s |" % (
        program.name, version, len(unguarded.device_opens) + len(unguarded.device_nodes),
        len(guarded.device_opens) + len(guarded.device_nodes), who, program.test), ""


def write_table():
    """Measures all programs and writes the page. If a program is not on this machine, its row stays
    as it is. Returns the reasons."""
    with open(PAGE, encoding="utf-8") as stream:
        page = stream.read()
    before, rows, missing = rows_of(page), [], []
    for program in PROGRAMS:
        row, why = measure(program, harness.BUILD)
        if not row:
            missing.append("%s: %s" % (program.name, why))
        row = row or before.get(program.name)
        if row:
            rows.append(row)
    with open(PAGE, "w", encoding="utf-8") as stream:
        stream.write(page[:page.index(HEAD) + len(HEAD)] + "\n".join(rows) +
                     page[page.index("\n\n", page.index(HEAD)):])
    return missing
