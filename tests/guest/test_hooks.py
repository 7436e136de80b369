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


# How a policy decides is the same for each request.
@pytest.mark.parametrize(("request_", "policy"), [
    *((request, "FORCE_CPU") for request in REQUESTS), ("present", "OFF"), ("present", "VALIDATE")])
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("shape", ["calls", "jumps"])
def test_hook_sees_each_call_once(shape, find, request_, policy):
    hook = hook_of(shape, find)
    unguarded = poll(request_, find, [hook])
    calls = COUNT * (2 if find == "default" else 1)  # "default" calls itself once
    assert "dlmopen %d\n" % calls in unguarded  # the control
    for preload in ([hook, harness.GUARD], [harness.GUARD, hook]):
        assert poll(request_, find, preload, policy) == unguarded


# Each pair of a shape, a way of the hook and a way of the program.
@pytest.mark.parametrize(("shape", "find", "via"), [
    *(("calls", find, via) for find in FINDS for via in VIAS),
    *((shape, FINDS[place % len(FINDS)], via) for shape in ("jumps_once", "jumps_own")
      for place, via in enumerate(VIAS))])
def test_hook_sees_as_many_calls_however_the_program_finds_dlopen(shape, find, via):
    if find == "default" and "once" in shape:
        shape = "jumps"  # "default" needs another function at each second call
    hook = hook_of(shape, find)
    unguarded = poll("present", find, [hook], via=via)
    assert "opened 100 in-base 100\n" in unguarded
    sees = via is None or "version" not in via  # dlvsym skips the hook
    assert ("dlmopen 0\n" not in unguarded) == sees  # the control
    for preload in ([hook, harness.GUARD], [harness.GUARD, hook]):
        assert poll("present", find, preload, via=via) == unguarded


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("find", ["next", "version-next", "version-default"])
def test_hook_with_glibcs_version_sees_each_call(find, via):
    """dlvsym finds such a hook, too."""
    hook = hook_of("calls_versioned", find)
    unguarded = poll("present", find, [hook], via=via, version="GLIBC_2.34")
    assert "dlmopen 100\n" in unguarded  # the control
    for preload in ([hook, harness.GUARD], [harness.GUARD, hook]):
        assert poll("present", find, preload, via=via, version="GLIBC_2.34") == unguarded


@pytest.mark.parametrize("via", VIAS)
def test_hook_sees_calls_of_a_program_at_a_fixed_address(via):
    """By version or without, ld.so finds the program's own PLT entry first."""
    case = {"via": via, "version": "GLIBC_2.34", "program": "poll_fixed"}
    hook = hook_of("calls", "next")
    unguarded = poll("present", "next", [hook], **case)
    assert ("dlmopen 0\n" in unguarded) == (via == "version-next")  # the control
    for preload in ([hook, harness.GUARD], [harness.GUARD, hook]):
        assert poll("present", "next", preload, **case) == unguarded


@pytest.mark.parametrize("find", FINDS)
def test_two_hooks_see_each_call(find):
    hooks = [hook_of(shape, find) for shape in ("calls", "jumps")]
    unguarded = poll("present", find, hooks)
    for preload in ([*hooks, harness.GUARD], [harness.GUARD, *hooks],
                    [hooks[0], harness.GUARD, hooks[1]]):  # fmt: skip
        assert poll("present", find, preload) == unguarded


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
