# SPDX-License-Identifier: Apache-2.0
"""Programs that scripts/gpu-check starts, guarded and unguarded. They print words key=value.

    where             the driver's file and version
    gpus              NVML's GPUs: UUID, name, PCI id, memory; the driver's version
    watch             each GPU's memory in use, lowest and highest, and the processes that were seen
                      on it, until stdin is closed
    context           the primary context of device 0, until stdin is closed
    kernel            the same, then loads a kernel from PTX, runs and checks it
    workers HOW N     a trainer and N workers, which each make a context on device 0, as workers of
                      an environment do that import a framework. HOW is spawn, or fork: before the
                      trainer's first CUDA call. A line on stdin starts each step, and a line on
                      stdout answers it: the trainer's context, then the workers'. The third line
                      ends all.
"""

import ctypes
import os
import select
import subprocess
import sys
import time

by = ctypes.byref
# The kernel computes out[i] = 3 * i + 1.
PTX = """.version 6.4
.target %s
.address_size 64
.visible .entry fill(.param .u64 out) {
 .reg .u32 %%i, %%v; .reg .u64 %%p, %%o;
 mov.u32 %%i, %%tid.x; mad.lo.u32 %%v, %%i, 3, 1;
 ld.param.u64 %%p, [out]; cvta.to.global.u64 %%p, %%p;
 mul.wide.u32 %%o, %%i, 4; add.u64 %%p, %%p, %%o;
 st.global.u32 [%%p], %%v; ret; }
"""


def show(words):
    print(*("%s=%s" % item for item in words.items()), flush=True)


def where():
    driver, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-7)
    driver.cuDriverGetVersion(by(version))
    # dlinfo's RTLD_DI_LINKMAP. The second member of struct link_map is the name.
    link_map = ctypes.POINTER(ctypes.c_char_p)()
    ctypes.CDLL(None).dlinfo(ctypes.c_void_p(driver._handle), 2, by(link_map))
    show({"driver": link_map[1].decode(), "version": version.value})


class Nvml:
    def __init__(self):
        self.library, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
        self.answer = self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetCount_v2", by(count))
        self.devices = [ctypes.c_void_p() for _ in range(count.value)]
        for i, device in enumerate(self.devices):
            self.call("nvmlDeviceGetHandleByIndex_v2", i, by(device))

    def call(self, name, *arguments):
        """The answer, or None if this library lacks the function."""
        function = getattr(self.library, name, None)
        return function and function(*arguments)

    def text(self, name, *device):
        found = ctypes.create_string_buffer(128)
        self.call(name, *device, found, 128)
        return found.value.decode().replace(" ", "_")

    def memory(self, device):
        """[total, free, used], or None if NVML does not report it."""
        found = (ctypes.c_ulonglong * 3)()
        return found if self.call("nvmlDeviceGetMemoryInfo", device, found) == 0 else None

    def processes(self, device):
        # Of each process: its id, its memory, and two numbers of 32 bits.
        size, found = ctypes.c_uint(256), (ctypes.c_ulonglong * 3 * 256)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        count = size.value if self.call(name, device, by(size), found) == 0 else 0
        return {found[i][0] & 0xFFFFFFFF for i in range(count and size.value)}


def gpus():
    nvml = Nvml()
    words = {"nvmlInit": nvml.answer, "count": len(nvml.devices),
             "driverVersion": nvml.text("nvmlSystemGetDriverVersion")}
    for i, device in enumerate(nvml.devices):
        pci = ctypes.create_string_buffer(512)
        nvml.call("nvmlDeviceGetPciInfo_v3", device, pci)
        words["uuid%d" % i] = nvml.text("nvmlDeviceGetUUID", device)
        words["name%d" % i] = nvml.text("nvmlDeviceGetName", device)
        words["pci%d" % i] = pci.raw[36:68].split(b"\0")[0].decode()
        if memory := nvml.memory(device):
            words.update({"total%d" % i: memory[0], "used%d" % i: memory[2]})
    show(words)


def watch():
    nvml, low, high, pids, rounds = Nvml(), {}, {}, set(), 0
    show({"watching": len(nvml.devices)})
    while not select.select([0], [], [], 0.01)[0] or not rounds:
        rounds += 1
        for i, device in enumerate(nvml.devices):
            pids |= nvml.processes(device)
            if memory := nvml.memory(device):
                low[i] = min(memory[2], low.get(i, memory[2]))
                high[i] = max(memory[2], high.get(i, 0))
    show({**{"low%d" % i: used for i, used in low.items()},
          **{"high%d" % i: used for i, used in high.items()},
          "rounds": rounds, "pids": ",".join(map(str, sorted(pids)))})


def make_context():
    """Returns the driver and its answers."""
    driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    words = {"cuInit": driver.cuInit(0)}
    if words["cuInit"] == 0:
        start = time.perf_counter_ns()
        driver.cuDeviceGet(by(device), 0)
        words["context"] = driver.cuDevicePrimaryCtxRetain(by(context), device)
        driver.cuCtxSetCurrent(context)
        words["contextNs"] = time.perf_counter_ns() - start
    return driver, words


def context():
    show(make_context()[1])
    sys.stdin.read()


def kernel():
    driver, words = make_context()
    module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    out = (ctypes.c_uint32 * 64)()
    for target in ("sm_75", "sm_50"):
        if words.get("context") == 0 and words.get("module") != 0:
            text = (PTX % target).encode()
            words["module"] = driver.cuModuleLoadData(by(module), text)
    # A fake driver has no kernels.
    if words.get("module") == 0 and hasattr(driver, "cuLaunchKernel"):
        driver.cuModuleGetFunction(by(function), module, b"fill")
        driver.cuMemAlloc_v2(by(memory), ctypes.c_size_t(ctypes.sizeof(out)))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        words["launch"] = driver.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, arguments,
                                                None)
        driver.cuCtxSynchronize()
        driver.cuMemcpyDtoH_v2(out, memory, ctypes.c_size_t(ctypes.sizeof(out)))
        right = list(out) == [3 * i + 1 for i in range(64)]
        words["kernel"] = "right" if right else "wrong"
    show(words)


def work(report, stay):
    """A worker writes its answers and stays until the other end of `stay` is closed."""
    words = make_context()[1]
    os.write(report, b"%d %d\n" % (words["cuInit"], words.get("context", -1)))
    os.read(stay, 1)


def workers(how, count):
    (heard, report), (stay, leave), (go, start) = os.pipe(), os.pipe(), os.pipe()
    pids = []
    for _ in range(count if how == "fork" else 0):
        pids.append(os.fork())
        if pids[-1] == 0:
            os.close(leave)
            os.close(start)
            os.read(go, 1)
            work(report, stay)
            os._exit(0)
    sys.stdin.readline()
    show({"trainer." + key: answer for key, answer in make_context()[1].items()})
    sys.stdin.readline()
    os.close(start)
    worker = [sys.executable, __file__, "worker", str(report), str(stay)]
    for _ in range(count if how == "spawn" else 0):
        pids.append(subprocess.Popen(worker, pass_fds=(report, stay)).pid)
    os.close(report)
    with os.fdopen(heard) as lines:
        answers = [lines.readline().split() for _ in range(count)]
    show({"started": len(list(filter(None, answers))),
          "contexts": sum(answer[1:] == ["0"] for answer in answers),
          "refused": sum(answer[:1] == ["100"] for answer in answers)})
    sys.stdin.readline()
    os.close(leave)
    for pid in pids:
        os.waitpid(pid, 0)


if sys.argv[1] == "workers":
    workers(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "worker":
    work(int(sys.argv[2]), int(sys.argv[3]))
else:
    {one.__name__: one for one in (where, gpus, watch, context, kernel)}[sys.argv[1]]()
