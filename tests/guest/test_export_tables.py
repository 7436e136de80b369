# SPDX-License-Identifier: Apache-2.0
"""A program may ask for a GPU by the driver's export tables alone, as nvidia-cuda-mps-server does."""

import json
import os
import struct

import pytest

from support import guest, harness, launcher, messages

TABLES = guest.binary("tables")
# The calls by which these steps ask, if each is the first.
ASKS = {"serve": "cuGetExportTable", "cupti": "cuGetExportTable",
        "nvml": "nvmlInternalGetExportTable", "init": "cuInit"}
# NVIDIA's runtime begins with a table, and calls cuInit only if the program asks for a GPU.
ASKED_ONCE = [(step, call) for step, call in ASKS.items()] + [
    ("runtime init", "cuInit"), ("nvmlInit nvml", "nvmlInit"), ("serve kill", "cuGetExportTable")]
ASKS_NOTHING = ["runtime", "runtime version", "version", "none"]
NO_DEVICE = "no CUDA-capable device is detected"


def run(steps, **env):
    return harness.run([TABLES, *steps.split()], trace=False, env=env)


def verify(steps):
    return harness.run([launcher.LAUNCHER, "verify", "--deny=init,nvml", "--", TABLES,
                        *steps.split()], guard=False, trace=False)


@pytest.mark.parametrize("steps", sorted({steps for steps, _ in ASKED_ONCE} | {*ASKS_NOTHING}))
def test_control_program_reaches_the_driver_unguarded(steps):
    result = harness.run([TABLES, *steps.split()], guard=False)
    if steps == "nvml":
        assert result.driver_files, str(result)
    else:
        assert result.fake_calls or "none" in steps, str(result)


@pytest.mark.parametrize(("steps", "call"), ASKED_ONCE)
def test_request_that_may_initialise_the_driver_counts_at_once(steps, call):
    result = run(steps, CUDAGUARD_LOG="all")
    found = messages.find(result.err, "no_cuda", "no_nvml")
    assert [one["call"] for one in found] == [call], str(result)
    result = verify(steps)
    assert result.rc == 1 and "FAIL: 1 place asked for " in result.err, str(result)


@pytest.mark.parametrize("steps", ASKS_NOTHING)
def test_request_that_asks_for_no_gpu_does_not_count(steps):
    result = run(steps)
    assert (result.rc, result.err) == (0, ""), str(result)
    result = verify(steps)
    assert result.rc == 0 and "PASS: no CUDA or NVML use" in result.err, str(result)


def test_each_line_that_asks_has_a_message_of_its_own():
    result = run("cupti init nvml", CUDAGUARD_LOG="all")
    calls = [one["call"] for one in messages.find(result.err, "no_cuda", "no_nvml")]
    assert calls == ["cuGetExportTable", "cuInit", "nvmlInternalGetExportTable"], str(result)


@pytest.mark.parametrize(("steps", "calls"), [
    ("cupti init", ["cuInit"]), ("cupti cupti init", ["cuInit"]), ("cupti", ["cuGetExportTable"]),
    ("init cupti", ["cuInit", "cuGetExportTable"])])
def test_table_and_the_cuinit_that_follows_are_one_attempt(tmp_path, steps, calls):
    document, report = str(tmp_path / "verify.json"), str(tmp_path / "report.jsonl")
    verified = harness.run([launcher.LAUNCHER, "verify", "--json", document, "--", TABLES,
                            *steps.split()], guard=False, trace=False)
    content = json.loads(harness.read(document))
    asked = [call["api"] for call in content["calls"]]
    assert (verified.rc, sorted(asked)) == (1, sorted(calls)), str(verified)
    run(steps, CUDAGUARD_REPORT=report)
    seen = harness.run([launcher.LAUNCHER, "report", "--json", "-", report], guard=False, trace=False)
    refused, = [process["refused"] for process in json.loads(seen.out)["processes"]]
    assert [text.partition(" by ")[0] for text in refused] == calls, seen.out


@pytest.mark.parametrize("steps", ["serve", "cupti", "runtime"])
def test_driver_answers_by_itself_if_cuda_is_allowed(steps):
    result = run(steps, CUDAGUARD_POLICY="VALIDATE")
    assert "cuGetExportTable" in result.fake_calls, str(result)
    assert (result.rc, result.err) == (0, ""), str(result)


def test_mps_server_logs_why_it_fails(tmp_path):
    """The control daemon reads the log from this pipe. Each message has a header."""
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        result = run("serve", CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
        text = os.read(reader, 65536)
    finally:
        os.close(reader)
    assert result.out == "serve=0\nserved=100\n", str(result)
    logged = []
    while text:
        kind, process, year, month, *_, length = struct.unpack_from("<10IQ", text)
        assert kind == 0xabcde003 and process > 0 and year >= 2026 and 1 <= month <= 12, text
        logged.append(text[48:48 + length].decode())
        text = text[48 + length:]
    assert logged[-2:] == ["Driver initialization failed with: " + NO_DEVICE,
                           "Failed to start : " + NO_DEVICE], logged


def test_mps_server_without_a_control_daemon_ends_as_nvidias_does(tmp_path):
    assert run("serve", CUDA_MPS_PIPE_DIRECTORY=str(tmp_path)).out == "serve=0\nserved=0\n"
