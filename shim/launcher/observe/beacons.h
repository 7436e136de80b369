// SPDX-License-Identifier: Apache-2.0
// What the guards tell by beacons (policy/beacon.h). A touch counts by the registers of the call
// alone; what is in the memory of the thread that waits says more.
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
  /// Of each: whose it is, what it tells, and the record, as a report has it. False: the record is
  /// none of that kind.
  using Tell = std::function<bool(const Identity& who, Beacon what, std::string_view record)>;
  explicit Beacons(Tell tell) : tell_(std::move(tell)) {}

  /// `listener`: which holds the call.
  void take(const seccomp_notif& call, const Listener& listener);
  /// In the end: tells of those that were announced, and whose record has not come.
  void finish();
  /// What was lost: a clause, or empty.
  std::string doubt() const;

 private:
  struct Announced {
    Beacon what;
    Identity who;
  };
  void tell_of(const Announced& one, bool has_ended);

  Tell tell_;
  const bool can_look_ = has_own_numbers();
  std::map<pid_t, Announced> announced_;  ///< by thread
  size_t bytes_ = 0;                      ///< of all records
  bool too_many_ = false;
};

}  // namespace cudaguard::launcher
