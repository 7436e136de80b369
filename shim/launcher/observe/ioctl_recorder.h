// SPDX-License-Identifier: Apache-2.0
// Those that run into the fence: processes that the guard is not in, or that have gone around it.
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
  /// Of each process and request once: whose it is (`started` is 0: it was killed before that could
  /// be known), and the record.
  using Tell = std::function<void(const Identity& who, std::string_view record)>;
  explicit IoctlRecorder(Tell tell) : tell_(std::move(tell)) {}

  /// `listener`: which holds the call.
  void take(const seccomp_notif& call, const Listener& listener);
  /// In the end: tells of those that were gone before they were looked at, by their numbers alone,
  /// unless they were told of at another time.
  void finish();

 private:
  /// A process, the program in it, which of NVIDIA's requests (sizes differ), and: with NVML and
  /// without CUDA?
  using Key = std::tuple<pid_t, uint64_t, Image, uint32_t, bool>;

  Tell tell_;
  const bool can_look_ = has_own_numbers();  ///< else of nobody more is known than the number
  std::set<Key> told_;
  /// What was asked by processes that were gone before they were looked at; threads, where whose is
  /// not known.
  std::map<pid_t, uint32_t> lost_;
};

}  // namespace cudaguard::launcher
