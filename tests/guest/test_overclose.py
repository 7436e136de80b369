# SPDX-License-Identifier: Apache-2.0
"""A program closes a library more often than it has opened it. Our own libraries stay loaded."""

import os
import re

import pytest

from support import guest, harness, policies

LIBRARIES = ["libcuda.so.1", "libnvidia-ml.so.1"]
SETTINGS = {
    **{name: {"CUDAGUARD_POLICY": name} for name in policies.EVERY if name != "OFF"},
    "list": {"CUDAGUARD_POLICY": "VALIDATE", "CUDAGUARD_VISIBLE_DEVICES": "1"},
}
# The null drivers, and the proxies without and with a list.
KINDS = ["FORCE_CPU", "VALIDATE", "list"]


def overclose(library, count_or_way, guard=True, **env):
    driver = os.path.join(harness.FAKES, "lazy")
    result = harness.run([guest.binary("overclose"), library, count_or_way], world="none",
                         guard=guard, trace=False,
                         env={"LD_LIBRARY_PATH": driver, "CUDAGUARD_LOG": "off", **env})
    assert result.rc == 0, str(result)
    return result.out


def without_text(output):
    """Without the guard, ld.so takes the text of the error from memory that it has freed."""
    return re.sub(r"(?m)^(failed \d+).*", r"\1", output)


def answer_of(setting, library):
    if setting != "FORCE_CPU":
        return "0"
    return "100" if "cuda" in library else "9"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("setting", KINDS)
def test_dlclose_answers_as_without_the_guard(setting, library, count):
    unguarded = overclose(library, count, guard=False)
    assert "closed yes\nerror no\nagain ok\nother ok\ninit 0\n" in unguarded  # the control
    unguarded = unguarded.replace("init 0", "init " + answer_of(setting, library))
    guarded = overclose(library, count, **SETTINGS[setting])
    assert without_text(guarded) == without_text(unguarded)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_library_works_after_many_closes(setting, library):
    """Without the guard, such a program uses memory that ld.so has freed."""
    wanted = ("open ok\nclose 0\nfailed 49: shared object not open\nclosed yes\nerror no\nagain ok\n"
              "other ok\ninit %s\n" % answer_of(setting, library))
    assert overclose(library, 50, **SETTINGS[setting]) == wanted


@pytest.mark.parametrize("way", ["base", "both", "kept", "space"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("setting", KINDS)
def test_handles_of_dlmopen_and_kept_libraries_count_as_without_the_guard(setting, library, way):
    unguarded = overclose(library, way, guard=False)
    assert unguarded.startswith("open ok\nloaded yes\nclose 0\n")  # the control
    assert overclose(library, way, **SETTINGS[setting]) == unguarded
