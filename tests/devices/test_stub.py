# SPDX-License-Identifier: Apache-2.0
"""A library that has the name of NVIDIA's but not the function by which programs begin: one line names
that file, and ld.so's error is about it, too."""

import os
import subprocess

import pytest

from support import guest, harness, messages, policies

CODE = """import ctypes, sys
for _ in range(2):
    try:
        print(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(0))
    except (AttributeError, OSError) as error:
        print(error)
"""
ALLOWED = {
    **{name: {"CUDAGUARD_POLICY": name} for name in policies.ALLOWING},
    "list": {"CUDAGUARD_VISIBLE_DEVICES": "1"},
}
DRIVER = ("libcuda.so.1", "cuInit")
NVML = ("libnvidia-ml.so.1", "nvmlInit_v2")


def ask(directory, library, function, guard=True, by_path=False, **env):
    directory = os.path.join(harness.FAKES, directory)
    environment = harness.child_environment(
        "none", guard, {"LD_LIBRARY_PATH": directory, **env}, (), os.devnull)
    name = os.path.join(directory, library) if by_path else library
    done = subprocess.run([guest.PYTHON, "-c", CODE, name, function], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, str(done)
    return os.path.join(directory, library), done


@pytest.mark.parametrize(("policy", "by_path"), [
    *((policy, False) for policy in ALLOWED), ("VALIDATE", True)])
@pytest.mark.parametrize(("directory", "called"),
                         [("stub", DRIVER), ("sick_no_init", DRIVER), ("stub_nvml", NVML)])
def test_message_and_error_name_the_file_that_is_there(directory, called, policy, by_path):
    file, control = ask(directory, *called, guard=False, by_path=by_path)
    assert control.stdout == "%s: undefined symbol: %s\n" % (file, called[1]) * 2, str(control)
    _, done = ask(directory, *called, by_path=by_path, **ALLOWED[policy])
    refused = policy not in policies.COMPUTING and called is DRIVER
    name = "stub_refused" if refused else "stub"
    assert messages.find(done.stderr, name, file=file, function=called[1]), str(done)
    # A list and NO_CONTEXT can only be enforced in NVIDIA's driver, so there is no CUDA.
    assert done.stdout == ("100\n" * 2 if refused else control.stdout), str(done)
    rest = messages.without(done.stderr, "no_cuda") if refused else done.stderr
    assert len(guest.lines_of(rest)) == 1, str(done)
    for ours in ("libcudaguard-", "proxy"):
        assert ours not in done.stdout + done.stderr, str(done)


@pytest.mark.parametrize(("policy", "answer"), [("FORCE_CPU", "100\n"), ("OFF", None)])
def test_other_policies_do_not_look_for_a_stub(policy, answer):
    _, control = ask("stub", *DRIVER, guard=False)
    _, done = ask("stub", *DRIVER, CUDAGUARD_POLICY=policy)
    assert done.stdout == (answer * 2 if answer else control.stdout), str(done)
    assert not messages.find(done.stderr, "stub", "stub_refused"), str(done)


LACKING = "int missing(void);\nint cuInit(unsigned flags) { return missing(); }\n"


@pytest.mark.parametrize(("code", "error", "policy"), [
    *((LACKING, "undefined symbol: missing", name) for name in ALLOWED if name != "list"),
    *((None, "file too short", name) for name in ("VALIDATE", "list"))])
def test_driver_that_ld_so_cannot_load_is_an_error_as_without_the_guard(code, error, policy, tmp_path):
    """dlopen of it fails with RTLD_NOW, as ctypes asks. At the first call, a driver that lacks a
    symbol would end the program. The empty file is there, so no message says that it is not."""
    if code is None:
        (tmp_path / "libcuda.so.1").touch()
    else:
        (tmp_path / "driver.c").write_text(code)
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "driver.c", "-o",
                        "libcuda.so.1"], cwd=tmp_path, check=True)
    file, control = ask(str(tmp_path), *DRIVER, guard=False)
    assert control.stdout == "%s: %s\n" % (file, error) * 2, str(control)
    _, done = ask(str(tmp_path), *DRIVER, **ALLOWED[policy])
    assert done.stdout == control.stdout, str(done)
    for wrong in ("libcudaguard-", "is not installed"):
        assert wrong not in done.stdout + done.stderr, str(done)
