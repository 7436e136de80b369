# SPDX-License-Identifier: Apache-2.0
"""Debian's programs that reach the driver through NVIDIA's other libraries."""

import os
import re
import shutil

import pytest

from support import fixtures, harness, messages

LAUNCHER = os.path.join(os.path.dirname(harness.LIB), "bin", "cudaguard")


FFMPEG = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "color=s=64x64:d=0.1"]


class Programs(harness.DirectoryCase):
    def setUp(self):
        super().setUp()
        self.need_real_driver()
        os.chmod(self.directory, 0o777)

    def run_it(self, *argv, guard=True, **env):
        own = {"HOME": self.directory, "XDG_CACHE_HOME": None, "GST_REGISTRY": None,
               "GST_REGISTRY_1_0": None}
        return harness.run(argv, world="real", guard=guard, env=dict(env, **own))

    def control(self, *argv, **env):
        unguarded = self.run_it(*argv, guard=False, **env)
        unguarded.assert_reached(self)
        return unguarded

    def test_persistenced_is_refused_with_a_record(self):
        """The program is a daemon without stderr, so its record is the only report."""
        self.need("nvidia-persistenced")
        self.need_real_driver("libnvidia-cfg.so.1")
        if os.geteuid() != 0:
            harness.skip(self, "nvidia-persistenced must be started by root")
        unguarded = self.control("nvidia-persistenced")
        report = os.path.join(self.directory, "report")
        result = self.run_it("nvidia-persistenced", CUDAGUARD_REPORT=report)
        result.assert_untouched(self)
        self.assertEqual((result.rc, result.out, result.err),
                         (unguarded.rc, unguarded.out, unguarded.err), result)
        records = harness.records(report)
        self.assertEqual([(r["api"], r["object"], r["decision"]) for r in records],
                         [("dlopen", "libnvidia-cfg.so.1", "deny")])

    def test_gstreamers_registry_is_not_shared(self):
        """GStreamer's cache of its plug-ins under the guard is not visible to unguarded programs.
        """
        self.need("gst-inspect-1.0")
        self.need_real_driver("libnvcuvid.so.1", "libnvidia-encode.so.1")
        inspect = ["gst-inspect-1.0", "nvcodec"]
        if self.run_it(*inspect, guard=False).rc != 0:
            harness.skip(self, "no nvcodec: gstreamer1.0-plugins-bad")
        registry = os.path.join(self.directory, ".cache", "gstreamer-1.0")
        # Control: GStreamer asks once and then never again.
        self.assertFalse(self.run_it(*inspect, guard=False).reached_driver())
        shutil.rmtree(registry)
        for _ in range(2):
            result = self.run_it(LAUNCHER, "run", "--", *inspect, guard=False)
            result.assert_untouched(self, linked=True)
            self.assertEqual(result.rc, 0, result)
        self.assertFalse(os.path.exists(registry))
        self.control(*inspect)
        # LD_PRELOAD alone cannot move the cache (docs/troubleshooting.md).
        shutil.rmtree(registry)
        self.run_it(*inspect).assert_untouched(self, linked=True)
        self.assertFalse(self.run_it(*inspect, guard=False).reached_driver())


make_case = fixtures.lent("case", Programs)


@pytest.mark.parametrize(("argv", "mapped"), [
    ([*FFMPEG, "-c:v", "h264_nvenc", "-f", "null", "-"], True),
    ([*FFMPEG, "-init_hw_device", "cuda", "-f", "null", "-"], False)])
def test_ffmpeg_finds_no_device(case, argv, mapped):
    """ffmpeg maps NVIDIA's encoder and decoder, which find the null driver."""
    case.need("ffmpeg")
    if mapped:
        case.need_real_driver("libnvidia-encode.so.1")
    unguarded = case.control(*argv)
    result = case.run_it(*argv)
    result.assert_untouched(case, linked=mapped)
    assert mapped == any("encode" in path for path in result.driver_files), str(result)
    case.assertFalse([path for path in result.driver_files
                      if os.path.basename(path).startswith("libcuda.")], result)
    assert result.rc == unguarded.rc, str(result)
    assert "cuInit(0) failed -> CUDA_ERROR_NO_DEVICE" in result.err
    assert messages.find(result.err, "no_cuda", cause="FORCE_CPU", asked_by=re.compile("libav.*")), (
        str(result))
