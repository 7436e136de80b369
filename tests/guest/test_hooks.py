# SPDX-License-Identifier: Apache-2.0
"""Another preloaded library that hooks dlopen and dlmopen sees each call exactly as often as without
the guard, and the program gets the same answers."""

import pytest

from support import guest, harness

HOOKS = [guest.binary("hook_calls.so"), guest.binary("hook_jumps.so")]
FINDS = ["next", "version-next", "version-default"]
REQUESTS = {"present": ["libm.so.6"], "absent": ["libcg-none.so"], "noload": ["libc.so.6", "noload"]}
COUNT = 100
POLICIES = ["FORCE_CPU", "OFF", "VALIDATE"]


def poll(request, find, preload, policy="FORCE_CPU"):
    result = harness.run([guest.binary("poll"), str(COUNT), *REQUESTS[request]], world="none",
                         guard=False, preload=preload, trace=False,
                         env={"CG_FIND": find, "CUDAGUARD_POLICY": policy})
    assert result.rc == 0, result
    return result.out


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("hook", HOOKS, ids=["calls", "jumps"])
def test_hook_sees_each_call_once(hook, find, request_, policy):
    unguarded = poll(request_, find, [hook])
    assert "dlopen %d dlmopen %d\n" % (COUNT, COUNT) in unguarded  # the control
    assert poll(request_, find, [harness.GUARD, hook], policy) == unguarded
    assert poll(request_, find, [hook, harness.GUARD], policy) == unguarded


@pytest.mark.parametrize("find", FINDS)
def test_two_hooks_see_each_call(find):
    unguarded = poll("present", find, HOOKS)
    for preload in ([harness.GUARD, *HOOKS], [HOOKS[0], harness.GUARD, HOOKS[1]],
                    [*HOOKS, harness.GUARD]):
        assert poll("present", find, preload) == unguarded
