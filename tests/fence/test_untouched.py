# SPDX-License-Identifier: Apache-2.0
"""Ioctls that are not NVIDIA's have the same answers under the fence as without it."""

import errno

import pytest

from support import fence, fixtures, uapi

pytestmark = pytest.mark.all

# Of each kind of device one, so that a header that was not read is noticed.
KNOWN = {"TCGETS", "FIONREAD", "SIOCGIFCONF", "FBIOGET_VSCREENINFO", "FBIO_WAITFORVSYNC", "KVM_RUN",
         "FUSE_DEV_IOC_CLONE", "SNDRV_CTL_IOCTL_PVERSION", "SNDRV_PCM_IOCTL_HW_PARAMS", "SG_IO",
         "VIDIOC_QUERYCAP", "BLKGETSIZE64", "LOOP_SET_FD", "CDROMEJECT", "MEMGETINFO", "FIFREEZE",
         "RDMA_VERBS_IOCTL", "EVIOCGVERSION", "USBDEVFS_SUBMITURB", "TUNSETIFF", "KDGETMODE",
         "VFIO_GET_API_VERSION", "BTRFS_IOC_SNAP_CREATE", "PERF_EVENT_IOC_ENABLE", "VT_GETMODE"}


class Untouched(fence.Case):
    def both(self, *words):
        """Returns what these words print unguarded and under the fence."""
        unguarded, fenced = self.unguarded(*words), self.start("run", "--fence", "--", *words)
        self.assertEqual((unguarded.returncode, fenced.returncode), (0, 0), fenced.stderr)
        return unguarded.stdout, fenced.stdout

    def test_ioctls_of_framebuffers_pass(self):
        words = [fence.program("requests_static"), "/dev/null", *fence.OTHERS]
        unguarded, fenced = self.both(*words)
        self.assertEqual(unguarded, fenced)
        self.assertEqual(unguarded.count("ENOTTY"), len(fence.OTHERS))

    def sweep(self, *words, launch=()):
        """A byte for each of the requests that the model program knows to send."""
        path = self.path("answers")
        done = self.unguarded(*launch, fence.program("model"), words[0], path, *words[1:])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, "rb") as stream:
            return stream.read()

    @pytest.mark.full
    def test_ioctls_of_the_kernels_headers_pass(self):
        self.need("gcc")
        names = uapi.requests()
        self.assertLessEqual(KNOWN, set(names))
        self.assertGreater(len(names), 2000)
        numbers = sorted({"%08x" % number for number in names.values()})
        # The control: the model knows NVIDIA's among them.
        done = self.start(launcher=fence.program("model"), *["which"],
                          input="\n".join([*numbers, *fence.NVIDIA]))
        self.assertEqual(set(done.stdout.split()), set(fence.NVIDIA))
        unguarded, fenced = self.both(fence.program("requests_static"), "-1", *numbers)
        self.assertEqual(unguarded, fenced)
        self.assertEqual(fenced.count("EBADF"), len(numbers))

    def test_ioctls_of_this_machines_devices_pass(self):
        """The test opens terminals, sockets, files and the devices of this machine."""
        unguarded, fenced = self.both(fence.program("devices"))
        self.assertEqual(unguarded, fenced)
        self.assertNotIn("ENODEV", unguarded)
        kinds = {line.split()[0] for line in unguarded.splitlines()}
        self.assertLessEqual({"pty", "pipe", "socket", "file", "memfd"}, kinds)
        for request in ("pty TCGETS 0", "socket FIONREAD 0", "pipe FIONREAD 0"):
            self.assertIn(request, unguarded)
        print("devices: " + " ".join(sorted(kinds)))


make_case = fixtures.lent("case", Untouched)


@pytest.mark.parametrize("file", ["-1", "/dev/null"])
def test_every_other_ioctl_of_the_whole_range_passes(case, file):
    """Every type and number, in all four directions, with some sizes, to the real kernel."""
    ours = case.sweep("expected")
    assert len(ours) == 6 * 4 * 65536
    assert ours.count(1) == 6 * 19 + 3 * 57
    unguarded = case.sweep("sweep", file)
    fenced = case.sweep("sweep", file,
                        launch=[fence.launcher.LAUNCHER, "run", "--fence", "--"])
    assert errno.ENODEV not in unguarded
    wanted = bytes(errno.ENODEV if own else other for own,
                   other in zip(ours, unguarded))
    assert fenced.count(errno.ENODEV) == ours.count(1)
    assert fenced == wanted
