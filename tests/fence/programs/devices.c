// SPDX-License-Identifier: Apache-2.0
// devices: harmless requests of all sorts of files, those that there are; of each what came: "pty
// TCGETS 0 1f3a90c2", the answer or the error, and a sum of what was written to the argument.
#include <errno.h>
#include <fcntl.h>
#include <linux/fb.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <linux/if_tun.h>
#include <linux/input.h>
#include <linux/kvm.h>
#include <linux/loop.h>
#include <linux/sockios.h>
#include <linux/vfio.h>
#include <linux/videodev2.h>
#include <linux/vt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

// Of headers that not every system has.
#define DRM_IOCTL_VERSION _IOWR('d', 0x00, uint64_t[8])
#define SNDRV_CTL_IOCTL_PVERSION _IOR('U', 0x00, int)
#define SNDRV_TIMER_IOCTL_PVERSION _IOR('T', 0x00, int)

static void ask(const char* file, int descriptor, const char* name, unsigned long request) {
  if (descriptor < 0) return;
  uint64_t argument[512] = {0};
  const int answer = ioctl(descriptor, request, _IOC_TYPE(request) == KVMIO ? NULL : argument);
  uint64_t sum = 0;
  for (size_t i = 0; i < 512; ++i) sum = (sum ^ argument[i]) * 0x100000001b3;
  if (answer < 0) {
    printf("%s %s %s\n", file, name, strerrorname_np(errno));
  } else {
    printf("%s %s %d %016llx\n", file, name, answer, (unsigned long long)sum);
  }
}
#define ASK(file, descriptor, request) ask(file, descriptor, #request, request)

// For reading: who has had a disk open for writing makes udev look at it again.
static int device(const char* path) { return open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY); }

int main(void) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASK("pty", terminal, TCGETS);
  ASK("pty", terminal, TIOCGWINSZ);
  ASK("pty", terminal, TIOCGPTLCK);
  ASK("pty", terminal, FIONREAD);
  int pipes[2];
  if (pipe(pipes) != 0) return 2;
  ASK("pipe", pipes[0], FIONREAD);
  ASK("pipe", pipes[0], TCGETS);
  const int inet = socket(AF_INET, SOCK_DGRAM, 0);
  ASK("socket", inet, FIONREAD);
  ASK("socket", inet, SIOCGIFCONF);
  ASK("socket", socket(AF_UNIX, SOCK_STREAM, 0), SIOCINQ);
  FILE* file = tmpfile();
  if (file == NULL) return 2;
  ASK("file", fileno(file), FS_IOC_GETFLAGS);
  ASK("file", fileno(file), FIGETBSZ);
  ASK("file", fileno(file), FS_IOC_FIEMAP);
  ASK("file", fileno(file), FIONREAD);
  ASK("memfd", memfd_create("file", 0), FS_IOC_GETFLAGS);
  ASK("tun", device("/dev/net/tun"), TUNGETFEATURES);
  ASK("tun", device("/dev/net/tun"), TUNGETIFF);
  ASK("fuse", device("/dev/fuse"), FUSE_DEV_IOC_CLONE);
  ASK("kvm", device("/dev/kvm"), KVM_GET_API_VERSION);
  ASK("kvm", device("/dev/kvm"), KVM_GET_VCPU_MMAP_SIZE);
  ASK("drm", device("/dev/dri/card0"), DRM_IOCTL_VERSION);
  ASK("drm", device("/dev/dri/renderD128"), DRM_IOCTL_VERSION);
  ASK("sound", device("/dev/snd/controlC0"), SNDRV_CTL_IOCTL_PVERSION);
  ASK("sound", device("/dev/snd/timer"), SNDRV_TIMER_IOCTL_PVERSION);
  ASK("framebuffer", device("/dev/fb0"), FBIOGET_VSCREENINFO);
  ASK("framebuffer", device("/dev/fb0"), FBIOGET_FSCREENINFO);
  ASK("framebuffer", device("/dev/fb0"), FBIO_WAITFORVSYNC);
  ASK("console", device("/dev/tty0"), VT_GETMODE);
  ASK("loop", device("/dev/loop0"), LOOP_GET_STATUS64);
  ASK("loop", device("/dev/loop0"), BLKGETSIZE64);
  ASK("disk", device("/dev/vda"), BLKSSZGET);
  ASK("disk", device("/dev/sda"), BLKSSZGET);
  ASK("disk", device("/dev/nvme0n1"), BLKSSZGET);
  ASK("input", device("/dev/input/event0"), EVIOCGVERSION);
  ASK("video", device("/dev/video0"), VIDIOC_QUERYCAP);
  ASK("vfio", device("/dev/vfio/vfio"), VFIO_GET_API_VERSION);
  return 0;
}
