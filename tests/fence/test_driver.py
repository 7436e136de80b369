# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own libraries, without a GPU, under the fence and without it.

Where there is no device libcuda ends with one request all the same, to the descriptor -1, which the
kernel looks at last; where it sees one, it and the other libraries go further."""

import os
import re

import pytest

from support import driver, fixtures, harness, launcher, messages

FIRST = 0xC04846D2  # CHECK_VERSION_STR: what each of these libraries asks first
LAST = 0xC020462A  # RM_CONTROL, of libcuda to -1
ENTRY_POINT = harness.program("entry_point")
# What these programs need besides libcuda and NVML.
NEEDED = {"clinfo": ["libnvidia-opencl.so.1"], "ffmpeg": ["libnvidia-encode.so.1"]}
CALL_EXPORTS = harness.program("call_exports")

# Programs that ask CUDA or NVML through the guard, themselves or started by another.
GUARDED = [[*starter, ENTRY_POINT, "lib=" + library, "api=" + api]
           for library, api in (("libcuda.so.1", "cuda"), ("libnvidia-ml.so.1", "nvml"))
           for starter in ([], ["sh", "-c", '"$@"; exit', "-"], ["timeout", "60"])]
GUARDED += [["nvidia-smi"], ["clinfo", "-l"]]


class Driver(driver.Case):

    def test_driver_with_device_nodes_is_refused(self):
        """The driver comes as far as it can. After its first ioctl, NVML takes any error for a
        wrong version."""
        done = self.same_but_refused(driver.NODES, ENTRY_POINT, "lib=libcuda.so.1",
                                     expected=[FIRST, 0xC00846D6, 0xC90046C8, LAST])
        self.assertRegex(done.stdout, r"^cuInit=100 .* countRc=3 ")
        done = self.same_but_refused(driver.NODES, ENTRY_POINT, "lib=libnvidia-ml.so.1", "api=nvml",
                                     expected=[FIRST])
        self.assertRegex(done.stdout, r"^nvmlInit=18 ")

    @pytest.mark.all
    def test_display_libraries_are_refused_as_cuda_is(self):
        """EGL and Vulkan, which are in one library, begin as CUDA does."""
        self.need_real_driver("libEGL_nvidia.so.0")
        library = os.path.join(harness.real_driver_dir(), "libEGL_nvidia.so.0")
        words = [driver.NODES, CALL_EXPORTS, library, "vk_icdGetInstanceProcAddr",
                 "vk_icdNegotiateLoaderICDInterfaceVersion"]
        self.same_but_refused(*words, expected=[FIRST])
        # docs/limits.md: verify takes them for CUDA.
        for options, rc in ([], 1), (["--allow", "call_exports"], 0), (["--fence=off"], 3):
            done, _ = self.traced(launcher.LAUNCHER, "verify", *options, "--", "env", *words)
            self.assertEqual((done.returncode, done.stdout), (rc, "called=2\n"), done)
            self.assertEqual("bypassing the guard" in done.stderr, "--fence=off" not in options)


make_case = fixtures.lent("case", Driver)


@pytest.mark.parametrize("words",
                         ([[ENTRY_POINT, "lib=libcuda.so.1"]] +
                          [[harness.program("static_entry_point"),
                            harness.real_driver_file()]] * harness.have_reference_driver()))
def test_driver_without_device_nodes_is_refused(case, words):
    # 550 answers 304 in a static program, without an ioctl.
    done = case.same_but_refused(*words, expected=[LAST])
    assert re.search(r"^cuInit=100 .* countRc=3 ", done.stdout), done.stdout


@pytest.mark.parametrize("words", [
    ["nvidia-smi"], *(pytest.param(words, marks=pytest.mark.all) for words in (
        ["nvidia-smi", "-L"], ["clinfo", "-l"],
        ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "color=s=64x64:d=0.1", "-c:v", "h264_nvenc",
         "-f", "null", "-"]))])
def test_nvidias_programs_are_refused(case, words):
    """They use NVML, NVIDIA's OpenCL and NVIDIA's encoder."""
    case.need(words[0])
    case.need_real_driver(*NEEDED.get(words[0], []))
    done = case.same_but_refused(driver.NODES, *words, expected=[FIRST])
    if words[0] == "nvidia-smi":
        assert "Driver/library version mismatch" in done.stdout


@pytest.mark.parametrize("words", GUARDED)
def test_guarded_programs_make_no_nvidia_ioctl(case, words):
    case.need(words[0])
    case.need_real_driver(*NEEDED.get(words[0], []))
    done, asked = case.traced(launcher.LAUNCHER, "run", "--fence", "--", *words)
    assert messages.find(done.stderr, *messages.DENIED,
                         remedy=messages.text("remedy_fence")), str(done)
    assert driver.requests_of(asked) == ([], set())


@pytest.mark.parametrize(("words", "message"), [([], "cuInit by entry_point"),
                                                (["env", "-i"], "RM_CONTROL")])
def test_only_programs_that_bypass_the_guard_are_reported_as_such(case, words, message):
    """Under `verify` the launcher stays and reports."""
    done, asked = case.traced(launcher.LAUNCHER, "verify", "--", *words, ENTRY_POINT,
                              "lib=libcuda.so.1")
    assert "cuInit=100 " in done.stdout
    assert message in done.stderr
    assert ("bypassing the guard" in done.stderr) == bool(words), str(done)
    requests, answers = driver.requests_of(asked)
    assert (requests, answers) == (([LAST], {"ENODEV"}) if words else ([], set()))
