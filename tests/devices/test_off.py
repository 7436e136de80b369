# SPDX-License-Identifier: Apache-2.0
"""OFF maps no file of cudaguard except the guard, and changes nothing."""

import os

import pytest

from support import box, harness

STEPS = {
    "open": ["nv.see", "cu.see", "rt12.see", "rt13.see", "rt12.set=9", "rt12.last", "rt13.sync",
             "cu.get=9", "cu.where=cuInit", "cu.where=cuDeviceGet", "cu.ask=cuInit,12000,0",
             "cu.ask=cuDeviceGet,13000,2", "nv.nearest=2,40", "nv.facts=3", "cu.context=v4,2",
             "lib.noload=libcuda.so.1", "setenv=CUDA_VISIBLE_DEVICES=1", "rt12.see",
             "fork=c", "cu.init", "rt12.count", "end", "spawn=s", "cu.see", "nv.see", "end"],
    "cuda": ["cu.see", "cu.get=9", "cu.ask=cuInit,12000,0"],
    "cuda_now": ["cu.see", "cu.get=9", "cu.route=dlsym", "cu.see"],
    "nvml": ["nv.see", "nv.facts=7", "nv.uuid=" + box.uuid(3), "nv.listold", "nv.shutdown"],
    "runtime12": ["rt.see", "rt.set=9", "rt.peek", "rt.attribute=2", "rt.properties2=3"],
    "runtime13": ["rt.initdevice=3", "rt.sync", "rt.properties=9", "rt.last"],
    "mixed": ["rt.see", "nv.see", "cu.see", "rt12.see", "rt13.see", "cu.get=-1"],
    "mixed_now": ["cu.see", "rt.see", "nv.see"],
}
OURS = {"libcudaguard.so"}


def mapped(result):
    """The names of the files of cudaguard that the program has mapped."""
    return {os.path.basename(path) for path in result.answers["maps"].split(",")
            if path.startswith(harness.LIB + "/")}


MORE = ({}, {"allow": "5,2"}, {"allow": "nonsense"}, {"CUDAGUARD_CHILDREN": "FORCE_CPU"})


@pytest.mark.parametrize(("name", "steps"), STEPS.items())
@pytest.mark.parametrize("kind", ["lazy", "now", "noslot", "no_nvml"])
def test_off_changes_nothing(kind, name, steps):
    """Under OFF, no driver and no program leads to code that reads another variable: one of each
    kind has them all."""
    if kind == "no_nvml" and name in ("nvml", "mixed", "mixed_now"):
        return  # linked to NVML, so it cannot start there
    unguarded = box.run(steps, name, guard=False, box=kind)
    assert unguarded.rc == 0, str(unguarded)
    for more in MORE if kind == "lazy" or name == "open" else MORE[1:2]:
        result = box.run(steps, name, policy="OFF", box=kind, **more)
        assert result.rc == unguarded.rc, str(result)
        assert result.out == unguarded.out, str(result)
        assert result.err == unguarded.err, str(result)
        assert result.fake_calls == unguarded.fake_calls, str(result)


@pytest.mark.parametrize(("name", "steps"), STEPS.items())
def test_off_maps_only_the_guard(name, steps):
    result = box.run(steps + ["maps"], name, policy="OFF")
    assert mapped(result) == OURS, str(result)


def test_control_a_list_maps_the_proxies_and_force_cpu_does_not(case):
    steps = ["cu.see", "nv.see", "maps"]
    assert mapped(box.run(steps, allow="5,2")) == OURS | {"libcudaguard-driver.so",
                                                          "libcudaguard-nvml.so"}
    cpu = box.run(steps, policy="FORCE_CPU")
    assert "libcudaguard-driver.so" not in mapped(cpu), str(cpu)
    case.sees(cpu, cu="!100", nv="!9")
    assert cpu.fake_calls == [], str(cpu)
    unguarded = box.run(steps, guard=False)
    assert mapped(unguarded) == set(), str(unguarded)
