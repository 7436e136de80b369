# SPDX-License-Identifier: Apache-2.0
"""The rows of the driver API: linked programs, and the library opened by each name and from each
caller."""

from support.harness import GUARD
from support.matrix import CUDA, DRIVEN, Row

ENTRY_POINT = "{programs}/entry_point"
COPY = ("{copy}",)
NULL_DRIVER = ("{null_driver}/libcuda.so.1",)
# If ld.so has mapped the driver, only these entries are the guard's, and the driver stays
# uninitialised.
LINKED = {"cuInit": "100", "cuInit1": "1"}
PROC = dict(CUDA, unknownRc="0", unknownPtr="null", unknownStatus="1", emptyRc="0", emptyPtr="null",
            emptyStatus="1", nostatusRc="0", nostatusPtr="null", lowRc="0", lowPtr="null",
            lowStatus="2", knownRc="0", knownPtr="set", knownStatus="0")
PLT = {key: CUDA[key] for key in ("cuInit", "cuInit1", "versionRc", "version", "countRc", "count")}

ROWS = []

# These programs are linked to libcuda. With the null driver preloaded, ld.so does not even map
# NVIDIA's.
for name, binding in (("linked_cuda", "lazy"), ("linked_cuda_now", "now")):
    program = "{programs}/" + name
    for way, about in (("plt", "a direct call"), ("proc", "cuGetProcAddress_v2"),
                       ("proc1", "cuGetProcAddress"), ("dlopen", "dlopen of the soname"),
                       ("devname", "dlopen of the dev name"), ("default", "RTLD_DEFAULT"),
                       ("next", "RTLD_NEXT"), ("self", "dlopen(NULL)")):
        ROWS.append(Row("linked.%s-%s-null_driver" % (binding, way),
                        "linked, %s binding, %s; guard and null driver preloaded" % (binding, about),
                        [program, way], PLT if way == "plt" else CUDA, preload=NULL_DRIVER))
        # ld.so has mapped the real driver. A look-up in the whole program finds the guard only for
        # the names that it exports. The guard always answers for an opened library or
        # cuGetProcAddress.
        ROWS.append(Row("linked.%s-%s-guard" % (binding, way),
                        "linked, %s binding, %s; the guard alone" % (binding, about),
                        [program, way],
                        LINKED if way in ("plt", "default", "next", "self") else CUDA,
                        worlds=DRIVEN, linked=True))
ROWS.append(Row("linked.null_driver-first", "linked; the null driver before the guard in LD_PRELOAD",
                ["{programs}/linked_cuda", "plt"], PLT, guard=False, preload=NULL_DRIVER + (GUARD,)))
ROWS.append(Row("linked.null_driver-alone", "linked; no guard, the null driver on LD_LIBRARY_PATH, no driver",
                ["{programs}/linked_cuda", "plt"], PLT, worlds=("none",), guard=False,
                guarded_env={"LD_LIBRARY_PATH": "{null_driver}"}, prints=False))
ROWS.append(Row("linked.no-driver", "linked; the guard alone, no driver: ld.so's own message",
                ["{programs}/linked_cuda", "plt"], worlds=("none",), lines=0, rc=127, prints=False,
                err="error while loading shared libraries: libcuda.so.1: cannot open shared"))
ROWS.append(Row("linked.bind-now", "linked; LD_BIND_NOW, the guard alone",
                ["{programs}/linked_cuda", "plt"], LINKED, worlds=DRIVEN, linked=True,
                env={"LD_BIND_NOW": "1"}))

# These programs are linked to the driver through a library of their own. RTLD_NEXT, or the scope of
# that library, finds the mapped driver, whose first calls lead to the guard.
MIDDLE = "{programs}/linked_middle"
for key, about, arguments, expect in (
        ("handle", "dlsym on that library's handle", ["handle", "{programs}/middle.so"],
         {"cuInit": "100"}),
        # The null driver precedes that library, so RTLD_NEXT may find no definition.
        ("next", "dlsym(RTLD_NEXT) from that library", ["next"], {"cuInit": ("100", "null")}),
        ("deepbind", "an RTLD_DEEPBIND plug-in that dlopens the soname",
         ["deepbind", "{programs}/plugin_open.so"], CUDA)):
    about = "linked through a library, " + about
    env = {"CG_NAMES": "libcuda.so.1"}
    ROWS.append(Row("linked.middle-%s-null_driver" % key, about + "; guard and null driver preloaded",
                    [MIDDLE] + arguments, expect, preload=NULL_DRIVER, env=env,
                    prints=None if key == "next" else True))
    # Only the calls that come first lead to the guard. The rest answers as before cuInit.
    expect = {name: answer for name, answer in expect.items() if name.startswith("cuInit")}
    ROWS.append(Row("linked.middle-%s-guard" % key, about + "; the guard alone", [MIDDLE] + arguments,
                    expect, worlds=DRIVEN, linked=True, env=env))

# Rows that dlopen the driver by every name.
for key, about, library in (
        ("soname", "dlopen of libcuda.so.1", "libcuda.so.1"),
        ("devname", "dlopen of libcuda.so", "libcuda.so"),
        ("absolute", "an absolute path", "{driver}/libcuda.so.1"),
        ("absolute-dev", "an absolute path of the dev name", "{driver}/libcuda.so"),
        ("dotdot", "/usr/lib/../lib/ in the path", "{driver}/../{parent}/libcuda.so.1"),
        ("slashes", "doubled slashes", "/{driver}//libcuda.so.1"),
        ("versioned", "the file with its full version", "{versioned}")):
    for flags in ("now", "lazy,global"):
        ROWS.append(Row("dlopen.%s-%s" % (key, flags.split(",")[0]), about,
                        [ENTRY_POINT, "lib=" + library, "flags=" + flags], CUDA))
ROWS += [
    Row("dlopen.relative", "./libcuda.so.1 in the current directory", [ENTRY_POINT, "lib=./libcuda.so.1"], CUDA,
        cwd="{copy}", mounts=COPY),
    Row("dlopen.compat", "a compat directory by its path", [ENTRY_POINT, "lib={copy}/libcuda.so.1"], CUDA,
        mounts=COPY),
    Row("dlopen.compat-path", "a compat directory on LD_LIBRARY_PATH", [ENTRY_POINT, "lib=libcuda.so.1"], CUDA,
        mounts=COPY, env={"LD_LIBRARY_PATH": "{copy}"}),
    Row("dlopen.rpath", "a copy found by DT_RPATH",
        ["{programs}/entry_point_rpath", "lib=libcuda.so.1"], CUDA,
        mounts=COPY),
    Row("dlopen.rpath-dev", "a copy found by DT_RPATH, dev name",
        ["{programs}/entry_point_rpath", "lib=libcuda.so"], CUDA, mounts=COPY),
    Row("dlopen.runpath", "a copy found by DT_RUNPATH",
        ["{programs}/entry_point_runpath", "lib=libcuda.so.1"],
        CUDA, mounts=COPY),
    Row("dlopen.runpath-dev", "a copy found by DT_RUNPATH, dev name",
        ["{programs}/entry_point_runpath", "lib=libcuda.so"], CUDA, mounts=COPY),
    Row("dlopen.all-names", "every name, one after the other",
        [ENTRY_POINT, "lib=libcuda.so,libcuda.so.1,{driver}/libcuda.so.1,{versioned}"], CUDA, lines=4),
]

ROWS += [
    Row("dlopen.closed", "opened and closed more often than opened, then once more",
        [ENTRY_POINT, "lib=libcuda.so.1,libcuda.so,{driver}/libcuda.so.1", "close=1"], CUDA, lines=3),
    Row("dlopen.closed-libc", "opened and closed, then by libc's own dlopen",
        [ENTRY_POINT, "lib=libcuda.so.1,libcuda.so", "via=libc.so.6", "close=1"], CUDA, lines=2),
    Row("dlopen.threads", "eight threads open it by different names at once",
        [ENTRY_POINT, "lib=libcuda.so.1,libcuda.so,{driver}/libcuda.so.1,{versioned}", "when=threads"],
        CUDA, lines=32),
]

# Debian's package installs these links to the driver's file.
ALTERNATIVE = "/etc/alternatives/nvidia--libcuda.so.1-x86_64-linux-gnu"
for space in ("base", "new"):
    ROWS += [
        Row("dlopen.alternative-" + space, "Debian's link to the driver",
            [ENTRY_POINT, "lib=" + ALTERNATIVE,
             "space=" + space], CUDA, worlds=("real",), unguarded=("real",),
            needs=(ALTERNATIVE,), why="Debian's package libcuda1"),
        Row("dlopen.alternative-fake-" + space, "a link named as Debian's",
            [ENTRY_POINT, "lib={programs}/alternatives/nvidia--libcuda.so.1-x86_64-linux-gnu",
             "space=" + space], CUDA, worlds=("fake",), unguarded=("fake",)),
    ]
for key, name in (("dev", "libcuda.so-x86_64-linux-gnu"), ("plain", "libcuda.so.1"),
                  ("aarch64", "libcuda.so.1-aarch64-linux-gnu")):
    ROWS.append(Row("dlopen.alternative-" + key, "such a link, nvidia--" + name,
                    [ENTRY_POINT, "lib={programs}/alternatives/nvidia--" + name], CUDA, worlds=("fake",),
                    unguarded=("fake",)))

# Rows of RTLD_DEEPBIND in C. Other languages have their own rows.
for name in ("libcuda.so.1", "libcuda.so", "{driver}/libcuda.so.1"):
    key = {"libcuda.so.1": "soname", "libcuda.so": "devname"}.get(name, "absolute")
    ROWS.append(Row("deepbind.deepbind-" + key, "dlopen with RTLD_DEEPBIND",
                    [ENTRY_POINT, "lib=" + name, "flags=now,deepbind"], CUDA))
ROWS += [
    Row("deepbind.plugin", "an RTLD_DEEPBIND plug-in that dlopens both names",
        [ENTRY_POINT, "plugin={programs}/plugin_open.so", "flags=now,deepbind"], CUDA, lines=2),
    Row("deepbind.plugin-dev-first", "the same, dev name first",
        [ENTRY_POINT, "plugin={programs}/plugin_open.so", "flags=now,deepbind"], CUDA, lines=2,
        env={"CG_NAMES": "libcuda.so:libcuda.so.1"}),
    Row("deepbind.plain-plugin", "a plain plug-in that dlopens three names",
        [ENTRY_POINT, "plugin={programs}/plugin_open.so", "flags=now"], CUDA, lines=3,
        env={"CG_NAMES": "libcuda.so:libcuda.so.1:{driver}/libcuda.so.1"}),
]

# Rows that call dlopen by a pointer.
for via, about in (("libc.so.6", "from libc's handle"), ("libdl.so.2", "from libdl's handle"),
                   ("next", "by RTLD_NEXT"), ("default", "by RTLD_DEFAULT")):
    for name in ("libcuda.so.1", "libcuda.so"):
        key = "%s-%s" % (via.split(".")[0], "soname" if name[-1] == "1" else "devname")
        ROWS.append(Row("pointer." + key, "dlopen taken %s" % about,
                        [ENTRY_POINT, "lib=" + name, "via=" + via], CUDA))
ROWS.append(Row("pointer.libm-soname", "dlopen taken from the handle of any library",
                [ENTRY_POINT, "lib=libcuda.so.1", "via=libm.so.6"], CUDA))
for via in ("next", "default"):
    ROWS.append(Row("pointer.%s-absolute" % via, "dlopen taken by RTLD_%s, absolute path" % via.upper(),
                    [ENTRY_POINT, "lib={driver}/libcuda.so.1", "via=" + via], CUDA))

# Rows of a new namespace.
for key, name in (("soname", "libcuda.so.1"), ("devname", "libcuda.so"),
                  ("absolute", "{driver}/libcuda.so.1")):
    ROWS.append(Row("dlmopen." + key, "dlmopen into a new namespace",
                    [ENTRY_POINT, "lib=" + name, "space=new"], CUDA))
# The kernel's auxiliary vector, in which the null driver looks for the guard, then describes ld.so.
ROWS.append(Row("dlmopen.ld-so", "dlmopen in a program that ld.so starts",
                ["{loader}", ENTRY_POINT, "lib=libcuda.so.1", "space=new"], CUDA))

# Rows of plug-ins linked to the driver.
for name in ("plugin_linked_cuda", "plugin_linked_cuda_now"):
    for flags in ("now", "lazy,global", "now,deepbind"):
        ROWS.append(Row("plugin.%s-%s" % (name[7:].replace("_", "-"), flags.split(",")[-1]),
                        "a plug-in linked to libcuda",
                        [ENTRY_POINT, "plugin={programs}/%s.so" % name, "flags=" + flags], CUDA))

ROWS += [
    Row("plugin.rpath", "a plug-in linked to libcuda with a copy found by its DT_RPATH",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_cuda_rpath.so"], CUDA, mounts=COPY),
    Row("plugin.rpath-deepbind", "the same with RTLD_DEEPBIND",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_cuda_rpath.so", "flags=now,deepbind"], CUDA,
        mounts=COPY),
    # ld.so maps the real driver for such a plug-in, but finds the guard's cuInit first.
    Row("limit.plugin-needed-path", "a plug-in whose DT_NEEDED is an absolute path",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_cuda_path.so"],
        mounts=("{copy}",), worlds=DRIVEN, limit=True),
    Row("limit.plugin-needed-devname", "a plug-in whose DT_NEEDED is the dev name",
        [ENTRY_POINT, "plugin={programs}/plugin_linked_cuda_dev.so"],
        unguarded=("fake",), worlds=("fake",), limit=True),
]

# Rows of cuGetProcAddress.
ROWS += [
    Row("procaddress.proc", "cuGetProcAddress_v2 and its odd questions",
        [ENTRY_POINT, "lib=libcuda.so.1", "get=proc"], PROC),
    Row("procaddress.chain", "cuGetProcAddress_v2 through itself",
        [ENTRY_POINT, "lib=libcuda.so.1", "get=chain"], dict(PROC, chainStatus="0")),
    Row("procaddress.proc1", "cuGetProcAddress with four arguments",
        [ENTRY_POINT, "lib=libcuda.so.1", "get=proc1"], CUDA),
]

# Rows that look names up in the whole process.
for get, about in (("default", "RTLD_DEFAULT"), ("next", "RTLD_NEXT"), ("self", "dlopen(NULL)")):
    for name in ("libcuda.so.1", "libcuda.so", "{driver}/libcuda.so.1"):
        key = {"libcuda.so.1": "soname", "libcuda.so": "devname"}.get(name, "absolute")
        ROWS.append(Row("scope.%s-%s" % (get, key), about + " after dlopen with RTLD_GLOBAL",
                        [ENTRY_POINT, "lib=" + name, "flags=now,global", "get=" + get], CUDA))
