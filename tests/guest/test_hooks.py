# SPDX-License-Identifier: Apache-2.0
"""Another preloaded library that hooks dlopen and dlmopen sees each call exactly as often as without
the guard, and the program gets the same answers."""

import pytest

from support import guest, harness

FINDS = ["next", "default", "version-next", "version-default"]
REQUESTS = {"present": ["libm.so.6"], "absent": ["libcg-none.so"], "noload": ["libc.so.6", "noload"]}
COUNT = 100
# How the program itself finds both functions.
VIAS = [None, "default", "self", "version-default", "version-next", "version-self"]


def hook_of(shape, find):
    without_dlvsym = "version" not in find and "_" not in shape
    return guest.binary("hook_%s%s.so" % (shape, "_dlsym" if without_dlvsym else ""))


def poll(request, find, preload, policy="FORCE_CPU", via=None, version=None, program="poll"):
    result = harness.run([guest.binary(program), str(COUNT), *REQUESTS[request]], world="none",
                         guard=False, preload=preload, trace=False,
                         env={"CG_FIND": find, "CG_VIA": via, "CG_VERSION": version,
                              "CUDAGUARD_POLICY": policy})
    assert result.rc == 0, str(result)
    return result.out


def check(shapes, find, control=None, request="present", **more):
    """The hooks see each call as often as without the guard, before, between and after them."""
    hooks = [hook_of(shape, find) for shape in shapes.split()]
    unguarded = poll(request, find, hooks, **more)
    # Some hooks of "default" call themselves once.
    assert (control or "dlmopen %d\n" % (COUNT * (2 if find == "default" else 1))) in unguarded
    for at in range(len(hooks) + 1):
        assert poll(request, find, [*hooks[:at], harness.GUARD, *hooks[at:]], **more) == unguarded


@pytest.mark.parametrize(("request_", "policy"), [
    *((name, "FORCE_CPU") for name in REQUESTS), ("present", "OFF"), ("present", "VALIDATE")])
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("shape", ["calls", "jumps"])
def test_hook_sees_each_request(shape, find, request_, policy):
    check(shape, find, request=request_, policy=policy)


# "default" needs another function at each second call, so it is not looked up once.
@pytest.mark.parametrize(("shape", "find"), [
    *(("calls", find) for find in FINDS), *(("jumps_own", find) for find in FINDS),
    *(("jumps_once", find) for find in FINDS if find != "default"), ("jumps", "default")])
@pytest.mark.parametrize("via", VIAS)
def test_hook_sees_each_call_however_the_program_finds_dlopen(shape, find, via):
    """dlvsym skips the hook."""
    check(shape, find, "dlmopen 0\n" if via and "version" in via else None, via=via)


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("find", ["next", "version-next", "version-default"])
def test_hook_with_glibcs_version_is_found_by_dlvsym_too(find, via):
    check("calls_versioned", find, "dlmopen 100\n", via=via, version="GLIBC_2.34")


@pytest.mark.parametrize("via", VIAS)
def test_program_at_a_fixed_address_finds_its_own_plt_entry_first(via):
    """By version or without."""
    check("calls", "next", "dlmopen %d\n" % (0 if via == "version-next" else COUNT), via=via,
          version="GLIBC_2.34", program="poll_fixed")


@pytest.mark.parametrize("find", FINDS)
def test_two_hooks_see_each_call(find):
    check("calls jumps", find, "opened 100 in-base 100\n")


def look_up(words, preload, start=False, program="lookups"):
    result = harness.run([guest.binary(program), *words], world="none", guard=False, preload=preload,
                         trace=False, env={"CG_START": "1" if start else None})
    assert result.rc in (0, 139), str(result)
    return result.rc, result.out


LIBRARY = guest.binary("lookups_library.so")
LOOKUPS = {
    "program": ([], False),
    "preload": ([], True),
    "deepbind": (["deepbind", LIBRARY], False),
    "namespace": (["space", LIBRARY], False),
    "null-name": (["null-name"], False),
    "null-version": (["null-version"], False),
    "null-other": (["null-other"], False),
}


@pytest.mark.parametrize("program", ["lookups", "lookups_own"])
@pytest.mark.parametrize("case", LOOKUPS)
def test_dlvsym_answers_as_without_the_guard(case, program):
    """Only the definitions of dlopen, dlmopen and dlvsym are the guard's, in the program's scope."""
    words, start = LOOKUPS[case]
    preload = [LIBRARY] if start else []
    unguarded = look_up(words, preload, start, program)
    assert unguarded[0] == (139 if "null" in case else 0)  # the control
    for order in ([*preload, harness.GUARD], [harness.GUARD, *preload]):
        guarded = look_up(words, order, start, program)
        assert (guarded[0], guarded[1].replace("libcudaguard.so", "libc.so.6")) == unguarded
    if case == "program":
        ours = [line.split(":")[0] for line in guarded[1].splitlines() if "libcudaguard" in line]
        assert [line.split("@")[0] for line in ours if " self " not in line][:4] == [
            "program default dlopen", "program default dlopen", "program default dlmopen",
            "program default dlvsym"]  # fmt: skip
        assert len(ours) == 12
