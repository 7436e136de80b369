// SPDX-License-Identifier: Apache-2.0
// Takes the records out of the tree's own report as they come, and copies them to the report that
// the user asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shim/launcher/observe/records.h"

namespace cudaguard::launcher {

class ReportReader {
 public:
  /// `to`: the user's report, as CUDAGUARD_REPORT names it; may be empty.
  ReportReader(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  /// Everything that was written since the last time. Throws nothing: a program is running.
  void read_on() noexcept;
  /// The last time: a line without an end counts as well.
  void finish() noexcept;
  bool copies() const { return !to_.empty(); }
  const Records& records() const { return records_; }

 private:
  void read_file();
  void take_line(std::string_view line);
  void copy(std::string_view line, uint32_t pid);

  std::string from_;
  std::string to_;
  uint64_t offset_ = 0;
  std::string rest_;       ///< the beginning of a line
  bool skipping_ = false;  ///< in a line that is too long for a record
  bool failed_ = false;
  Records records_;
};

}  // namespace cudaguard::launcher
