// SPDX-License-Identifier: Apache-2.0
// The fence is a seccomp filter: the kernel permanently refuses NVIDIA ioctls in this process and
// in all that it starts.
#pragma once

#include <string>
#include <vector>

namespace cudaguard::launcher {

struct Fence {
  bool holds = false;
  bool was_there = false;  ///< a fence or the like was active before
  /// The kernel required it; setuid programs gain no privileges under the fence.
  bool no_new_privs = false;
  /// The descriptor of SECCOMP_RET_USER_NOTIF, which receives NVIDIA ioctls and beacons
  /// (observe/listener.h). -1 if there is none: the kernel then refuses the ioctls itself.
  int listener = -1;
  bool execs = false;  ///< the descriptor also receives each execve (Linux 5.5)
  /// A clause that says why the fence does not hold; empty if it does.
  std::string why_not;
  /// If a listener was wanted: a clause that says why there is none, or why it receives no NVIDIA
  /// ioctls. May be empty.
  std::string unseen;
  bool devices = false;  ///< no GPU device node can be opened (fence/devices.h)
  /// Landlock leaves the listed GPUs' nodes, but the filter that belongs to it is missing.
  bool narrowed = false;
  /// If that was wanted: a clause that says why it does not hold; empty if it does.
  std::string why_no_devices;
  /// Directories in which a GPU node is mounted, so that new files there cannot be opened.
  std::vector<std::string> split;
};

/// Fence::unseen if there is no listener.
std::string why_no_listener(const std::string& why);

/// True if this process is already under a fence.
bool is_fenced();

/// Installs the fence on this process, which must have no other threads; with `devices`, that of
/// devices as well. If `listens`, tries to get a listener. Sets no_new_privs only if the kernel
/// requires it.
Fence put_up_fence(bool listens, bool devices);

/// Installs only a listener, which receives no ioctls: no fence holds.
Fence put_up_listener();

}  // namespace cudaguard::launcher
