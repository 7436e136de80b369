// SPDX-License-Identifier: Apache-2.0
// Reads the guards' beacons (policy/beacon.h). The registers of a call are enough to count a CUDA
// attempt. The memory of the waiting thread has the details.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "policy/beacon.h"
#include "shim/launcher/observe/listener.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

class Beacons {
 public:
  /// Called with the process, the kind, and a record of the report format. Returns false if the
  /// record is not of that kind.
  using Tell = std::function<bool(const Identity& who, Beacon what, std::string_view record)>;
  explicit Beacons(Tell tell) : tell_(std::move(tell)) {}

  /// `listener` has received the call.
  void take(const seccomp_notif& call, const Listener& listener);
  /// Call this at the end of the run: reports the announced attempts whose record never came.
  void finish();
  /// A clause about what was lost, or empty.
  std::string doubt() const;

 private:
  /// The process and program that has announced an attempt, by thread and kind.
  using Announced = std::map<std::pair<pid_t, Beacon>, Identity>;
  using Announcement = Announced::value_type;
  void tell_ended(const Announcement& one);

  Tell tell_;
  Announced announced_;
  size_t bytes_ = 0;  ///< of all records so far
  bool too_many_ = false;
};

}  // namespace cudaguard::launcher
