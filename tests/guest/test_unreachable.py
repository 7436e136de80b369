# SPDX-License-Identifier: Apache-2.0
"""A process that cannot see the directory of the guard. Nothing is missing there, so nothing is
printed until the program asks for CUDA. Then CUDA is refused, with the reason."""

import os
import shutil

import pytest

from support import guest, harness, machine, messages, policies

CANNOT = messages.text("file_unreachable", file="%s", library="%s")
MISSING = ("file_broken", "proxy_broken")
DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
NOBODY = 65534


def test_jailed_driver_is_refused_with_the_reason(case):
    """Another library is loaded, and nothing is printed about it."""
    machine.need("change_of_root")
    with open("/proc/self/maps", encoding="utf-8") as stream:
        libc = next(line.split()[-1] for line in stream if "libc" in line and ".so" in line)
    directory = os.path.dirname(libc)  # where ld.so looks
    jail = case.path("jail")
    os.makedirs(jail + directory)
    for source in (os.path.join(directory, "libm.so.6"),
                   *(os.path.join(harness.FAKES, "lazy", name) for name in (DRIVER, NVML))):
        shutil.copy(source, jail + directory)

    def jailed(guard, *names):
        return harness.run([guest.binary("jail"), jail, "libm.so.6", *names], world="none",
                           guard=guard, trace=False)

    control = jailed(False, DRIVER)
    assert (control.rc, control.out) == (0, "libm.so.6 ok\nlibcuda.so.1 ok\n"), str(control)
    result = jailed(True, DRIVER, NVML, DRIVER)
    assert (result.rc, result.out) == (0, "libm.so.6 ok\nlibcuda.so.1 null\n"
                                       "libnvidia-ml.so.1 null\nlibcuda.so.1 null\n"), str(result)
    assert guest.lines_of(result.err) == [
        CANNOT % (harness.NULL_DRIVER_CUDA, "CUDA"), CANNOT % (harness.NULL_DRIVER_NVML, "NVML")]


# A program of root that becomes a user who may not look into the guard's directory.


@pytest.fixture(name="other_user_case")
def make_other_user_case(case):
    machine.need("other_users")
    os.mkdir(case.path("private"))
    case.guard = harness.copy_install(case.path("private", "lib"))
    return case


def becomes(case, *names, guard=True, **env):
    result = harness.run([guest.binary("jail"), "uid=%d" % NOBODY, *names], guard=False,
                         preload=[case.guard] if guard else [], trace=False,
                         env={"LD_LIBRARY_PATH": harness.public(harness.FAKE_DRIVER), **env})
    assert result.rc == 0, str(result)
    return result


def hide(case, *names):
    os.chmod(case.path("private", *names), 0o700)


@pytest.mark.parametrize("policy", policies.EVERY)
def test_other_user_gets_the_reason_only_if_the_driver_is_asked_for(other_user_case, policy):
    hide(other_user_case)
    result = becomes(other_user_case, "libm.so.6", CUDAGUARD_POLICY=policy)
    assert (result.out, result.err) == ("libm.so.6 ok\n", ""), str(result)
    if policy == "OFF":
        return
    result = becomes(other_user_case, "libm.so.6", DRIVER, CUDAGUARD_POLICY=policy)
    assert result.out == "libm.so.6 ok\nlibcuda.so.1 null\n", str(result)
    first = result.err.splitlines()[0]
    assert messages.find(first, "file_unreachable", "proxy_unreachable"), str(result)
    assert messages.find(result.err, *MISSING) == [], str(result)
    assert result.fake_calls == [], str(result)


@pytest.mark.parametrize("policy", ["FORCE_CPU", "VALIDATE"])
def test_other_files_alone_are_hidden_or_gone(other_user_case, policy):
    """The guard's own file can be reached, so what cannot be read is not missing."""
    hide(other_user_case, "lib", "cudaguard")
    for reason, other in (("unreadable", "missing"), ("missing", "unreadable")):
        result = becomes(other_user_case, DRIVER, CUDAGUARD_POLICY=policy)
        assert result.out == "libcuda.so.1 null\n", str(result)
        first = result.err.splitlines()[0]
        assert messages.find(first, *MISSING, why=messages.text(reason)), str(result)
        assert messages.find(result.err, *MISSING, why=messages.text(other)) == [], str(result)
        shutil.rmtree(other_user_case.path("private", "lib", "cudaguard"), ignore_errors=True)


def test_control_directory_that_all_may_see_hides_nothing(other_user_case):
    result = becomes(other_user_case, "libm.so.6", "libcuda.so.1")
    assert (result.out, result.err) == ("libm.so.6 ok\nlibcuda.so.1 ok\n", ""), str(result)
    result = becomes(other_user_case, "libcuda.so.1", guard=False)
    assert result.out == "libcuda.so.1 ok\n", str(result)
