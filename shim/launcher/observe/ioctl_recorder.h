// SPDX-License-Identifier: Apache-2.0
// Records NVIDIA ioctls that reach the seccomp fence, because the process bypassed the guard.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "shim/launcher/observe/listener.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

class IoctlRecorder {
 public:
  /// Called once for each process and ioctl. `who.started` is 0 if the process was killed before it
  /// could be identified.
  using Tell = std::function<void(const Identity& who, std::string_view record)>;
  explicit IoctlRecorder(Tell tell) : tell_(std::move(tell)) {}

  /// `listener` holds the call.
  void take(const seccomp_notif& call, const Listener& listener);
  /// Call this at the end: reports processes that ended before they were examined, by their ids
  /// alone. Leaves out ids that were reported already.
  void finish();

 private:
  /// A process, the program in it, the NVIDIA ioctl without its size, and whether NVML made the
  /// ioctl without CUDA.
  using Key = std::tuple<pid_t, uint64_t, Image, uint32_t, bool>;

  Tell tell_;
  std::set<Key> told_;
  /// The ioctls of processes that ended before they were examined. The key is the thread if the
  /// process is not known.
  std::map<pid_t, uint32_t> lost_;
};

}  // namespace cudaguard::launcher
