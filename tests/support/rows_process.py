# SPDX-License-Identifier: Apache-2.0
"""The rows of unusual times and callers, of OpenCL, of decoys, and of the documented limits."""

from support import harness
from support.matrix import CUDA, DRIVEN, NVML, Row

ENTRY_POINT = "{programs}/entry_point"
LIBRARY = "{programs}/timed_library.so"


def only_the_others(result, world):
    del world
    return ["lists NVIDIA's platform"] if "NVIDIA" in result.out else []


# The OpenCL loader finds NVIDIA's library in this file, by its soname.
ICD = "/etc/OpenCL/vendors/nvidia.icd"
OPENCL = ("libnvidia-opencl.so.1",)

ROWS = [
    Row("opencl.clinfo", "clinfo -l", ["clinfo", "-l"], lines=0, check=only_the_others,
        same_as_unguarded="none", needs=("/usr/bin/clinfo", ICD), driver_files=OPENCL,
        why="Debian's packages clinfo, pocl-opencl-icd, nvidia-opencl-icd"),
    Row("opencl.clinfo-all", "clinfo", ["clinfo", "--raw"], lines=0, check=only_the_others,
        needs=("/usr/bin/clinfo", ICD), driver_files=OPENCL,
        why="Debian's packages clinfo, pocl-opencl-icd, nvidia-opencl-icd"),
]

ROWS += [
    Row("opencl.path", "the OpenCL loader is given NVIDIA's library by its path", ["clinfo", "-l"],
        lines=0, check=only_the_others, needs=("/usr/bin/clinfo",),
        why="Debian's packages clinfo, ocl-icd-libopencl1",
        env={"OCL_ICD_VENDORS": "{driver}/libnvidia-opencl.so.1"}, rc=0, driver_files=OPENCL),
    Row("opencl.alternative", "the OpenCL loader is given a link named as Debian's", ["clinfo", "-l"],
        lines=0, check=only_the_others, needs=("/usr/bin/clinfo",), worlds=("fake",),
        why="Debian's packages clinfo, ocl-icd-libopencl1", unguarded=("fake",), env={
            "OCL_ICD_VENDORS":
                "{programs}/alternatives/nvidia--libnvidia-opencl.so.1-x86_64-linux-gnu"}),
    Row("opencl.deepbind", "an RTLD_DEEPBIND plug-in that is linked to the OpenCL loader",
        [ENTRY_POINT, "plugin={programs}/plugin_opencl.so", "flags=now,deepbind"], {"nvidia": "0"},
        prints=None, needs=("{programs}/plugin_opencl.so", ICD), driver_files=OPENCL,
        why="Debian's packages ocl-icd-libopencl1, nvidia-opencl-icd"),
    Row("opencl.plugin", "a plug-in that is linked to the OpenCL loader",
        [ENTRY_POINT, "plugin={programs}/plugin_opencl.so"], {"nvidia": "0"},
        needs=("{programs}/plugin_opencl.so", ICD), driver_files=OPENCL,
        why="Debian's packages ocl-icd-libopencl1, nvidia-opencl-icd"),
]

# Rows of unusual times and of other processes.
for when, about in (("thread", "from a thread"), ("signal", "from a signal handler"),
                    ("fork", "from a forked child"), ("atexit", "from an atexit function"),
                    ("vfork", "from a program started by vfork and exec"),
                    ("spawn", "from a program started by posix_spawn"),
                    ("system", "from a program started by system()"),
                    ("daemon", "from a daemon")):
    # A daemon has no stderr, so the guard prints nothing.
    ROWS.append(Row("when." + when, about, [ENTRY_POINT, "lib=libcuda.so.1", "when=" + when], CUDA,
                    prints=when != "daemon"))
    ROWS.append(Row("when.%s-absolute" % when, about + ", by path",
                    [ENTRY_POINT, "lib={driver}/libcuda.so.1", "when=" + when], CUDA,
                    prints=when != "daemon"))
for when in ("preinit", "library-constructor", "constructor", "destructor", "library-destructor"):
    for key, library in (("soname", "libcuda.so.1"), ("absolute", "{driver}/libcuda.so.1")):
        ROWS.append(Row("when.%s-%s" % (when, key), when.replace("-", "'s ").replace("preinit",
                                                                                   "pre-init"),
                        ["{programs}/timed"], CUDA, env={"CG_WHEN": when,
                                                         "CG_TIMED_LIB": library}))
ROWS += [
    # The recording fake needs the environment to log its calls; the real driver does not.
    Row("when.preinit-raw", "pre-init, before libc knows the environment", ["{programs}/timed"],
        CUDA, env={"CG_WHEN": "preinit-raw"}, unguarded=("real",)),
    Row("when.nvml-constructor", "NVML from a library's constructor", ["{programs}/timed"], NVML,
        env={"CG_WHEN": "library-constructor", "CG_TIMED_LIB": "libnvidia-ml.so.1"}),
    Row("when.preload-after", "the constructor of a library preloaded after the guard",
        ["true"], CUDA, env={"CG_WHEN": "library-constructor"}, own_preload=(LIBRARY,)),
    Row("when.preload-before", "the constructor of a library preloaded before the guard", ["true"],
        CUDA, env={"CG_WHEN": "library-constructor"}, own_preload=(LIBRARY,), guard_last=True),
    Row("when.ld-so", "started by ld.so", ["{loader}", ENTRY_POINT, "lib=libcuda.so.1"], CUDA),
    Row("when.shell", "from a program that a shell starts",
        ["sh", "-c", "{programs}/entry_point lib=libcuda.so.1"], CUDA),
    Row("when.command-substitution", "its output is taken by a shell",
        ["sh", "-c", "echo $({programs}/entry_point lib=libcuda.so.1)"], CUDA),
]

# Rows of names that only look like a driver's. A real entry point in the same table is the control.
for number, name in enumerate((
        "libcuda.so-like.so", "libcudart.so", "libcudart.so.12", "libcudnn.so.9",
        "libcuda.so.1.bak", "libcuda.so.1x", "libcuda.so.", "mylibcuda.so.1",
        "libcudadebugger.so.1", "libnvidia-ml.so.1.old", "libnvidia-ml-like.so.1",
        "libnvidia-opencl-like.so", "libcuda.so.2/libother.so")):
    for way, argument, env in (
            ("path", "{programs}/decoys/" + name, {}),
            ("name", name, {"LD_LIBRARY_PATH": "{programs}/decoys"})):
        if way == "name" and "/" in name:
            continue
        ROWS.append(Row("decoy.%s-%d" % (way, number + 1), "decoy " + name,
                        [ENTRY_POINT, "plugin=" + argument], {"cudnnCreate": "4711", "cuFunny": "4712"},
                        unguarded=(), same_as_unguarded="none", worlds=("none", "fake"), env=env,
                        prints=False))
ROWS.append(Row("decoy.own-names", "the program's own cuFunny, cudaFunny, nvmlFunny",
                ["{programs}/own_names"], {"cuFunny": "4712", "byName": "4712", "variable": "4713"},
                unguarded=(), same_as_unguarded="none", prints=False))

# Rows of entry points that the design does not block. If one of these changes, tests/lab/limits.md
# must change, too.
ROWS += [
    # In a static program, NVIDIA's driver 550 answers 304 before it opens a device.
    Row("limit.static", "a static program that dlopens the driver",
        ["{programs}/static_entry_point", "{driver}/libcuda.so.1"],
        worlds=DRIVEN if harness.have_reference_driver() else ("fake",),
        unguarded=DRIVEN if harness.have_reference_driver() else ("fake",), limit=True),
    Row("limit.env-i", "an environment wiped by env -i",
        ["sh", "-c", "exec env -i CG_FAKE_LOG=$CG_FAKE_LOG " + ENTRY_POINT + " lib={driver}/libcuda.so.1"],
        worlds=DRIVEN, limit=True),
    Row("limit.libc-absolute", "an absolute path given to libc's own dlopen",
        [ENTRY_POINT, "lib={driver}/libcuda.so.1", "via=libc.so.6"], worlds=DRIVEN, limit=True),
    Row("limit.libc-relative", "a relative path given to libc's own dlopen",
        [ENTRY_POINT, "lib=./libcuda.so.1", "via=libc.so.6"], worlds=DRIVEN, limit=True, cwd="{copy}",
        mounts=("{copy}",)),
    # ld.so does not search the directory of Debian's versioned file, but it searches the fake's
    # directory.
    Row("limit.libc-versioned",
        "the driver's full version, as a name without a path, given to libc's own dlopen",
        [ENTRY_POINT, "lib=libcuda.so.599.01",
         "via=libc.so.6"], worlds=("fake",), unguarded=("fake",), limit=True),
    Row("limit.libm-devname", "the dev name given to a dlopen taken from the handle of any library",
        [ENTRY_POINT, "lib=libcuda.so", "via=libm.so.6"], worlds=DRIVEN, limit=True),
    Row("limit.deepbind-needed-path", "an RTLD_DEEPBIND plug-in whose DT_NEEDED is an absolute path",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_cuda_path.so", "flags=now,deepbind"],
        mounts=("{copy}",), worlds=DRIVEN, limit=True),
    Row("limit.preload-overwritten", "a child whose LD_PRELOAD is another one",
        ["sh", "-c", "LD_PRELOAD=libm.so.6 exec " + ENTRY_POINT + " lib=libcuda.so.1"], worlds=DRIVEN,
        limit=True),
    Row("limit.deepbind-absolute", "an absolute path from inside an RTLD_DEEPBIND plug-in",
        [ENTRY_POINT, "plugin={programs}/plugin_open.so", "flags=now,deepbind"], worlds=DRIVEN, limit=True,
        env={"CG_NAMES": "{driver}/libcuda.so.1"}),
    Row("limit.dlmopen-plugin", "a plug-in linked to libcuda in a new namespace",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_cuda.so", "space=new"], worlds=DRIVEN, limit=True),
    Row("limit.renamed", "the driver's file under a name of its own",
        [ENTRY_POINT,
         "lib={programs}/renamed/vendor.so"], worlds=("fake",), unguarded=("fake",), limit=True),
    Row("limit.preload-after",
        "libc's dlopen, by a library preloaded after the guard, before any other",
        ["true"], worlds=DRIVEN, limit=True, env={"CG_WHEN": "own-next"}, own_preload=(LIBRARY,)),
    Row("limit.setuid", "a privileged program (AT_SECURE)",
        ["{source}/tests/entry_points/privileged", ENTRY_POINT, "lib={driver}/libcuda.so.1"],
        unguarded=("fake",), worlds=("fake",), limit=True, sandboxed=False, root=True),
]
