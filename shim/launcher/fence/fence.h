// SPDX-License-Identifier: Apache-2.0
// The fence: from then on the kernel refuses requests to NVIDIA's driver, in this process and in
// all that it starts, for ever.
#pragma once

#include <string>

namespace cudaguard::launcher {

struct Fence {
  bool holds = false;
  bool was_there = false;  ///< somebody around us has put it up, or the like of it
  /// Setuid programs inside gain nothing, because the kernel wanted that.
  bool no_new_privs = false;
  /// The descriptor of SECCOMP_RET_USER_NOTIF, which receives NVIDIA ioctls and beacons
  /// (observe/listener.h). -1 if there is none: the kernel then refuses the ioctls itself.
  int listener = -1;
  /// A clause; empty if it holds.
  std::string why_not;
  /// If a listener was wanted: a clause that says why NVIDIA ioctls are not reported; may be empty.
  std::string unseen;
};

/// Is there one around this process already?
bool is_fenced();

/// Puts it up around this process, which must have no other threads. `listens`: with a
/// descriptor, where that can be had. Sets no_new_privs only where the kernel wants it.
Fence put_up_fence(bool listens);

}  // namespace cudaguard::launcher
