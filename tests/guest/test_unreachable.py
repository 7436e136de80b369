# SPDX-License-Identifier: Apache-2.0
"""A process that cannot see the directory of the guard. Nothing is missing there, so nothing is
printed until the program asks for CUDA. Then CUDA is refused, with the reason."""

import os
import shutil

import pytest

from support import guest, harness, machine, messages, policies

CANNOT = messages.text("file_unreachable", file="%s", library="%s")


MISSING = ("file_broken", "proxy_broken")
NOBODY = 65534


@pytest.fixture(name="jailed_case")
def make_jailed_case(case):
    machine.need("change_of_root")
    case.jail = case.path("jail")
    for library in ("libm.so.6", "libcuda.so.1", "libnvidia-ml.so.1"):
        source = library_path(case, library)
        # Where ld.so looks: the directory of libc.
        directory = case.jail + os.path.dirname(library_path(case, "libm.so.6"))
        os.makedirs(directory, exist_ok=True)
        shutil.copy(source, os.path.join(directory, library))
    return case


def library_path(case, name):
    if name != "libm.so.6":
        return os.path.join(harness.FAKES, "lazy", name)
    with open("/proc/self/maps", encoding="utf-8") as stream:
        libc = next(line.split()[-1] for line in stream if "libc" in line and ".so" in line)
    return os.path.join(os.path.dirname(libc), name)


def jailed(case, *names, guard=True, **env):
    result = harness.run([guest.binary("jail"), case.jail, *names], world="none", guard=guard,
                         trace=False, env=env)
    assert result.rc == 0, str(result)
    return result


@pytest.mark.parametrize("policy", ["FORCE_CPU", "VALIDATE", "OFF"])
def test_jailed_other_library_is_loaded_and_nothing_is_printed(jailed_case, policy):
    result = jailed(jailed_case, "libm.so.6", CUDAGUARD_POLICY=policy)
    assert (result.out, result.err) == ("libm.so.6 ok\n", ""), str(result)


def test_jailed_driver_is_refused_with_the_reason(jailed_case):
    result = jailed(jailed_case, "libm.so.6", "libcuda.so.1", "libnvidia-ml.so.1", "libcuda.so.1")
    assert result.out == ("libm.so.6 ok\nlibcuda.so.1 null\nlibnvidia-ml.so.1 null\n"
                          "libcuda.so.1 null\n"), str(result)
    assert guest.lines_of(result.err) == [
        CANNOT % (harness.NULL_DRIVER_CUDA, "CUDA"), CANNOT % (harness.NULL_DRIVER_NVML, "NVML")
    ]


def test_control_unguarded_program_loads_the_driver(jailed_case):
    result = jailed(jailed_case, "libm.so.6", "libcuda.so.1", guard=False)
    assert result.out == "libm.so.6 ok\nlibcuda.so.1 ok\n", str(result)


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
def test_other_user_other_library_is_loaded_and_nothing_is_printed(other_user_case, policy):
    hide(other_user_case)
    result = becomes(other_user_case, "libm.so.6", CUDAGUARD_POLICY=policy)
    assert (result.out, result.err) == ("libm.so.6 ok\n", ""), str(result)


@pytest.mark.parametrize("policy", ["FORCE_CPU", *policies.ALLOWING])
def test_other_user_driver_is_refused_with_the_reason(other_user_case, policy):
    hide(other_user_case)
    result = becomes(other_user_case, "libm.so.6", "libcuda.so.1", CUDAGUARD_POLICY=policy)
    assert result.out == "libm.so.6 ok\nlibcuda.so.1 null\n", str(result)
    first = result.err.splitlines()[0]
    assert messages.find(first, "file_unreachable", "proxy_unreachable"), str(result)
    assert messages.find(result.err, *MISSING) == [], str(result)
    assert result.fake_calls == [], str(result)


@pytest.mark.parametrize("policy", ["FORCE_CPU", "VALIDATE"])
def test_directory_of_the_other_files_alone_is_hidden(other_user_case, policy):
    """The guard's own file can be reached, so these files cannot be read, and none is missing."""
    hide(other_user_case, "lib", "cudaguard")
    result = becomes(other_user_case, "libcuda.so.1", CUDAGUARD_POLICY=policy)
    assert result.out == "libcuda.so.1 null\n", str(result)
    first = result.err.splitlines()[0]
    assert messages.find(first, *MISSING, why=messages.text("unreadable")), str(result)
    assert messages.find(result.err, *MISSING, why=messages.text("missing")) == [], str(result)


@pytest.mark.parametrize("policy", ["FORCE_CPU", "VALIDATE"])
def test_control_file_that_is_gone_is_missing(other_user_case, policy):
    shutil.rmtree(other_user_case.path("private", "lib", "cudaguard"))
    result = becomes(other_user_case, "libcuda.so.1", CUDAGUARD_POLICY=policy)
    assert messages.find(result.err.splitlines()[0], *MISSING,
                         why=messages.text("missing")), str(result)


def test_control_directory_that_all_may_see_hides_nothing(other_user_case):
    result = becomes(other_user_case, "libm.so.6", "libcuda.so.1")
    assert (result.out, result.err) == ("libm.so.6 ok\nlibcuda.so.1 ok\n", ""), str(result)
    result = becomes(other_user_case, "libcuda.so.1", guard=False)
    assert result.out == "libcuda.so.1 ok\n", str(result)
