# SPDX-License-Identifier: Apache-2.0
"""The rows of NVML, with the same ways to open it as the driver's rows, and of nvidia-smi."""

from support.matrix import DRIVEN, NVML, Row

ENTRY_POINT = "{programs}/entry_point"
NULL_DRIVERS = ("{null_driver}/libcuda.so.1", "{null_driver}/libnvidia-ml.so.1")
# nvidia-smi prints this on a machine whose driver is not loaded, and exits with 9.
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
COUNTS = {key: NVML[key] for key in ("nvmlInit", "nvmlInitOld", "nvmlInitWithFlags", "countRc",
                                     "count", "countOld", "shutdown")}


def no_driver(result, world):
    del world
    if result.out.startswith(NO_DRIVER):
        return []
    return ["does not say: " + NO_DRIVER]


def row(key, about, arguments, expect=None, **more):
    return Row("nvml." + key, about, arguments, expect or NVML, **more)


def opened(key, about, *arguments, **more):
    return row(key, about, [ENTRY_POINT, "api=nvml"] + list(arguments), **more)


ROWS = [
    # Debian's package has no libnvidia-ml.so on the system's path, so only the fake has the dev
    # name.
    opened("soname", "dlopen of libnvidia-ml.so.1", "lib=libnvidia-ml.so.1"),
    opened("devname", "dlopen of libnvidia-ml.so", "lib=libnvidia-ml.so", unguarded=("fake",)),
    opened("absolute", "an absolute path", "lib={driver}/libnvidia-ml.so.1"),
    opened("dotdot", "/usr/lib/../lib/ in the path",
           "lib={driver}/../{parent}/libnvidia-ml.so.1"),
    opened("versioned", "the file with its full version", "lib={nvml_versioned}"),
    opened("relative", "./libnvidia-ml.so.1", "lib=./libnvidia-ml.so.1", cwd="{copy}",
           mounts=("{copy}",)),
    opened("compat", "a copy on LD_LIBRARY_PATH", "lib=libnvidia-ml.so.1",
           env={"LD_LIBRARY_PATH": "{copy}"}, mounts=("{copy}",)),
    row("rpath", "a copy found by DT_RPATH",
        ["{programs}/entry_point_rpath", "api=nvml", "lib=libnvidia-ml.so.1"], mounts=("{copy}",)),
    row("runpath-dev", "a copy found by DT_RUNPATH, dev name",
        ["{programs}/entry_point_runpath", "api=nvml", "lib=libnvidia-ml.so"], mounts=("{copy}",)),
    opened("alternative", "Debian's link to it",
           "lib=/etc/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu", worlds=("real",),
           unguarded=("real",), why="Debian's package libnvidia-ml1",
           needs=("/etc/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu",)),
    opened("alternative-fake", "a link named as Debian's",
           "lib={programs}/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu",
           worlds=("fake",), unguarded=("fake",)),
    opened("global", "RTLD_LAZY and RTLD_GLOBAL, as go-nvml", "lib=libnvidia-ml.so.1",
           "flags=lazy,global"),
    opened("deepbind", "RTLD_DEEPBIND", "lib=libnvidia-ml.so.1", "flags=now,deepbind"),
    row("deepbind-plugin", "an RTLD_DEEPBIND plug-in that dlopens the soname",
        [ENTRY_POINT, "plugin={programs}/plugin_open.so", "flags=now,deepbind"],
        env={"CG_NAMES": "libnvidia-ml.so.1"}),
    row("deepbind-plugin-dev", "the same with the dev name",
        [ENTRY_POINT, "plugin={programs}/plugin_open.so", "flags=now,deepbind"],
        env={"CG_NAMES": "libnvidia-ml.so"}, unguarded=("fake",)),
    opened("libc-soname", "dlopen taken from libc", "lib=libnvidia-ml.so.1", "via=libc.so.6"),
    opened("libc-devname", "dlopen taken from libc, dev name", "lib=libnvidia-ml.so", "via=libc.so.6",
           unguarded=("fake",)),
    opened("next", "dlopen taken by RTLD_NEXT, absolute", "lib={driver}/libnvidia-ml.so.1",
           "via=next"),
    opened("dlmopen-soname", "dlmopen", "lib=libnvidia-ml.so.1", "space=new"),
    opened("dlmopen-devname", "dlmopen, dev name", "lib=libnvidia-ml.so", "space=new",
           unguarded=("fake",)),
    opened("dlmopen-absolute", "dlmopen, absolute path", "lib={driver}/libnvidia-ml.so.1",
           "space=new"),
    row("linked-plugin", "a plug-in linked to NVML",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_nvml.so", "flags=lazy"]),
    row("linked-plugin-deepbind", "the same with RTLD_DEEPBIND",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_nvml.so", "flags=now,deepbind"]),
]
for get, about in (("default", "RTLD_DEFAULT"), ("next", "RTLD_NEXT"), ("self", "dlopen(NULL)")):
    ROWS.append(opened("by-" + get, about + " after dlopen with RTLD_GLOBAL",
                       "lib=libnvidia-ml.so.1", "flags=now,global", "get=" + get))
for name, binding in (("linked_nvml", "lazy"), ("linked_nvml_now", "now")):
    for way in ("plt", "dlopen", "devname", "default", "next", "self"):
        program = ["{programs}/" + name, way]
        # Without a libnvidia-ml.so on the system's path, the unguarded program cannot open the dev
        # name.
        unguarded = ("fake",) if way == "devname" else DRIVEN
        ROWS.append(row("%s-%s-null_driver" % (binding, way), "linked; guard and null drivers preloaded",
                        program, COUNTS if way == "plt" else NVML, preload=NULL_DRIVERS,
                        unguarded=unguarded))
        ROWS.append(row("%s-%s-guard" % (binding, way), "linked; the guard alone", program,
                        NVML if way in ("dlopen", "devname") else COUNTS, worlds=DRIVEN,
                        linked=True, unguarded=unguarded))
ROWS.append(row("null_driver-alone", "linked; no guard, the null driver on LD_LIBRARY_PATH",
                ["{programs}/linked_nvml", "plt"], COUNTS, worlds=("none",), guard=False,
                guarded_env={"LD_LIBRARY_PATH": "{null_driver}"}, prints=False))
for key, arguments in (("smi", []), ("smi-query", ["--query-gpu=name", "--format=csv"]),
                       ("smi-list", ["-L"])):
    ROWS.append(Row("nvml." + key, " ".join(["nvidia-smi"] + arguments), ["nvidia-smi"] + arguments,
                    check=no_driver, lines=0, rc=9, needs=("/usr/bin/nvidia-smi",),
                    why="Debian's package nvidia-smi"))
