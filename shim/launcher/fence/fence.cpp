// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/fence.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <vector>

#include "policy/nvidia_requests.h"
#include "shim/launcher/fence/filter.h"

namespace cudaguard::launcher {

namespace {

// Older headers do not have them.
constexpr unsigned long kSpecAllow = 1UL << 2;
constexpr unsigned long kNewListener = 1UL << 3;
constexpr unsigned long kWaitKillable = 1UL << 5;
constexpr uint32_t kUserNotif = 0x7fc00000;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | ENODEV;

/// What seccomp(2) or prctl(2) says; a descriptor or 0, or -1 and errno.
int install(const sock_fprog* filter, unsigned long flags) {
  if (flags == 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0);
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, filter));
}

/// A filter that is there already may kill who asks, as that of systemd's SystemCallFilter= does.
/// Tried in a child process, without a filter to install.
bool survives(unsigned long flags) {
  const auto before = signal(SIGCHLD, SIG_DFL);  // ignored, the child's end would not be told
  int status = -1;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // leaves no core
    install(nullptr, flags);
    _exit(0);
  }
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  signal(SIGCHLD, before);
  return child < 0 || WIFEXITED(status);
}

/// The same with no_new_privs where the kernel itself wants that. It never gets that far with a
/// filter that cannot be read: so it is not set for nothing where somebody else answers EACCES.
int install_here(uint32_t answer, unsigned long flags, bool& no_new_privs) {
  std::vector<sock_filter> program = fence_filter(answer);
  const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
  const int made = install(&filter, flags);
  if (made >= 0 || errno != EACCES) return made;
  if (install(nullptr, flags) >= 0 || errno != EFAULT) return made;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  no_new_privs = true;
  return install(&filter, flags);
}

std::string reason(int error) {
  switch (error) {
    case EINVAL:
      return "this kernel has no seccomp filters";
    case ENOSYS:  // no kernel's answer to prctl(2), which is asked last
    case EPERM:
    case EACCES:
      return "another seccomp filter, or a container's profile, forbids it";
    default:
      return std::string("the kernel says: ") + strerror(error);
  }
}

/// `error`: of the attempt to have a listener.
std::string why_unseen(const Fence& fence, int error) {
  if (!fence.holds) {
    return "processes that bypass the guard are not reported: the fence cannot be set up: " +
           fence.why_not;
  }
  const std::string why = fence.was_there   ? "this command is already under a fence"
                          : error == EBUSY  ? "another process has the kernel's notifications"
                          : error == EINVAL ? "this kernel sends no notifications"
                                            : reason(error);
  return "ioctls that the fence refuses are not reported: " + why;
}

}  // namespace

bool is_fenced() {
  const auto error_of = [](uint32_t request) { return ioctl(-1, request) == 0 ? 0 : errno; };
  const int error = error_of(kNobodysRequest);
  // ENOSYS: of one whose listener has died; or of an emulator, for all that it does not know.
  return error == ENODEV || (error == ENOSYS && error_of(kNobodysRequest - 1) != ENOSYS);
}

Fence put_up_fence(bool listens) {
  Fence fence;
  fence.was_there = is_fenced();
  struct Way {
    uint32_t answer;
    unsigned long flags;
  };
  // Without kSpecAllow kernels before 5.16 make the program slower: they take every filter for a
  // sign that its code is not to be trusted. Linux 4.17 has it. prctl: before that, or where
  // seccomp(2) is forbidden. kWaitKillable (Linux 5.19): no signal but KILL takes who waits for the
  // listener out of its request, once that has been read.
  constexpr Way kWays[] = {{kUserNotif, kSpecAllow | kNewListener | kWaitKillable},
                           {kUserNotif, kSpecAllow | kNewListener},
                           {kRefuse, kSpecAllow},
                           {kRefuse, 0}};
  const bool filtered = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER;
  int error = 0;
  int unseen = 0;
  for (const Way& way : kWays) {
    // Under an outer fence a listener still receives the beacons.
    if (way.answer == kUserNotif ? !listens : fence.was_there) continue;
    const bool may = !filtered || survives(way.flags);
    const int made = may ? install_here(way.answer, way.flags, fence.no_new_privs) : -1;
    if (made >= 0) {
      fence.holds = true;
      if (way.answer == kUserNotif) fence.listener = made;
      break;
    }
    error = may ? errno : EPERM;
    if (way.answer == kUserNotif) unseen = error;
  }
  fence.holds |= fence.was_there;
  // Some emulators say yes and do nothing.
  if (fence.holds && fence.listener < 0 && !is_fenced()) {
    fence.holds = false;
    fence.why_not = "this system accepts a seccomp filter and ignores it";
  } else if (!fence.holds) {
    fence.why_not = reason(error);
  }
  if (!fence.holds && fence.no_new_privs) fence.why_not += " (no_new_privs is set anyway)";
  if (listens && (fence.was_there || fence.listener < 0)) fence.unseen = why_unseen(fence, unseen);
  return fence;
}

}  // namespace cudaguard::launcher
