# SPDX-License-Identifier: Apache-2.0
"""Another preloaded library that hooks dlopen and dlmopen sees each call exactly as often as without
the guard, and the program gets the same answers."""

import pytest

from support import guest, harness

FINDS = ["next", "version-next", "version-default"]
REQUESTS = {"present": ["libm.so.6"], "absent": ["libcg-none.so"], "noload": ["libc.so.6", "noload"]}
COUNT = 100
POLICIES = ["FORCE_CPU", "OFF", "VALIDATE"]


def hook_of(shape, find):
    return guest.binary("hook_%s%s.so" % (shape, "_dlsym" if find == "next" else ""))


def poll(request, find, preload, policy="FORCE_CPU"):
    result = harness.run([guest.binary("poll"), str(COUNT), *REQUESTS[request]], world="none",
                         guard=False, preload=preload, trace=False,
                         env={"CG_FIND": find, "CUDAGUARD_POLICY": policy})
    assert result.rc == 0, result
    return result.out


def binds_imports_to_versions():
    """True for ld.so of glibc 2.41: it finds the same function for an import and for dlvsym."""
    return harness.run([guest.binary("import_form")], world="none", trace=False).out == "version\n"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("shape", ["calls", "jumps"])
def test_hook_sees_each_call_once(shape, find, request_, policy):
    hook = hook_of(shape, find)
    seen = "dlopen %d dlmopen %d\n" % (COUNT, COUNT)
    unguarded = poll(request_, find, [hook])
    assert seen in unguarded  # the control
    assert poll(request_, find, [hook, harness.GUARD], policy) == unguarded
    if find != "next" and binds_imports_to_versions():  # the limit in docs/limits.md
        unguarded = unguarded.replace(seen, "dlopen 0 dlmopen 0\n")
    assert poll(request_, find, [harness.GUARD, hook], policy) == unguarded


@pytest.mark.parametrize("find", FINDS)
def test_two_hooks_see_each_call(find):
    hooks = [hook_of(shape, find) for shape in ("calls", "jumps")]
    unguarded = poll("present", find, hooks)
    assert poll("present", find, [*hooks, harness.GUARD]) == unguarded
    if find == "next" or not binds_imports_to_versions():
        for preload in ([harness.GUARD, *hooks], [hooks[0], harness.GUARD, hooks[1]]):
            assert poll("present", find, preload) == unguarded
