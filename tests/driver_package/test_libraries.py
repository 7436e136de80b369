# SPDX-License-Identifier: Apache-2.0
"""Which libraries of NVIDIA's driver packages open the device themselves, unguarded and guarded.
The program loads each in a private /dev and calls each of its exports with zeros."""

import os
import subprocess

import pytest

from support import fixtures, harness

PROGRAM = harness.program("call_exports")
NONE, OPENS = "opens nothing", "opens the device"
REFUSED, BY_DRIVER = "refused", "opens it through libcuda, which is the null driver"
# For Debian's driver 535: the result unguarded and under the guard. libcudadebugger.so.1, which
# uses libcuda, too, is left out, because its exports start a server that stays.
LIBRARIES = {
    "libnvidia-cfg.so.1": (OPENS, REFUSED),        # nvCfgOpenDevice, nvCfgOpenPciDevice
    "libnvidia-opencl.so.1": (OPENS, REFUSED),     # clGetPlatformInfo
    "libnvcuvid.so.1": (OPENS, BY_DRIVER),         # cuvidCtxLockCreate, cuvidGetDecoderCaps
    "libnvidia-encode.so.1": (NONE, NONE),
    "libnvidia-nvvm.so.4": (NONE, NONE),
    "libnvidia-ptxjitcompiler.so.1": (NONE, NONE),
}
# These libraries are checked if they are installed. The guard does not block NVIDIA's OpenGL, EGL
# and Vulkan (docs/limits.md). libGLX_nvidia.so.0 uses /dev/dri, and no test machine has a GPU
# there.
OTHERS = {
    "libEGL_nvidia.so.0": (OPENS, OPENS),          # vk_icd…
    "libGLX_nvidia.so.0": (NONE, NONE),
    "libGLESv1_CM_nvidia.so.1": (NONE, NONE),
    "libGLESv2_nvidia.so.2": (NONE, NONE),
    "libnvidia-allocator.so.1": (NONE, NONE),
    "libnvidia-api.so.1": (NONE, NONE),
    "libnvidia-fbc.so.1": (NONE, NONE),
    "libnvidia-ngx.so.1": (NONE, NONE),
    "libnvidia-opticalflow.so.1": (NONE, NONE),
    "libnvoptix.so.1": (NONE, NONE),
    "libvdpau_nvidia.so.1": (NONE, NONE),
}


def exports(path):
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True,
                            check=True).stdout
    return sorted({line.split()[2].split("@")[0] for line in listed.splitlines()
                   if line.split()[1] in "TWi"})


class Libraries(harness.Case):

    def setUp(self):
        super().setUp()
        self.need_real_driver()

    def look_at(self, name, unguarded, guarded):
        path = os.path.join(harness.real_driver_dir(), name)
        names = exports(path)
        # The harness ignores the display's libraries.
        listed = bool(harness.DRIVER_FILE.match(name))
        for guard, wanted in ((False, unguarded), (True, guarded)):
            result = harness.run([PROGRAM, path, *names], world="real", guard=guard)
            self.assertEqual(result.rc, 0, result)
            self.assertEqual(result.reached_driver(), wanted == OPENS, result)
            called = int(result.answers["called"])
            self.assertEqual(called, 0 if wanted == REFUSED else len(names), result)
            self.assertEqual(path in result.driver_files, listed and wanted != REFUSED, result)

    def test_limit_libcs_own_dlopen_loads_libnvidia_cfg(self):
        """The guard does not see libnvidia-cfg if the program calls libc's own dlopen by pointer
        (tests/lab/limits.md)."""
        self.need_real_driver("libnvidia-cfg.so.1")
        result = harness.run([PROGRAM, "libnvidia-cfg.so.1", "nvCfgOpenDevice"], world="real",
                             env={"CG_LIBC": "1"})
        self.assertTrue(result.reached_driver(), result)

    def test_limit_display_libraries_are_not_blocked(self):
        found = [name for name in OTHERS
                 if os.path.exists(os.path.join(harness.real_driver_dir(), name))]
        if not found:
            harness.skip(self, "none is installed")
        for name in found:
            self.look_at(name, *OTHERS[name])
        print("  looked at: " + " ".join(found))


make_case = fixtures.lent("case", Libraries)


@pytest.mark.parametrize(("name", "row"), LIBRARIES.items())
def test_guard_blocks_the_drivers_libraries(case, name, row):
    case.need_real_driver(name)
    case.look_at(name, *row)
