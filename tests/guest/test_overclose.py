# SPDX-License-Identifier: Apache-2.0
"""A program closes a library more often than it has opened it. Our own libraries stay loaded."""

import os

import pytest

from support import guest, harness

LIBRARIES = ["libcuda.so.1", "libnvidia-ml.so.1"]
SETTINGS = {
    "force-cpu": {"CUDAGUARD_POLICY": "FORCE_CPU"},
    "validate": {"CUDAGUARD_POLICY": "VALIDATE"},
    "clamp": {"CUDAGUARD_POLICY": "CLAMP"},
    "list": {"CUDAGUARD_POLICY": "VALIDATE", "CUDAGUARD_VISIBLE_DEVICES": "1"},
}


def overclose(library, count, guard=True, **env):
    driver = os.path.join(harness.FAKES, "lazy")
    result = harness.run([guest.binary("overclose"), library, str(count)], world="none", guard=guard,
                         trace=False, env={"LD_LIBRARY_PATH": driver, "CUDAGUARD_LOG": "off", **env})
    assert result.rc == 0, result
    return result.out


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_library_works_after_too_many_closes(setting, library, count):
    answer = "100" if setting == "force-cpu" and "cuda" in library else "0"
    wanted = "open ok\nclose 0\nagain ok\nother ok\ninit %s\n" % answer
    assert overclose(library, count, **SETTINGS[setting]) == wanted


@pytest.mark.parametrize("library", LIBRARIES)
def test_control_unguarded_library_works_after_two_closes(library):
    assert "again ok\nother ok\ninit 0\n" in overclose(library, 2, guard=False)
