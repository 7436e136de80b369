// SPDX-License-Identifier: Apache-2.0
// The directory in which each user of the machine has a file of records for each day
// (shim/guard/record/append_report.h).
#pragma once

#include <string>

namespace cudaguard::launcher {

class Spool {
 public:
  /// `path` is absolute. Throws Refusal if this is neither a spool directory nor a name for a new
  /// one. Changes nothing.
  explicit Spool(const std::string& path);
  /// Makes the directory, unless it is there. Throws Refusal.
  void make() const;
  const std::string& path() const { return path_; }
  bool is_there() const { return is_there_; }

 private:
  std::string path_;
  bool is_there_ = false;
};

}  // namespace cudaguard::launcher
