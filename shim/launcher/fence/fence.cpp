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
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "policy/nvidia_requests.h"
#include "shim/launcher/fence/devices.h"
#include "shim/launcher/fence/filter.h"
#include "shim/launcher/fence/listed_gpus.h"
#include "shim/launcher/fence/notification.h"

namespace cudaguard::launcher {

namespace {

// Older headers lack these constants.
constexpr unsigned long kSpecAllow = 1UL << 2;
constexpr unsigned long kNewListener = 1UL << 3;
constexpr unsigned long kWaitKillable = 1UL << 5;
constexpr uint32_t kUserNotif = 0x7fc00000;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | ENODEV;

/// Calls seccomp(2) or prctl(2). Returns a descriptor or 0, or -1 and errno.
int install(const sock_fprog* filter, unsigned long flags) {
  if (flags == 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0);
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, filter));
}

/// Calls `tries` in a child process. Returns its status, as from waitpid, or -1 if there is none.
int status_in_child(bool (*tries)(unsigned long), unsigned long flags) {
  const auto before = signal(SIGCHLD, SIG_DFL);  // if ignored, waitpid would not report the child
  int status = -1;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // leaves no core
    _exit(tries(flags) ? 0 : 1);
  }
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  signal(SIGCHLD, before);
  return status;
}

/// Returns false if a filter such as systemd's SystemCallFilter= kills a process that installs
/// another one. Tries this without a filter to install.
bool survives(unsigned long flags) {
  const auto try_it = [](unsigned long with) { return install(nullptr, with) >= 0; };
  const int status = status_in_child(try_it, flags);
  return status == -1 || WIFEXITED(status);
}

/// True if a listener can receive calls and let them pass (Linux 5.5). Only a process that has a
/// listener can try it. With execve in the filter and no answers, nothing could be started.
bool can_pass_calls(unsigned long flags) {
  const auto try_it = [](unsigned long with) {
    sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog filter = {1, &pass};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const int listener = install(&filter, with);
    // The kernel looks at the address before it waits for a call, and an older one at the flag
    // before it finds that there is no such call.
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, nullptr) == 0 || errno != EFAULT) return false;
    seccomp_notif_resp answer = {};
    answer.flags = kContinue;
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) != 0 && errno == ENOENT;
  };
  return status_in_child(try_it, flags) == 0;
}

/// Installs the filter; sets no_new_privs only if the kernel requires it. The kernel answers EFAULT
/// to an unreadable filter before it checks privileges; an outer filter still answers EACCES.
int install_here(std::vector<sock_filter> program, unsigned long flags, bool& no_new_privs) {
  const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
  const int made = install(&filter, flags);
  if (made >= 0 || errno != EACCES) return made;
  if (install(nullptr, flags) >= 0 || errno != EFAULT) return made;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  no_new_privs = true;
  return install(&filter, flags);
}

/// Enters the domain in which no GPU device node but these can be opened, but for the access
/// mode 3. Sets `ioctls` if a descriptor of this mode takes ioctls.
void enter_domain(Fence& fence, bool& ioctls, const std::vector<std::string>& kept = {}) {
  std::ifstream mounts("/proc/self/mountinfo");
  GpuNodes nodes = find_gpu_nodes({std::istreambuf_iterator<char>(mounts), {}});
  nodes.kept = kept;
  fence.why_no_devices = enter_device_fence(nodes, fence.no_new_privs, ioctls);
  fence.devices = fence.why_no_devices.empty();
  if (fence.devices) fence.split.assign(nodes.split.begin() + 2, nodes.split.end());
}

std::string reason(int error) {
  switch (error) {
    case EINVAL:
      return "this kernel has no seccomp filters";
    case ENOSYS:  // prctl(2) comes last, and no kernel answers ENOSYS to it
    case EPERM:
    case EACCES:
      return "another seccomp filter, or a container's profile, forbids it";
    default:
      return std::string("the kernel says: ") + strerror(error);
  }
}

/// `error` is the errno value of the attempt to install a listener.
std::string why_unseen(const Fence& fence, int error) {
  if (fence.listener >= 0) {
    return "ioctls that the fence refuses are not reported: this command is already under a fence";
  }
  const std::string why = !fence.why_not.empty() ? "the fence cannot be set up: " + fence.why_not
                          : error == EBUSY       ? "another process has the kernel's notifications"
                          : error == EINVAL      ? "this kernel sends no notifications"
                                                 : reason(error);
  return why_no_listener(why);
}

}  // namespace

std::string why_no_listener(const std::string& why) {
  return "verify may miss CUDA attempts: " + why;
}

bool is_fenced() {
  const auto error_of = [](uint32_t request) { return ioctl(-1, request) == 0 ? 0 : errno; };
  const int error = error_of(kNobodysRequest);
  // ENOSYS comes from a fence whose listener has died, or from an emulator for every unknown ioctl.
  return error == ENODEV || (error == ENOSYS && error_of(kNobodysRequest - 1) != ENOSYS);
}

namespace {

Fence put_up(bool listens, bool devices, bool ioctls_too) {
  Fence fence;
  bool ioctls = false;
  if (devices) enter_domain(fence, ioctls);
  fence.was_there = is_fenced();
  struct Way {
    uint32_t answer;
    unsigned long flags;
  };
  // Without kSpecAllow (Linux 4.17), kernels before 5.16 slow the program down, because they treat
  // filtered code as untrusted. prctl(2) is for older kernels, or if seccomp(2) is forbidden. With
  // kWaitKillable (Linux 5.19), only KILL interrupts a call that the listener has read.
  constexpr Way kWays[] = {{kUserNotif, kSpecAllow | kNewListener | kWaitKillable},
                           {kUserNotif, kSpecAllow | kNewListener},
                           {kRefuse, kSpecAllow},
                           {kRefuse, 0}};
  const bool filtered = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER;
  int made = -1;
  int error = 0;
  int unseen = 0;
  for (const Way& way : kWays) {
    // Under an outer fence a listener still receives the beacons.
    const bool useless = !ioctls_too || (fence.was_there && !fence.devices);
    if (way.answer == kUserNotif ? !listens : useless) continue;
    const bool may = !filtered || survives(way.flags);
    const bool execs = may && way.answer == kUserNotif && can_pass_calls(way.flags);
    std::vector<sock_filter> filter =
        fence_filter(way.answer, kThisArchitecture, execs, ioctls_too);
    if (fence.devices) filter = open_filter(filter, !ioctls);
    made = may ? install_here(std::move(filter), way.flags, fence.no_new_privs) : -1;
    if (made >= 0) {
      fence.holds = ioctls_too;
      if (way.answer == kUserNotif) fence.listener = made;
      fence.execs = execs;
      break;
    }
    error = may ? errno : EPERM;
    if (way.answer == kUserNotif) unseen = error;
  }
  fence.holds |= fence.was_there;
  if (fence.devices && made < 0) {
    fence.devices = false;
    fence.why_no_devices = reason(error);
  }
  // Some emulators report success and do nothing.
  if (fence.holds && fence.listener < 0 && !is_fenced()) {
    fence.holds = false;
    fence.why_not = "this system accepts a seccomp filter and ignores it";
  } else if (ioctls_too && !fence.holds) {
    fence.why_not = reason(error);
  }
  if (!fence.why_not.empty() && fence.no_new_privs)
    fence.why_not += " (no_new_privs is set anyway)";
  if (listens && (fence.was_there || fence.listener < 0)) fence.unseen = why_unseen(fence, unseen);
  return fence;
}

}  // namespace

Fence put_up_fence(bool listens, bool devices) { return put_up(listens, devices, true); }

Fence put_up_listener() { return put_up(true, false, false); }

Fence put_up_fence_around(const std::vector<std::string>& nodes) {
  Fence fence;
  bool ioctls = false;
  enter_domain(fence, ioctls, nodes);
  fence.holds = fence.was_there = is_fenced();
  if (!fence.devices) return fence;
  const bool filtered = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER;
  int error = EPERM;
  for (const unsigned long flags : {kSpecAllow, 0UL}) {
    if (filtered && !survives(flags)) continue;
    const sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (install_here(open_filter({pass}, !ioctls), flags, fence.no_new_privs) >= 0) return fence;
    error = errno;
  }
  fence.devices = false;
  fence.narrowed = true;
  fence.why_no_devices = reason(error);
  return fence;
}

}  // namespace cudaguard::launcher
