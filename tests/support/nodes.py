# SPDX-License-Identifier: Apache-2.0
"""A private /dev with fake GPU nodes of each maker. Each leads to /dev/null's driver."""

import functools
import os
import re
import tarfile
import tempfile

from support import harness, machine

# At least one for each row of policy/device_nodes.h.
GPU = ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps/nvidia-cap1",
       "nvidia-caps-imex-channels/channel0", "dri/card0", "dri/renderD128", "kfd", "dxg",
       "nvhost-gpu", "nvhost-ctrl-gpu", "nvmap", "nvgpu/igpu0/as", "accel/accel0", "accel0",
       "mali0", "ump", "kgsl-3d0", "pvrsrvkm", "pvr_sync", "galcore", "mtgpu.0", "mkfd", "mxcd",
       "iluvatar0", "biren/card_0", "biren-m", "hl0", "hl_controlD0", "vfio/vfio", "vfio/12"]
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
"""
NODES = (("/dev/null", 1, 3), ("/dev/zero", 1, 5), ("/dev/full", 1, 7), ("/dev/random", 1, 8),
         ("/dev/urandom", 1, 9), ("/dev/tty", 5, 0))


@functools.lru_cache(None)
def made(nodes):
    """The shell command that makes these nodes: (path, major, minor). tar makes all in one process,
    mknod one."""
    archive, path = tempfile.mkstemp(".tar", dir=harness.public_directory())
    with os.fdopen(archive, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name, major, minor in nodes:
            node = tarfile.TarInfo(name.lstrip("/"))
            node.type, node.mode = tarfile.CHRTYPE, 0o666
            node.devmajor, node.devminor = major, minor
            tar.addfile(node)
    return "tar -xpm -C / -f %s\n" % path


def nulls(*paths):
    """The shell command that makes each of these a node of /dev/null's driver."""
    return made(tuple((path, 1, 3) for path in paths))


def all_fakes():
    return nulls(*PATHS, *OTHERS[2:])


def in_private_dev(*words, more="", fakes=None):
    """The command line that runs these words where /dev is private and has the fakes. `more`: more
    shell commands before it."""
    machine.need("mounts", "device_nodes")
    script = ORDINARY + made(NODES) + (all_fakes() if fakes is None else fakes) + more
    script += "cd / && exec \"$@\"\n"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]


def rows():
    """The names of policy/device_nodes.h."""
    return re.findall(r'^    \{"([^"]+)", "', harness.read("policy", "device_nodes.h"),
                      re.MULTILINE)


# A made-up machine: the minor of each GPU in PCI order. Its nodes are those of /dev/null, /dev/zero
# and so on, which open, and have the right minor; a GPU's own would not open. Minors 1 and 2 do not.
MINORS = [8, 5, 9, 3, 11, 7, 1, 2]
SHARED = {"nvidiactl": 3, "nvidia-uvm": 5, "nvidia-uvm-tools": 7, "nvidia-modeset": 8}
UNKNOWN = "GPU-????????-????-????-????-????????????"


def gpu_nodes(minors=None):
    """The shell command that makes a node for each GPU, and those that all GPUs share."""
    own = {"nvidia%d" % minor: minor for minor in (MINORS if minors is None else minors)}
    return made(tuple(("/dev/" + name, 195 if minor < 3 else 1, minor)
                      for name, minor in {**own, **SHARED}.items()))


def driver_files(gpus, parts=()):
    """The shell commands that make /proc/driver/nvidia with these GPUs. `gpus`: (PCI address, UUID,
    minor); `parts`: (the path of a MIG capability, its minor)."""
    text = "mount -t tmpfs none /proc/driver\nmkdir -p /proc/driver/nvidia/gpus %s\n" % " ".join(
        "/proc/driver/nvidia/gpus/" + address for address, _, _ in gpus)
    for address, uuid, minor in gpus:
        text += ("printf 'Model: \\t\\t Fake\\nIRQ:   \\t\\t 11\\nGPU UUID: \\t %s\\n"
                 "Bus Location: \\t %s\\nDevice Minor: \\t %d\\nGPU Excluded:\\t No\\n' "
                 ">/proc/driver/nvidia/gpus/%s/information\n" % (uuid, address, minor, address))
    for path, minor in parts:
        text += ("mkdir -p /proc/driver/nvidia/capabilities/%s\n"
                 "printf 'DeviceFileMinor: %d\\nDeviceFileMode: 292\\nDeviceFileModify: 1\\n' "
                 ">/proc/driver/nvidia/capabilities/%s/access\n" % (path, minor, path))
    return text
