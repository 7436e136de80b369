# SPDX-License-Identifier: Apache-2.0
"""The rows of dlopen looked up by glibc's versions (dlvsym) or imported without a version."""

from support.matrix import CUDA, DRIVEN, Row

ENTRY_POINT = "{programs}/entry_point"
HOOK = ("{programs}/dlopen_hook.so",)
ABSOLUTE = "lib={driver}/libcuda.so.1"

ROWS = []
for version in ("old", "new"):
    for via in ("next", "default"):
        key = "%s-%s" % (via, version)
        about = "dlvsym(RTLD_%s), glibc's %s version, " % (via.upper(), version)
        given = ["via=" + via, "version=" + version]
        hook = {"CG_HOOK": via, "CG_HOOK_VERSION": version}
        ROWS += [
            Row("versions.%s-soname" % key, about + "from the program",
                [ENTRY_POINT, "lib=libcuda.so.1"] + given, CUDA),
            Row("versions.%s-absolute" % key, about + "from the program, by path",
                [ENTRY_POINT, ABSOLUTE] + given, CUDA),
            Row("versions.%s-dlmopen" % key, about + "dlmopen", [ENTRY_POINT, ABSOLUTE, "space=new"] + given,
                CUDA),
            Row("versions.%s-own" % key, about + "from a dlopen of the program's own",
                ["{programs}/entry_point_own", ABSOLUTE], CUDA, env=hook),
            Row("versions.%s-own-dlmopen" % key, about + "from a dlmopen of the program's own",
                ["{programs}/entry_point_own", ABSOLUTE, "space=new"], CUDA, env=hook),
            Row("versions.%s-before" % key, about + "from a hook preloaded before the guard",
                [ENTRY_POINT, ABSOLUTE], CUDA, env=hook, own_preload=HOOK, guard_last=True),
            Row("versions.%s-before-dlmopen" % key, about + "from such a hook of dlmopen",
                [ENTRY_POINT, ABSOLUTE, "space=new"], CUDA, env=hook, own_preload=HOOK, guard_last=True),
            # From that hook, RTLD_DEFAULT finds the guard, which must not call the hook again.
            Row("versions.%s-after" % key, about + "from a hook preloaded after the guard",
                [ENTRY_POINT, ABSOLUTE], CUDA, env=hook, own_preload=HOOK),
            Row("versions.%s-after-dlmopen" % key, about + "from such a hook of dlmopen",
                [ENTRY_POINT, ABSOLUTE, "space=new"], CUDA, env=hook, own_preload=HOOK),
        ]
    ROWS += [
        Row("versions.library-" + version, "dlvsym(RTLD_DEFAULT) from a library, %s version" % version,
            ["{programs}/entry_point_linked", ABSOLUTE, "via=default", "version=" + version], CUDA),
        Row("versions.plugin-" + version, "dlvsym(RTLD_DEFAULT) from a plug-in, %s version" % version,
            [ENTRY_POINT, "plugin={programs}/plugin_open.so"], CUDA,
            env={"CG_VERSION": version, "CG_NAMES": "{driver}/libcuda.so.1"}),
        # As with dlsym, RTLD_NEXT from a library after the guard finds libc's dlopen, and no
        # library was opened before.
        Row("limit.preload-after-" + version, "dlvsym(RTLD_NEXT) from a library after the guard",
            ["{programs}/entry_point_linked", "via=next", "version=" + version], worlds=DRIVEN,
            limit=True),
        Row("limit.libc-dlvsym-" + version, "a path, by the dlvsym that a handle of libc gives",
            [ENTRY_POINT, ABSOLUTE, "via=libc.so.6", "version=" + version], worlds=DRIVEN, limit=True),
    ]
ROWS.append(Row("limit.got", "a path, after a library has written libc's dlopen to the program's GOT",
                [ENTRY_POINT, ABSOLUTE], worlds=DRIVEN, limit=True,
                own_preload=("{programs}/patch_got.so",)))
ROWS.append(Row("versions.got-soname", "the soname, after that", [ENTRY_POINT, "lib=libcuda.so.1"], CUDA,
                own_preload=("{programs}/patch_got.so",)))
for via in ("call", "next", "default"):
    for space in ("base", "new"):
        ROWS.append(Row("versions.unversioned-%s-%s" % (via, space),
                        "a program that imports dlopen without a version, " + via,
                        ["{programs}/entry_point_unversioned", ABSOLUTE, "via=" + via, "space=" + space],
                        CUDA))
ROWS += [
    Row("versions.unversioned-plugin", "a plug-in that imports all it does without versions",
        [ENTRY_POINT, "plugin={programs}/plugin_open_unversioned.so"], CUDA,
        env={"CG_NAMES": "{driver}/libcuda.so.1"}),
    Row("versions.own", "from a dlopen of the program's own, by dlsym(RTLD_NEXT)",
        ["{programs}/entry_point_own", ABSOLUTE], CUDA),
]
