# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own libraries, without a GPU, under the fence and without it.

Where there is no device libcuda ends with one request all the same, to the descriptor -1, which the
kernel looks at last; where it sees one, it and the other libraries go further."""

import os
import shutil

from support import driver, fence, harness, launcher, messages

NOBODY = 65534
FIRST = 0xC04846D2  # CHECK_VERSION_STR: what each of these libraries asks first
LAST = 0xC020462A  # RM_CONTROL, of libcuda to -1
ENTRY_POINT = harness.program("entry_point")
# What these programs need besides libcuda and NVML.
NEEDED = {"clinfo": ["libnvidia-opencl.so.1"], "ffmpeg": ["libnvidia-encode.so.1"]}
CALL_EXPORTS = os.path.join(harness.BUILD, "tests", "driver_package", "call_exports")


class Driver(driver.Case):
    def test_driver_without_device_nodes_is_refused(self):
        programs = [[ENTRY_POINT, "lib=libcuda.so.1"]]
        if harness.have_reference_driver():  # 550 answers 304 in a static program, without an ioctl
            programs.append([harness.program("static_entry_point"), harness.real_driver_file()])
        for words in programs:
            with self.subTest(words):
                done = self.same_but_refused(*words, expected=[LAST])
                self.assertRegex(done.stdout, r"^cuInit=100 .* countRc=3 ")

    def test_driver_with_device_nodes_is_refused(self):
        """The driver comes as far as it can. After its first ioctl, NVML takes any error for a
        wrong version."""
        done = self.same_but_refused(driver.NODES, ENTRY_POINT, "lib=libcuda.so.1",
                                     expected=[FIRST, 0xC00846D6, 0xC90046C8, LAST])
        self.assertRegex(done.stdout, r"^cuInit=100 .* countRc=3 ")
        done = self.same_but_refused(driver.NODES, ENTRY_POINT, "lib=libnvidia-ml.so.1", "api=nvml",
                                     expected=[FIRST])
        self.assertRegex(done.stdout, r"^nvmlInit=18 ")

    def test_nvidias_programs_are_refused(self):
        """They use NVML, NVIDIA's OpenCL and NVIDIA's encoder."""
        encode = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "color=s=64x64:d=0.1", "-c:v",
                  "h264_nvenc", "-f", "null", "-"]
        for words in (["nvidia-smi"], ["nvidia-smi", "-L"], ["clinfo", "-l"], encode):
            with self.subTest(words):
                self.need(words[0])
                self.need_real_driver(*NEEDED.get(words[0], []))
                done = self.same_but_refused(driver.NODES, *words, expected=[FIRST])
                if words[0] == "nvidia-smi":
                    self.assertIn("Driver/library version mismatch", done.stdout)

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

    def test_guarded_programs_make_no_nvidia_ioctl(self):
        entry_points = [[ENTRY_POINT, "lib=" + library, "api=" + api]
                 for library, api in (("libcuda.so.1", "cuda"), ("libnvidia-ml.so.1", "nvml"))]
        starters = ([], ["sh", "-c", '"$@"; exit', "-"], ["timeout", "60"])
        programs = [[*starter, *entry_point] for entry_point in entry_points for starter in starters]
        for words in (*programs, ["nvidia-smi"], ["clinfo", "-l"]):
            with self.subTest(words):
                self.need(words[0])
                self.need_real_driver(*NEEDED.get(words[0], []))
                done, asked = self.traced(launcher.LAUNCHER, "run", "--fence", "--", *words)
                self.assertTrue(messages.find(done.stderr, *messages.DENIED,
                                              remedy=messages.text("remedy_fence")), done)
                self.assertEqual(driver.requests_of(asked), ([], set()))

    def test_only_programs_that_bypass_the_guard_are_reported_as_such(self):
        """Under `verify` the launcher stays and reports."""
        entry_point = [ENTRY_POINT, "lib=libcuda.so.1"]
        for words, message in ((entry_point, "cuInit by entry_point"),
                               (["env", "-i", *entry_point], "RM_CONTROL")):
            with self.subTest(words):
                done, asked = self.traced(launcher.LAUNCHER, "verify", "--", *words)
                self.assertIn("cuInit=100 ", done.stdout)
                self.assertIn(message, done.stderr)
                self.assertEqual("bypassing the guard" in done.stderr, words[0] == "env", done)
                requests, answers = driver.requests_of(asked)
                self.assertEqual((requests, answers),
                                 ([LAST], {"ENODEV"}) if words[0] == "env" else ([], set()))


class Privileged(fence.Case):
    """An ordinary user starts a setuid-root program, as nvidia-modprobe is one."""

    def setUp(self):
        super().setUp()
        self.need("setpriv")
        if os.geteuid() != 0:
            harness.skip(self, "needs root for a setuid file")
        self.launcher = self.installed()
        self.helper = shutil.copy(fence.program("helper"), self.path("helper"))
        os.chmod(self.helper, 0o4755)
        self.as_nobody = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]

    def output(self, *words):
        done = self.unguarded(*words)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout, done.stderr

    def test_setuid_program_under_roots_fence_becomes_root(self):
        """Root's fence sets no no_new_privs."""
        unguarded, _ = self.output(*self.as_nobody, self.helper)
        self.assertEqual(unguarded, "uid=65534 euid=0 no_new_privs=0 request=ENOTTY\n")
        fenced, _ = self.output(self.launcher, "run", "--fence", "--", *self.as_nobody, self.helper)
        self.assertEqual(fenced, "uid=65534 euid=0 no_new_privs=0 request=ENODEV\n")

    def test_setuid_program_under_a_users_fence_stays_the_user(self):
        """With no_new_privs the program gains no rights. The launcher knows that, and so it guards
        the program."""
        run = [*self.as_nobody, self.launcher, "run"]
        expected = "uid=65534 euid=65534 no_new_privs=1 request=ENODEV\n"
        for words in ([self.helper], ["env", "-i", self.helper]):
            self.assertEqual(self.output(*run, "--fence", "--", *words), (expected, ""))
        # Without a fence it is refused: ld.so would take the guard away.
        done = self.unguarded(*run, "--", self.helper)
        self.refused(done, 125, "setuid")
