# SPDX-License-Identifier: Apache-2.0
"""The install tree, and every way of naming the guard in it."""

import errno
import os
import re
import shutil
import subprocess
import time

import pytest

from support import guest, harness

NOT_FOUND = "ERROR: ld.so: object '%s' from LD_PRELOAD cannot be preloaded"


@pytest.fixture(name="case")
def make_case(case):
    case.lib = case.path("prefix", "lib")
    os.mkdir(case.path("prefix"))
    case.guard = harness.copy_install(case.lib)
    return case


def guarded(case, preload, *steps, **options):
    """Runs the steps (by default an attempt of each kind) with LD_PRELOAD=preload: guarded."""
    env = {"LD_PRELOAD": preload, **options.pop("env", {})}
    result = case.steps(*(steps or ("load:libm.so.6", "ask", "nvml", "ask:libcuda.so")),
                        guard=False, env=env, **options)
    assert result.rc == 0, str(result)
    assert result.answers.get("cuInit") == "100", str(result)
    case.untouched(result)
    assert result.err.count("\n") == 1, str(result)
    assert guest.lines_of(result.err)[0] == guest.DENIED % "steps"
    return result


def test_ldconfig_makes_no_driver_link(case):
    """cudaguard/ has the driver's names already. ldconfig looks there only if it is named."""
    ldconfig = ["/sbin/ldconfig", "-n", case.lib, os.path.join(case.lib, "cudaguard")]
    before = [sorted(os.listdir(directory)) for directory in ldconfig[2:]]
    subprocess.run(ldconfig, check=True, timeout=60)
    assert [sorted(os.listdir(directory)) for directory in ldconfig[2:]] == before
    assert not {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1"} & {*before[0]}
    # The control: a library with the driver's SONAME does get a link.
    shutil.copy(harness.NULL_DRIVER_CUDA, os.path.join(case.lib, "libother.so.1.2"))
    subprocess.run(ldconfig, check=True, timeout=60)
    assert "libcuda.so.1" in os.listdir(case.lib)


@pytest.mark.parametrize(("preload", "cwd"), [
    ("./libcudaguard.so", "prefix/lib"), ("prefix/lib/libcudaguard.so", "."),
    ("../lib/libcudaguard.so", "prefix/lib"), ("link.so", "."), ("elsewhere/libcudaguard.so", "."),
    ("directory/libcudaguard.so", ".")])
def test_relative_path_or_symbolic_link_guards(case, preload, cwd):
    os.symlink(case.guard, case.path("link.so"))
    os.mkdir(case.path("elsewhere"))
    os.symlink("../prefix/lib/libcudaguard.so", case.path("elsewhere", "libcudaguard.so"))
    os.symlink(case.lib, case.path("directory"))
    guarded(case, preload if "/lib" in preload else case.path(preload), cwd=case.path(cwd))


def test_chdir_before_the_first_attempt_changes_nothing(case):
    guarded(case, "prefix/lib/libcudaguard.so", "chdir:/", "load:libm.so.6", "ask", "nvml",
            cwd=case.directory)
    guarded(case, case.guard, "chdir:/", "ask")
    # To a place where the same relative path names a driver.
    trap = case.path("trap", "prefix", "lib", "cudaguard")
    os.makedirs(trap)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(os.path.join(harness.FAKE_DRIVER, name), trap)
    guarded(case, "prefix/lib/libcudaguard.so", "chdir:" + case.path("trap"), "ask", "nvml",
            cwd=case.directory)


@pytest.mark.parametrize("second", ["same", "copy"])
def test_guard_that_is_preloaded_twice_prints_one_message(case, second):
    """LD_PRELOAD names the same guard twice, as nested launchers do, or two copies of the
    guard."""
    guarded(case, harness.GUARD + ":" + (harness.GUARD if second == "same" else case.guard))


def upgraded(case, *command):
    """Replaces the guard's file while a guarded program runs. Returns (exit code, what the
    program printed after that, whether it reached the driver)."""
    shutil.rmtree(case.lib)
    harness.copy_install(case.lib)
    new = case.path("new", "libcudaguard.so")
    os.makedirs(case.path("new"), exist_ok=True)
    # Another library, so that a process that still reads from the file would fail.
    shutil.copy(harness.NULL_DRIVER_NVML, new)
    gate, log = case.path("gate"), case.path("fake.log")
    if not os.path.exists(gate):
        os.mkfifo(gate)
    env = harness.child_environment("fake", False, {"LD_PRELOAD": case.guard}, (), log)
    process = subprocess.Popen(
        [guest.STEPS, "ask", "print:ready", "open:%s:r" % gate, "load:libm.so.6", "ask",
         "ask:libcuda.so"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True)
    case.addCleanup(process.kill)
    assert process.stdout.readline() == "cuInit=100\n"
    assert "ready" in process.stdout.readline()
    subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert harness.bytes_of(new) == harness.bytes_of(case.guard)
    # A program that has crashed never opens the gate, so open() would never return.
    writer = None
    while writer is None and process.poll() is None:
        try:
            writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO  # the program has not opened it yet
            time.sleep(0.01)
    out = process.communicate(timeout=60)[0]
    if writer is not None:
        os.close(writer)
    return process.returncode, out, os.path.exists(log)


@pytest.mark.parametrize("command", [
    'install "$1" "$2"', 'cmake -P "$3"', 'cp "$1" "$2.new" && mv "$2.new" "$2"',
    'tar -cf new.tar -C "${1%/*}" libcudaguard.so && tar -xf new.tar -C "${2%/*}"'
])
def test_upgrade_keeps_a_running_program_guarded(case, command):
    """README: these put a new file in the old one's place; who has the old one keeps it."""
    new = case.path("new", "libcudaguard.so")
    # What cmake --install does.
    script = case.make("install.cmake", 'file(INSTALL "%s" DESTINATION "%s")\n' % (new, case.lib))
    code, out, reached = upgraded(case, "sh", "-c", 'cd "$0" && ' + command, case.directory, new,
                                  case.guard, script)
    assert code == 0
    assert re.search(r"(?s)load=ok.*cuInit=100.*cuInit=100", out), str(out)
    assert not reached


def test_limit_upgrade_by_cp_kills_a_running_program(case):
    """Documented: cp writes into the very file that running programs have mapped. Most crash, but
    some only get no more answers."""
    code, out, _ = upgraded(case, "cp", case.path("new", "libcudaguard.so"), case.guard)
    assert code < 0 or "cuInit=100" not in out, (code, out)


def test_file_name_is_found_by_ld_library_path(case):
    guarded(case, "libcudaguard.so", env={"LD_LIBRARY_PATH": harness.FAKE_DRIVER + ":" + case.lib})


def test_file_name_is_found_by_ld_so_cache(case):
    """In the default installation, the guard's directory is in ld.so.cache. The test makes the
    cache in a copy."""
    cache = case.path("ld.so.cache")
    config = case.make("ld.so.conf", harness.read("/etc/ld.so.conf") + "\n" + case.lib + "\n")
    subprocess.run(["/sbin/ldconfig", "-X", "-C", cache, "-f", config], check=True, timeout=60,
                   stderr=subprocess.DEVNULL)
    bind = ("--ro-bind", cache, "/etc/ld.so.cache")
    guarded(case, "libcudaguard.so", bwrap=bind)
    # And the cache has not made a driver of it.
    listing = subprocess.run(["/sbin/ldconfig", "-C", cache, "-p"], capture_output=True,
                             text=True, check=True).stdout
    assert case.guard in listing
    assert os.path.join(case.lib, "cudaguard") not in listing


def test_file_name_that_is_not_found_leaves_the_program_unguarded(case):
    """The exit code is 0, and ld.so prints one line. docs/troubleshooting.md names this trap
    first."""
    result = case.steps("ask", guard=False, env={"LD_PRELOAD": "libcudaguard-none.so"})
    assert result.rc == 0, str(result)
    result.assert_reached(case)
    assert NOT_FOUND % "libcudaguard-none.so" in result.err
