# SPDX-License-Identifier: Apache-2.0
"""Whichever way a program looks at the GPUs, it sees the allow-list in its order, as 0...n-1."""

import pytest

from support import box, policies
from support.box import ALL, PROXIES, FASTEST, uuid

# Each entry has a program, its steps and the names of the answers: each API by every route, and
# mixtures in every order.
DRIVER = ["cu.see"]
BY_PROC = ["cu.route=proc", "cu.see"]
WAYS = [
    ("open", DRIVER, ["cu"]),
    ("open", BY_PROC, ["cu"]),
    ("open", ["cu.library=libcuda.so", "cu.see"], ["cu"]),
    ("cuda", DRIVER, ["cu"]),
    ("cuda_now", DRIVER, ["cu"]),
    ("cuda", ["cu.route=dlsym", "cu.see"], ["cu"]),
    ("cuda", BY_PROC, ["cu"]),
    ("runtime12", ["rt.see"], ["rt"]),
    ("runtime13", ["rt.see"], ["rt"]),
    ("open", ["rt12.see"], ["rt12"]),
    ("open", ["rt13.see"], ["rt13"]),
    ("open", ["rt13.see", "rt12.see"], ["rt12", "rt13"]),
    ("open", ["nv.see"], ["nv"]),
    ("nvml", ["nv.see"], ["nv"]),
    ("open", ["linked.cu.see"], ["linked.cu"]),
    ("open", ["linked.nv.see"], ["linked.nv"]),
    ("open", ["linked.nv.see", "cu.see", "linked.cu.see", "nv.see"],
     ["cu", "nv", "linked.cu", "linked.nv"]),
    ("cuda", ["linked.cu.see", "cu.see"], ["cu", "linked.cu"]),
    ("runtime13", ["linked.cu.see", "rt.see", "rt12.see"], ["rt", "rt12", "linked.cu"]),
    ("mixed", ["cu.see", "nv.see", "rt.see"], ["cu", "nv", "rt"]),
    ("mixed", ["nv.see", "rt.see", "cu.see"], ["cu", "nv", "rt"]),
    ("mixed_now", ["rt.see", "cu.see", "nv.see"], ["cu", "nv", "rt"]),
    ("open", ["nv.see", "rt12.see", "cu.see", "rt13.see"], ["cu", "nv", "rt12", "rt13"]),
    ("open", ["cu.see", "rt13.see", "rt12.see", "nv.see"], ["cu", "nv", "rt12", "rt13"]),
    ("runtime13", ["nv.see", "cu.route=proc", "cu.see", "rt12.see", "rt.see"],
     ["cu", "nv", "rt", "rt12"]),
]
LISTS = [
    ("2,5", [2, 5]),
    ("5,2", [5, 2]),
    ("7", [7]),
    ("7,6,5,4,3,2,1,0", ALL[::-1]),
    ("0,1,2,3,4,5,6,7", ALL),
    (" 2 , 5 ", [2, 5]),
    (uuid(3), [3]),
    (uuid(3, 8) + "," + uuid(0, 1), [3, 0]),
    ("6," + uuid(1) + ",0", [6, 1, 0]),
]


@pytest.mark.parametrize(("name", "steps", "keys"), WAYS)
def test_children_threads_and_execs_see_the_listed_gpus(case, name, steps, keys):
    """The program asks by itself, in a forked child, a spawned one, a thread and a program that
    replaces it. Unguarded, the driver shows all eight GPUs in its own order, and NVML in the order
    of the bus."""
    blocks = ["fork=f"] + steps + ["end", "spawn=s"] + steps + ["end"]
    blocks += ["spawn=deep", "fork=f"] + steps + ["end", "end"]
    blocks += ["thread=t"] + steps + ["end"] + steps + ["exec"] + ["label", "e"]
    unguarded = box.run(blocks + steps, name, guard=False)
    result = box.run(blocks + steps, name, allow="5,2")
    case.silent(result)
    for label in ("f.", "s.", "t.", "e.", ""):
        for key in keys:
            answer = label + key + ".see"
            assert box.seen(result.answers[answer]) == [5, 2], str(result)
            gpus = ALL if key.endswith("nv") else FASTEST
            assert box.seen(unguarded.answers[answer]) == gpus, str(unguarded)
    assert len(result.out.splitlines()) == len(unguarded.out.splitlines()), str(result)


@pytest.mark.parametrize("steps", [["deep.cu.see"], ["deep.cu.see", "cu.see", "rt12.see"],
                                   ["nv.see", "deep.cu.see"], ["cu.see", "deep.cu.see"]])
def test_deep_bound_plugins_see_the_listed_gpus(case, steps):
    """A plug-in that is linked to the driver and loaded with RTLD_DEEPBIND calls the driver
    without the proxy. The driver still reads the proxy's list."""
    case.sees(box.run(["deep.cu.see"], guard=False), deep_cu=FASTEST)
    result = box.run(steps, allow="5,2")
    case.sees(result, **{step[:-4]: [5, 2] for step in steps})


@pytest.mark.parametrize(("name", "steps", "keys"), WAYS)
def test_preloaded_proxies_follow_the_policy(case, name, steps, keys):
    """LD_PRELOAD names the proxies after the guard."""
    for more, cuda, nvml in (({"allow": "5,2"}, [5, 2], [5, 2]), ({"policy": "OFF"}, FASTEST, ALL),
                             ({"policy": "FORCE_CPU"}, "!100", "!9")):
        result = box.run(steps, name, preload=PROXIES, **more)
        case.sees(result, **{key: nvml if key.endswith("nv") else cuda for key in keys})
        if cuda != "!100":
            case.silent(result)
    assert not [call for call in result.fake_calls if "Init" in call], str(result)


STEPS = ["cu.see", "nv.see", "rt12.see", "rt13.see"]


@pytest.mark.parametrize(("allow", "gpus", "more"), [
    *((*row, {}) for row in LISTS),
    *(("4,1", [4, 1], {"policy": policy}) for policy in (*policies.ALLOWING, "clamp")),
    *(("2,3", [2, 3], {"CUDA_DEVICE_ORDER": order})
      for order in ("PCI_BUS_ID", "FASTEST_FIRST", "nonsense"))])
def test_each_list_shows_its_gpus(case, allow, gpus, more):
    """In its own order. A list without a policy means VALIDATE."""
    result = box.run(STEPS, allow=allow, **more)
    case.silent(result)
    case.sees(result, cu=gpus, nv=gpus, rt12=gpus, rt13=gpus)


def test_list_keeps_its_order_whatever_the_program_sets(case):
    result = box.run(["setenv=CUDA_DEVICE_ORDER=FASTEST_FIRST", "cu.see",
                      "getenv=CUDA_DEVICE_ORDER"], allow="2,3")
    case.sees(result, cu=[2, 3])
    assert result.answers["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST", str(result)


@pytest.mark.parametrize(("name", "steps", "keys"), WAYS)
@pytest.mark.parametrize(("kind", "bind"), [("lazy", "1"), ("now", None), ("no_plt", None)])
def test_list_holds_with_immediate_binding(case, kind, bind, name, steps, keys):
    """LD_BIND_NOW is 1, or the driver's table of addresses is read-only, or there is no PLT."""
    result = box.run(steps, name, allow="7,2,0", box=kind, LD_BIND_NOW=bind)
    case.silent(result)
    case.sees(result, **dict.fromkeys(keys, [7, 2, 0]))


def test_mig_list_shows_the_part_to_cuda_and_its_gpu_to_nvml(case):
    listed = "1," + box.mig(1)
    unguarded = box.run(["cu.see"], guard=False, own=box.mig(1), CG_MIG="1")
    case.sees(unguarded, cu=["M1"])
    result = box.run(STEPS[:2], allow=box.mig(1)[:12], CG_MIG="1")
    case.silent(result)
    case.sees(result, cu=["M1"], nv=[6])
    result = box.run(["cu.see", "nv.see"], allow=listed, CG_MIG="1")
    # CUDA accepts lists of one kind only. Whatever it does with this list, it shows no more
    # GPUs.
    if box.seen(result.answers["cu.see"]) != [1, "M1"]:
        case.sees(result, cu="!100")
        assert box.lines(result) != [], str(result)


# What the program writes to CUDA_VISIBLE_DEVICES counts inside the view. Here is a value of each
# kind; tests/unit/device_select_test.cpp has all.

VIEW = [5, 2, 7]
CASES = [
    ("0", [5]),
    ("2,0", [7, 5]),
    ("1,9,0", [2]),
    ("5", "!100"),
    ("-1", "!100"),
    ("", "!100"),
    ("0,0", "!100"),
    (uuid(7), [7]),
    (uuid(7, 4), [7]),
    (uuid(0), "!100"),
]


@pytest.mark.parametrize(("own", "gpus"), CASES)
def test_own_variable_counts_inside_the_list(own, gpus):
    """The program, its forked child or its spawned child writes the variable, or a child
    inherits it."""
    steps = ["cu.see", "nv.see", "rt12.see", "getenv=CUDA_VISIBLE_DEVICES"]
    write = ["setenv=CUDA_VISIBLE_DEVICES=" + own]
    blocks = ["fork=f"] + write + steps + ["end"]
    blocks += ["spawn=s"] + write + steps + ["end"]
    blocks += write + ["spawn=h"] + steps + ["end"] + steps
    result = box.run(blocks, allow="5,2,7")
    assert result.rc == 0, str(result)
    for label in ("", "f.", "s.", "h."):
        answers = {key: result.answers[label + key] for key in
                   ("cu.see", "nv.see", "rt12.see")}
        assert box.seen(answers["cu.see"]) == gpus, str(result)
        assert box.seen(answers["rt12.see"]) == gpus, str(result)
        # NVML does not read the variable, so it shows the view, as in a container with
        # these GPUs.
        assert box.seen(answers["nv.see"]) == VIEW, str(result)
    assert result.out.count("CUDA_VISIBLE_DEVICES=%s\n" % own) == 4, str(result)


@pytest.mark.parametrize(("own", "gpus", "left"), [
    ("0,1,2", VIEW, None), ("1,2", [2, 7], "GPUs 2,7"), ("1,9,0", [2], "GPU 2"),
    ("0,,1", [5], "GPU 5"), (uuid(7), [7], "GPU 7"), ("5,2,7", "!100", None), ("", "!100", None),
    ("-1", "!100", None), (uuid(3), "!100", None)])
@pytest.mark.parametrize(("name", "before"), [("open", []), ("open", ["nv.see"]), ("cuda", [])])
def test_inherited_value_that_leaves_less_than_the_list_is_reported(case, name, before, own, gpus,
                                                                    left):
    """One line for all calls. What the program itself writes needs none."""
    steps = [*before, "cu.see", "rt12.see"]
    result = box.run(steps, name, allow="5,2,7", own=own)
    case.sees(result, cu=gpus)
    written = box.run(["setenv=CUDA_VISIBLE_DEVICES=" + own, *steps], name, allow="5,2,7")
    case.sees(written, cu=gpus)
    if gpus == VIEW:
        case.silent(result)
        return
    (line,) = box.lines(result)
    assert 'CUDA_VISIBLE_DEVICES="%s" leaves ' % own in line
    assert ("leaves only %s. " % left if left else "leaves no GPU. ") in line
    assert "CUDAGUARD_VISIBLE_DEVICES=5,2,7" in line
    if left:
        case.silent(written)


def test_control_driver_reads_the_same_values_unguarded(case):
    for own, gpus in (("0", [3]), ("1,0", [0, 3]), ("0,0", "!100"), ("1gpu2", [0]),
                      (uuid(7), [7]), ("-1", "!100")):
        result = box.run(["cu.see", "rt12.see"], guard=False, own=own)
        case.sees(result, cu=gpus, rt12=gpus)


@pytest.mark.parametrize("own", [None, *(own for own, _ in CASES)])
def test_policies_without_a_list_change_no_view(case, own):
    """Under VALIDATE, for example, each value has the effect that CUDA itself gives it, and no
    other. One policy is enough for most values, because none reads the variable by itself."""
    steps = ["cu.see", "nv.see", "rt13.see", "getenv=CUDA_VISIBLE_DEVICES", "nv.facts=3"]
    unguarded = box.run(steps, guard=False, own=own)
    for policy in policies.ALLOWING if own in (None, "2,0", "0,0") else policies.ALLOWING[:1]:
        result = box.run(steps, policy=policy, own=own)
        case.silent(result)
        assert result.out == unguarded.out, str(result)


def test_cuinit_after_a_failure_reads_the_variable_again(case):
    """No GPU is left, then the program writes another value. NVIDIA's driver reads the variable
    at each cuInit."""
    result = box.run(["setenv=CUDA_VISIBLE_DEVICES=-1", "cu.init", "cu.count",
                      "setenv=CUDA_VISIBLE_DEVICES=1", "cu.see",
                      "setenv=CUDA_VISIBLE_DEVICES=0,1,2", "cu.list"], allow="5,2,7")
    assert result.answers["cu.init"] == "100", str(result)
    assert result.answers["cu.count"][:1] == "3", str(result)
    case.sees(result, cu=[2])
    assert box.seen(result.answers["cu.list"]) == [2], str(result)
    # The driver still has the text of its first attempt, unchanged.
    assert [call for call in result.fake_calls
            if call.startswith("told")] == ["told first:-1"], str(result)


@pytest.mark.parametrize("write", [
    "setenv=CUDAGUARD_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", "setenv=CUDAGUARD_VISIBLE_DEVICES=5",
    "setenv=CUDAGUARD_VISIBLE_DEVICES=", "setenv=CUDAGUARD_POLICY=OFF", "clearenv"
])
def test_later_writes_of_cudaguard_variables_have_no_effect(case, write):
    """The program writes CUDAGUARD_VISIBLE_DEVICES, or lifts the policy, before and after its
    first call, and in a forked child."""
    for steps in ([write, "nv.see", "cu.see"], ["nv.see", write, "cu.see"]):
        case.sees(box.run(steps, allow="5,2"), cu=[5, 2], nv=[5, 2])
    result = box.run(["lib.noload=libm.so.6", "fork=f", write, "nv.see", "cu.count",
                      "end"], allow="5,2")
    assert box.seen(result.answers["f.nv.see"]) == [5, 2], str(result)
