# SPDX-License-Identifier: Apache-2.0
"""A private /dev with fake GPU nodes of each maker. Each leads to /dev/null's driver."""

import os
import re

from support import harness, machine

# At least one for each row of policy/device_nodes.h.
GPU = ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps/nvidia-cap1",
       "nvidia-caps-imex-channels/channel0", "dri/card0", "dri/renderD128", "kfd", "dxg",
       "nvhost-gpu", "nvhost-ctrl-gpu", "nvmap", "nvgpu/igpu0/as", "accel/accel0", "accel0",
       "mali0", "ump", "kgsl-3d0", "pvrsrvkm", "pvr_sync", "galcore", "mtgpu.0", "mkfd", "mxcd",
       "hl0", "hl_controlD0", "vfio/vfio", "vfio/12"]
PATHS = ["/dev/" + name for name in GPU]
# Nodes whose names only look alike.
OTHERS = ["/dev/null", "/dev/zero", "/dev/drill", "/dev/kfd2", "/dev/galcore2", "/dev/xnvidia0", "/dev/video0"]

ORDINARY = """
set -e
mount -t tmpfs -o mode=755 none /dev
cd /dev
mkdir pts shm
mount -t devpts -o newinstance,ptmxmode=0666 none pts
mount -t tmpfs none shm
chmod 1777 shm
ln -s pts/ptmx ptmx
ln -s /proc/self/fd fd
mknod -m 666 null c 1 3
mknod -m 666 zero c 1 5
mknod -m 666 full c 1 7
mknod -m 666 random c 1 8
mknod -m 666 urandom c 1 9
mknod -m 666 tty c 5 0
"""
FAKE = "".join("mkdir -p $(dirname %s)\nmknod -m 666 %s c 1 3\n" % (path, path)
               for path in [*PATHS, *OTHERS] if path not in OTHERS[:2])


def in_private_dev(*words, more="", fakes=FAKE):
    """The command line that runs these words where /dev is private and has the fakes. `more`: more
    shell commands before it."""
    machine.need("mounts", "device_nodes")
    script = ORDINARY + fakes + more + "cd / && exec \"$@\"\n"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]


def rows():
    """The names of policy/device_nodes.h."""
    with open(os.path.join(harness.SOURCE, "policy", "device_nodes.h"), encoding="utf-8") as stream:
        return re.findall(r'^    \{"([^"]+)", "', stream.read(), re.MULTILINE)


# A made-up machine: the minor of each GPU in PCI order. Its nodes are those of /dev/null, /dev/zero
# and so on, which open, and have the right minor; a GPU's own would not open. Minors 1 and 2 do not.
MINORS = [8, 5, 9, 3, 11, 7, 1, 2]
SHARED = {"nvidiactl": 3, "nvidia-uvm": 5, "nvidia-uvm-tools": 7, "nvidia-modeset": 8}
UNKNOWN = "GPU-????????-????-????-????-????????????"


def gpu_nodes(minors=None):
    """The shell commands that make a node for each GPU, and those that all GPUs share."""
    made = {"nvidia%d" % minor: minor for minor in (MINORS if minors is None else minors)}
    return "".join("mknod -m 666 /dev/%s c %d %d\n" % (name, 195 if minor < 3 else 1, minor)
                   for name, minor in {**made, **SHARED}.items())


def driver_files(gpus, parts=()):
    """The shell commands that make /proc/driver/nvidia with these GPUs. `gpus`: (PCI address, UUID,
    minor); `parts`: (the path of a MIG capability, its minor)."""
    text = "mount -t tmpfs none /proc/driver\nmkdir -p /proc/driver/nvidia/gpus\n"
    for address, uuid, minor in gpus:
        text += ("mkdir /proc/driver/nvidia/gpus/%s\n"
                 "printf 'Model: \\t\\t Fake\\nIRQ:   \\t\\t 11\\nGPU UUID: \\t %s\\n"
                 "Bus Location: \\t %s\\nDevice Minor: \\t %d\\nGPU Excluded:\\t No\\n' "
                 ">/proc/driver/nvidia/gpus/%s/information\n" % (address, uuid, address, minor, address))
    for path, minor in parts:
        text += ("mkdir -p /proc/driver/nvidia/capabilities/%s\n"
                 "printf 'DeviceFileMinor: %d\\nDeviceFileMode: 292\\nDeviceFileModify: 1\\n' "
                 ">/proc/driver/nvidia/capabilities/%s/access\n" % (path, minor, path))
    return text
