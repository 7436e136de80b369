# SPDX-License-Identifier: Apache-2.0
"""Bad input makes one clear message. The program runs, and it is guarded."""

import os
import socket
import struct

import pytest

from support import guest, harness, messages, policies

POLICY = messages.text("bad_policy", value="%s", accepted=policies.ACCEPTED)
LOG, REPORT = (messages.text(name, value="%s") for name in ("bad_log", "bad_report"))

TOP = 1 << 64


def worlds():
    return ("fake", "real") if harness.have_real_driver() else ("fake",)


def guarded(case, env, *expected, world="fake", steps=("ask", "nvml"), denied=1,
            line=guest.DENIED % "steps"):
    """One run: guarded, and these lines before the denied ones."""
    result = case.steps(*steps, world=world, env=env)
    assert (result.rc, result.answers["cuInit"]) == (0, "100"), str(result)
    case.untouched(result)
    lines = guest.lines_of(result.err)
    assert len(lines) == result.err.count("\n"), str(result)
    assert len(lines) == len(expected) + denied, str(result)
    for text in expected:
        assert lines.count(text) == 1, str((text, lines))
    if denied:
        assert line in lines
    return result


def test_variables_are_read_despite_the_programs_own_environ(case):
    """The variables are read where libc keeps them."""
    argv = [guest.binary("steps_own_environ"), "ask"]
    harness.run(argv, guard=False).assert_reached(case)
    harness.run(argv, env={"CUDAGUARD_POLICY": "OFF"}).assert_reached(case)
    result = harness.run(argv, env={"CUDAGUARD_POLICY": "x"})
    case.untouched(result)
    assert POLICY % "x" in guest.lines_of(result.err), str(result)


@pytest.mark.parametrize(("value", "world"), [
    *(('a"b\n\x1b[31mé', world) for world in worlds()), ("OFF ", "fake")])
def test_unknown_policy_is_reported_and_means_force_cpu(case, value, world):
    """decision_test.cpp has more words. The value is made printable."""
    guarded(case, {"CUDAGUARD_POLICY": value}, POLICY % value.replace("\n\x1b", "??"), world=world)


def test_log_is_reported_or_silences_complaints(case):
    guarded(case, {"CUDAGUARD_LOG": "loud", "CUDAGUARD_POLICY": "x"}, LOG % "loud", POLICY % "x")
    guarded(case, {"CUDAGUARD_LOG": "off", "CUDAGUARD_POLICY": "x"}, denied=0)


def test_empty_values_and_all_are_accepted(case):
    guarded(case, {"CUDAGUARD_POLICY": "", "CUDAGUARD_LOG": "", "CUDAGUARD_REPORT": ""})
    guarded(case, {"CUDAGUARD_LOG": "All"}, denied=2, line=guest.CALLED % ("cuInit", "steps"))


def test_over_long_value_is_cut_in_its_message(case):
    long = "x" * 100000
    guarded(case, {"CUDAGUARD_POLICY": long}, POLICY % (long[:80] + "..."))
    guarded(case, {"CUDAGUARD_LOG": long}, LOG % (long[:80] + "..."))
    guarded(case, {"CUDAGUARD_REPORT": "/" + long}, REPORT % ("/%s..." % long[:79]))


def not_recorded(path, error):
    what = "remedy" if "space" in error else "accepted"
    return messages.text("report_failed", path=path, error=error,
                         **{what: messages.text("report_" + what)})


def test_unusable_report_path_is_reported_and_not_written_to(case):
    os.mkdir(case.path("directory"))
    os.symlink(case.path("target"), case.path("link"))
    os.symlink(case.path("nowhere", "x"), case.path("dangling"))
    os.mkfifo(case.path("fifo"))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(case.path("socket"))
    listening.close()
    for name in ("file", "other"):
        case.make(name, "")
    os.link(case.path("other"), case.path("hard"))
    no_file = "it is no file, or a pipe that no process reads"
    for path, why in (("directory", "Is a directory"), ("link", "it is a symbolic link"),
                      ("dangling", "it is a symbolic link"), ("hard", "it is a hard link"),
                      ("fifo", no_file), ("socket", no_file),
                      ("none/x", "No such file or directory"), ("file/x", "Not a directory")):
        guarded(case, {"CUDAGUARD_REPORT": case.path(path)},
                not_recorded(path=case.path(path), error=why))
    for path, why in (("/proc/cudaguard", "No such file or directory"),
                      ("/dev/full", "No space left on device")):
        guarded(case, {"CUDAGUARD_REPORT": path}, not_recorded(path=path, error=why))
    assert not os.path.exists(case.path("target"))
    assert os.path.getsize(case.path("other")) == 0
    # The control: the same file, once it has one name.
    os.remove(case.path("hard"))
    guarded(case, {"CUDAGUARD_REPORT": case.path("other")})
    assert os.path.getsize(case.path("other")) > 0


# A null driver that cannot be used.


def broken(case, name, make, why, world="fake"):
    """The null driver `name` is replaced by what make(bytes) returns, or is missing. The guard prints
    the reason `why` once, at the first dlopen of any library. Returns the guard, for more runs."""
    guard = harness.copy_install(case.path("lib"))
    file = case.path("lib", "cudaguard", name)
    target = os.path.realpath(file)
    data = harness.bytes_of(target)
    os.unlink(target)
    if make is not None:
        case.make(target, make(data))
    message = messages.text("file_broken", file=file, why=messages.text(why),
                            library="NVML" if "nvidia-ml" in name else "CUDA")
    result = case.steps("load:libm.so.6", "ask", "ask:libcuda.so", "nvml", guard=False, world=world,
                        env={"LD_PRELOAD": guard})
    assert result.rc == 0, str(result)
    case.untouched(result)
    assert guest.lines_of(result.err)[0] == message, str(result)
    assert guest.lines_of(result.err).count(message) == 1, str(result)
    key = "cuInit" if name.startswith("libcuda") else "nvmlInit_v2"
    assert result.answers == {"load": "ok", "cuInit": "100", "nvmlInit_v2": "9",
                              key: "unavailable"}, str(result)
    return guard, message


@pytest.mark.parametrize("world", worlds())
@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_null_driver_that_cannot_be_loaded_is_refused(case, name, world):
    guard, message = broken(
        case, name, lambda data: data.replace(b"\0libc.so.6\0", b"\0libX.so.6\0"), "not_loadable",
        world)
    env = {"LD_PRELOAD": guard}
    for first in ("load:libm.so.6", "load:libcg-does-not-exist.so"):
        result = case.steps(first, "load:libm.so.6", guard=False, world=world, env=env)
        assert (result.rc, guest.lines_of(result.err)) == (0, [message]), str(result)
    silent = case.steps("load:libm.so.6", "ask", "nvml", guard=False, world=world,
                        env={"CUDAGUARD_LOG": "off", **env})
    assert (silent.rc, silent.err) == (0, ""), str(silent)
    case.untouched(silent)


def patched(*fields):
    """Changes these fields: (offset, struct format, value). An offset may be in the program header
    of the first loaded segment."""
    def change(data):
        changed = bytearray(data)
        table, = struct.unpack_from("<Q", data, 32)
        load = next(at for at in range(table, len(data), 56)
                    if struct.unpack_from("<I", data, at)[0] == 1)
        for offset, form, value in fields:
            struct.pack_into(form, changed, load + SEGMENT[offset] if offset in SEGMENT else offset,
                             value)
        # One byte more: a file of exactly the length that was built is not looked into.
        return bytes(changed) + b"\0"
    return change


def cut_after(length):
    return lambda data: data[:int(length * len(data)) if 0 < length < 1 else length]


SEGMENT = {"offset": 8, "size": 32}  # of an Elf64_Phdr: p_offset and p_filesz
TABLE, COUNT, MACHINE = 32, 56, 18  # of an Elf64_Ehdr: e_phoff, e_phnum and e_machine
BOTH = ("libcuda.so.1", "libnvidia-ml.so.1")
BROKEN = [
    *((name, cut_after(length), "cut_short") for name in BOTH
      for length in (0, 63, 200, 4096, 0.5)),
    ("libcuda.so.1", lambda data: b"#!/bin/sh\n" * 1000, "not_a_library"),
    ("libcuda.so.1", patched((MACHINE, "<H", 0xF3)), "other_machine"),  # RISC-V
    ("libcuda.so.1", patched((MACHINE, "<H", 3)), "other_machine"),  # a 32-bit one
    ("libcuda.so.1", patched((4, "<B", 1)), "other_machine"),
    # Offsets and sizes whose sum is small again beyond 2^64: nothing is read out of bounds.
    *(("libcuda.so.1", patched((TABLE, "<Q", table), (COUNT, "<H", count)), "cut_short")
      for table, count in ((TOP - 56, 2), (TOP - 56 * 65535, 65535), (TOP - 1, 1), (TOP - 1, 0),
                           (TOP - 112, 4), (1 << 63, 65535))),
    *((name, patched(("offset", "<Q", at), ("size", "<Q", size)), "cut_short") for name in BOTH
      for at, size in ((TOP - 4096, 8192), (TOP - 1, 1), (0, TOP - 1), (1 << 63, 1 << 63))),
    # Our directory has another program's library, a later null driver of ours, or the driver.
    ("libcuda.so.1", lambda data: harness.bytes_of(guest.EMPTY), "other_version"),
    ("libnvidia-ml.so.1", lambda data: data.replace(b"driver_claim_v1", b"driver_claim_v9"),
     "other_version"),
    ("libcuda.so.1", lambda data: harness.bytes_of(os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")),
     "other_version")]


@pytest.mark.parametrize("world", ["none", *worlds()])
@pytest.mark.parametrize("name", BOTH)
def test_missing_null_driver_is_refused(case, name, world):
    broken(case, name, None, "missing", world)


@pytest.mark.parametrize(("name", "make", "why"), BROKEN)
def test_broken_null_driver_is_refused(case, name, make, why):
    guard, _ = broken(case, name, make, why)
    if why == "other_version" and name == "libcuda.so.1":
        # A plug-in that is linked to the driver would get this one by its SONAME.
        maps = "import ctypes; ctypes.CDLL('libm.so.6'); print(open('/proc/self/maps').read())"
        result = harness.run([guest.PYTHON, "-c", maps], guard=False, env={"LD_PRELOAD": guard})
        assert "libcudaguard.so" in result.out and name not in result.out, str(result)
