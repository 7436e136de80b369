# SPDX-License-Identifier: Apache-2.0
"""Checks `cudaguard run`, `verify`, the fences and rules with a device that is there.

The fences are tried with `env -i`, which removes the guard from the program: only the fence is left.
"""

import os
import sys

import box as machine

# Prints how many GPUs Vulkan has, and how many of them are NVIDIA's.
VULKAN = """
import ctypes
vk = ctypes.CDLL("libvulkan.so.1")
class Info(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint),
                ("application", ctypes.c_void_p), ("layers", ctypes.c_uint),
                ("layer", ctypes.c_void_p), ("extensions", ctypes.c_uint),
                ("extension", ctypes.c_void_p)]
instance, count = ctypes.c_void_p(), ctypes.c_uint()
made = vk.vkCreateInstance(ctypes.byref(Info(type=1)), None, ctypes.byref(instance))
if made == 0:
    vk.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
devices = (ctypes.c_void_p * count.value)()
if count.value:
    vk.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
makers = []
for device in devices:
    properties = (ctypes.c_uint * 1024)()
    vk.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
    makers.append(properties[2])
print("instance=%d vulkan=%d nvidia=%d" % (made, count.value, makers.count(0x10DE)))
"""


def without_guard(box, *words):
    """A command whose program runs without variables of cudaguard."""
    path = box.environment.get("LD_LIBRARY_PATH")
    return ["env", "-i", *(["LD_LIBRARY_PATH=" + path] if path else []), *words]


def run_and_verify(box, report):
    driver = box.program("gpu_driver")
    run = box.launch("run", "--", driver)
    report.check("launcher.run", "cudaguard run: cuInit answers 100, and a line says so",
                 "cuInit %s; %s" % (run.words.get("cuInit"), "; ".join(run.lines())),
                 run.words.get("cuInit") == "100" and len(run.lines()) == 1, run.short())
    run = box.launch("verify", "--", driver)
    report.check("launcher.verify", "verify fails and names the program that asked",
                 "exit code %s" % run.rc,
                 run.rc != 0 and "gpu_driver" in run.err + run.out, run.short())
    run = box.launch("verify", "--", "true")
    report.check("launcher.verify-pass", "verify passes a program that does not ask",
                 "exit code %s" % run.rc, run.rc == 0, run.short())


def fences(box, report):
    driver = box.program("gpu_driver")
    if box.fake:
        report.not_filled("fence", "the fences", "a fake driver opens no device")
        return
    control = box.run(without_guard(box, driver))
    for name, option in (("ioctls", "--fence=require"), ("devices", "--fence=devices")):
        run = box.launch("run", option, "--", *without_guard(box, driver))
        report.check("fence." + name, "run %s, a program without the guard: no CUDA" % option,
                     "exit code %s, cuInit %s (unfenced %s); %s" % (
                         run.rc, run.words.get("cuInit"), control.words.get("cuInit"),
                         "; ".join(run.err.strip().splitlines()[:3])),
                     control.words.get("cuInit") == "0" and run.words.get("cuInit") not in (None, "0"),
                     run.short())
    for node in ["/dev/nvidiactl", *box.nodes]:
        script = "if ( : < %s ) 2>/dev/null; then echo opened=1; else echo opened=0; fi" % node
        control = box.run(["sh", "-c", script])
        run = box.launch("run", "--fence=devices", "--", *without_guard(box, "sh", "-c", script))
        report.check("fence.open-" + os.path.basename(node), "run --fence=devices: an open of " + node,
                     "opened %s (unfenced %s)" % (run.words.get("opened"), control.words.get("opened")),
                     run.words.get("opened") == "0" and control.words.get("opened") == "1", run.short())


# Gives a program a private /dev, with the machine's NVIDIA nodes and one that no GPU has.
MADE_UP = "/dev/nvidia99"
PRIVATE = """
mount -t tmpfs -o mode=755 none "$0" && cp -a /dev/null /dev/zero /dev/nvidia* "$0" &&
mknod -m 666 "$0/nvidia99" c 1 3 && mount --move "$0" /dev && exec "$@"
"""


def listed(box, report):
    """run --fence=devices --gpus 0: the kernel leaves one GPU, also to programs without the guard."""
    what = "run --fence=devices --gpus 0: "
    if not os.path.isdir("/proc/driver/nvidia/gpus"):
        report.not_filled("fence.list", what + "one GPU", "there is no /proc/driver/nvidia/gpus")
        return
    option = ["run", "--log=error", "--fence=devices", "--gpus", "0", "--"]
    directory = box.scratch_file("dev")
    os.mkdir(directory)
    private = ["unshare", "--mount", "sh", "-c", PRIVATE, directory]
    nodes = [*box.nodes, MADE_UP]
    if not machine.works([*private, "true"]):
        private, nodes = [], box.nodes
    tries = without_guard(box, box.program("gpu_opens_static"), *nodes)
    control, run = box.run([*private, *tries]), box.run([*private, box.launcher, *option, *tries])
    unfenced, opened = ({line.split()[1] for line in one.out.splitlines() if line.endswith(" opened")}
                        for one in (control, run))
    if len(nodes) > 1 and unfenced == set(nodes):
        report.check("fence.list.open", what + "a static program opens one GPU's node",
                     "%s (unfenced %s)" % tuple(" ".join(sorted(paths)) for paths in (opened, unfenced)),
                     len(opened) == 1 and opened <= set(box.nodes), run.short())
    else:
        report.not_filled("fence.list.open", what + "opens of the GPUs' nodes",
                          "no second node that opens, and no private /dev", control.short())
    if box.fake:
        report.not_filled("fence.list", what + "CUDA and Vulkan", "a fake driver opens no device")
        return
    driver = box.program("gpu_driver")
    for name, words in (("kernel", [driver]), ("kernel-unguarded", without_guard(box, driver))):
        run = box.launch(*option, *words, "do=kernel")
        report.check("fence.list." + name, what + "a kernel runs, " + name,
                     "cuInit %s, result %s; %s" % (run.words.get("cuInit"), run.words.get("kernel"),
                                                   run.err.strip()[:200]),
                     run.words.get("kernel") == "right", run.short())
    run = box.launch(*option, *without_guard(box, driver))
    report.check("fence.list.unguarded", what + "a program without the guard finds this GPU alone",
                 ", ".join(run.listed() or []), run.listed() == box.uuids()[:1], run.short())
    program = [sys.executable, "-c", VULKAN]
    control, run = box.run(program), box.launch(*option, *without_guard(box, *program))
    if control.number("nvidia"):
        report.check("fence.list.vulkan", what + "Vulkan finds this GPU alone",
                     "%s (unfenced %s)" % (run.words.get("nvidia"), control.words.get("nvidia")),
                     run.words.get("nvidia") == "1", run.short())
    else:
        report.not_filled("fence.list.vulkan", what + "Vulkan", "unfenced, Vulkan shows none")


def vulkan(box, report):
    """Vulkan enters NVIDIA's driver beside CUDA. The guard alone does not stop it, a fence does."""
    what = "Vulkan's GPUs of NVIDIA, "
    program = [sys.executable, "-c", VULKAN]
    control = box.run(program)
    if box.fake or not control.number("nvidia"):
        report.not_filled("vulkan", what + "unfenced", "Vulkan shows none: " + (
            control.out.strip() or control.err.strip()[-200:]))
        return
    for name, option in (("ioctls", "--fence=require"), ("devices", "--fence=devices")):
        run = box.launch("run", option, "--", *program)
        report.check("vulkan." + name, what + option, "%s (unfenced %s); exit code %s" % (
            run.words.get("nvidia"), control.words.get("nvidia"), run.rc),
            run.words.get("nvidia") == "0", run.short())
    run = box.launch("run", "--", *program)
    report.info("vulkan.run", what + "run without a fence", run.words.get("nvidia"), run.short())


def rules(box, report):
    driver, nvml = box.program("gpu_driver"), box.program("gpu_nvml")
    both = ["sh", "-c", '"$1"; "$2" | sed -E "s/(^| )/\\1nvml./g"', "sh", driver, nvml]
    run = box.launch("run", "--rule", "VALIDATE program=gpu_driver", "--", *both)
    nvml_count = run.words.get("nvml.count", "0")
    report.check("rules.program", "run --rule 'VALIDATE program=gpu_driver': this program alone",
                 "its cuInit %s; NVML of another program: %s GPUs" % (run.words.get("cuInit"),
                                                                    nvml_count),
                 run.words.get("cuInit") == "0" and nvml_count == "0", run.short())
    for how in ("spawn", "fork"):
        held = box.hold([box.launcher, "run", "--children=gpu", "--", *machine.workers(4, how)])
        text = ""
        for step in "12":
            held.send(step)
            text += held.line(60) or ""
        held.send("3")
        text += held.end(60)
        words = machine.words_of(text)
        report.check("rules.children-" + how, "run --children=gpu: 4 workers, " + how,
                     "parent's cuInit %s; %s of %s workers with a context" % (
                         words.get("trainer.cuInit"), words.get("contexts"), words.get("started")),
                     words.get("trainer.cuInit") == "100" and words.get("contexts") == "4",
                     {"words": words, "err": held.err()[:2000]})


def rows(box, report):
    reason = box.why_no_launcher()
    if reason:
        report.not_filled("launcher", "run, verify, the fences and rules", reason)
        return
    doctor = box.launch("doctor")
    report.info("launcher.doctor", "what doctor prints of this machine",
                "exit code %s, %d lines" % (doctor.rc, len(doctor.out.splitlines())), doctor.short())
    run_and_verify(box, report)
    fences(box, report)
    listed(box, report)
    vulkan(box, report)
    rules(box, report)
