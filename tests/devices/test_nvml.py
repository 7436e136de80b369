# SPDX-License-Identifier: Apache-2.0
"""NVML shows the allow-list in its count, in handles by index, UUID, serial and bus, and in the
reverse look-ups."""

import re

import pytest

from support import box, harness, policies
from support.box import ALL, PROXIES, uuid
# The functions that each call of the program leads to.
STARTS = {
    "nv.initold": ["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"],
    "nv.init": ["nvmlInit_v2", "nvmlInitWithFlags"], "nv.initflags": ["nvmlInitWithFlags"]
}


# Handles by index, UUID, serial and bus exist for listed GPUs only.


@pytest.mark.parametrize(("name", "preload"), [("open", ()), ("nvml", ()), ("nvml", PROXIES)])
def test_handles_of_unlisted_gpus_are_not_found(name, preload):
    """Each is asked for in one program, as by a monitor."""
    # The guard exports only the names that linked programs use; the proxy has all names.
    known = ("uuidtext", "uuidbytes") if name == "open" or preload else ()
    keys = ("uuid", "serial", "bus", "busold", *known)

    def values_of(gpu):
        return (uuid(gpu), box.GPUS[gpu][2], box.bus_id(gpu),
                "0000:%02x:00.0" % box.GPUS[gpu][1], uuid(gpu), uuid(gpu))

    def printed(positions):
        """What the program prints if the GPUs have these positions in NVML."""
        return ["nv.%s=%s" % (key, ("0:" if key in known else "0:%d:" % positions[gpu])
                              + box.GPUS[gpu][0] if gpu in positions else
                              "6:!6" if key in known else "6:77:!6")
                for gpu in ALL for key in keys]

    steps = ["nv.init"] + ["nv.%s=%s" % pair for gpu in ALL for pair in zip(keys, values_of(gpu))]
    unguarded = box.run(steps, name, guard=False)
    assert unguarded.out.split()[1:] == printed({gpu: gpu for gpu in ALL}), str(unguarded)
    result = box.run(steps, name, allow="5,2", preload=preload)
    assert result.rc == 0, str(result)
    assert result.out.split()[1:] == printed({5: 0, 2: 1}), str(result)


def test_mig_device_is_found_if_its_gpu_is_listed():
    """Its index is that inside GPU 6, and equals the index of another GPU."""
    steps = ["nv.init", *("nv.uuid=" + box.mig(part) for part in (0, 1))]
    found = ["nv.uuid=0:0:" + box.mig(0), "nv.uuid=0:2:" + box.mig(1)]
    for allow, wanted in ((None, found), ("6", found), ("2,0", ["nv.uuid=6:77:!6"] * 2)):
        result = box.run(steps, guard=allow is not None, allow=allow, CG_MIG="1")
        assert result.out.split()[1:] == wanted, str(result)


def test_index_outside_the_list_is_an_error():
    steps = ["nv.get=0"]
    result = box.run(["nv.init"] + steps + ["nv.listold"], allow="5,2")
    assert result.answers["nv.get"] == "0:set", str(result)
    assert box.seen(result.answers["nv.listold"]) == [5, 2], str(result)
    for index in ("2", "7", "8", "4294967295"):
        result = box.run(["nv.init", "nv.get=" + index], allow="5,2")
        assert result.answers["nv.get"] == "2:null", str(result)


def test_facts_are_those_of_the_gpu_that_was_asked_for():
    """The facts are the index, the serial number, the bus and the name."""
    for position, gpu in enumerate([5, 2, 7]):
        wanted = "0:%d:%s:%s:Box_GPU_%d" % (position, box.GPUS[gpu][2], box.bus_id(gpu), gpu)
        steps = ["nv.init", "nv.facts=%d" % position]
        assert box.run(steps, allow="5,2,7").answers["nv.facts"] == wanted
        assert box.run(steps, "nvml", allow="5,2,7").answers["nv.facts"][:20] == wanted[:20]


@pytest.mark.parametrize(("step", "machine", "listed"), [("nv.nearest=0,40", [0, 1, 3], [0, 3]),
                                                         ("nv.nearest=0,50", ALL[4:], [6]),
                                                         ("nv.set=0", [0, 1, 2, 3], [0, 2, 3]),
                                                         ("nv.set=1", ALL[4:], [6])])
def test_queries_for_other_gpus_return_listed_gpus_only(step, machine, listed):
    key = step.split("=")[0]
    # The program asks about GPU 2.
    unguarded = box.run(["nv.init", step.replace("=0,", "=2,")], guard=False)
    assert box.seen(unguarded.answers[key].split(":", 2)[2]) == machine, str(unguarded)
    result = box.run(["nv.init", step], allow="2,3,6,0")
    assert sorted(box.seen(result.answers[key].split(":", 2)[2])) == listed, str(result)


def test_call_before_init_or_after_shutdown_gets_error_1():
    """NVML gives the same answer without the guard."""
    for guard in (False, True):
        result = box.run(["nv.count", "nv.get=0", "nv.init", "nv.shutdown", "nv.list",
                          "nv.shutdown"], guard=guard, allow="5,2")
        assert result.answers["nv.count"][:1] == "1", str(result)
        assert result.answers["nv.get"] == "1:null", str(result)
        assert result.answers["nv.list"][:1] == "1", str(result)
        # The error does not depend on the index or on other callers that have used NVML
        # meanwhile.
        result = box.run(["nv.init", "nv.shutdown", "nv.get=7", "cu.see", "nv.count"],
                         guard=guard, allow="5,2")
        assert result.answers["nv.get"] == "1:null", str(result)
        assert result.answers["nv.count"][:1] == "1", str(result)
        result = box.run(["nv.init", "nv.init", "nv.shutdown", "nv.get=1"], guard=guard,
                         allow="5,2")
        assert result.answers["nv.get"] == "0:set", str(result)


def test_list_holds_with_each_init_function(case):
    for start in ("nv.initold", "nv.initflags"):
        for name in ("open", "nvml"):
            result = box.run([start, "nv.list"], name, allow="5,2")
            assert box.seen(result.answers["nv.list"]) == [5, 2], str(result)
            case.silent(result)


@pytest.mark.parametrize(("name", "preload", "more"), [
    *(("open", (), {"policy": name}) for name in policies.ALLOWING), ("open", (), {"allow": "5,2"}),
    ("open", (), {"policy": "VALIDATE", "CG_SICK": "100"}), ("nvml", (), {"policy": "VALIDATE"}),
    ("nvml", PROXIES, {"allow": "5,2"})])
@pytest.mark.parametrize(("start", "calls"), STARTS.items())
def test_caller_of_nvml_is_the_program(case, start, calls, name, preload, more):
    """NVIDIA's nvmlInit functions call each other through their PLT entries, which lead to the
    guard's functions."""
    assert box.run([start], guard=False).fake_calls == calls
    result, records = case.run_reported([start], name, preload=preload,
                                        CUDAGUARD_LOG="all", **more)
    failed = 9 if "CG_SICK" in more else 0
    assert result.answers[start] == str(failed), str(result)
    assert [(r["api"], r["event"], r["result"])
            for r in records] == [(calls[0], "nvml", failed)], str(records)
    assert re.search(r"/programs/%s\+0x" % name, records[0]["caller"]), str(records[0]["caller"])
    case.message(result, "nvml_failed" if failed else "nvml_used",
                 call=calls[0], asked_by=name)


@pytest.mark.parametrize("name", ["open", "nvml"])
@pytest.mark.parametrize(("start", "calls"), STARTS.items())
def test_caller_of_the_real_nvml_is_the_program(case, tmp_path, start, calls, name):
    case.need_real_driver()
    path = str(tmp_path / "report.jsonl")
    result = harness.run([box.program(name), start], world="real", trace=False, timeout=300,
                         env={"CUDAGUARD_REPORT": path, "CUDAGUARD_POLICY": "VALIDATE"})
    (record,) = harness.records(path)
    assert (record["api"], record["event"]) == (calls[0], "nvml"), str(result)
    assert re.search(r"/programs/%s\+0x" % name, record["caller"]), str(record["caller"])
