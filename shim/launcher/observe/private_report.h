// SPDX-License-Identifier: Apache-2.0
// The report file of one observed tree, and the report that the user asked for.
#pragma once

#include <cstdint>
#include <string>

#include "shim/launcher/findings/records.h"

namespace cudaguard::launcher {

/// Appends records to the report that the user asked for.
class UserReport {
 public:
  /// `report` is as in CUDAGUARD_REPORT, and may be empty.
  explicit UserReport(std::string report) : report_(std::move(report)) {}
  /// Writes a record, and before it a record of its own for the native stack. Empty if there is no
  /// report. Keeps a reference to `native`.
  Records::Take take(const NativeStack& native);

 private:
  void append(const std::string& text, uint32_t pid);
  std::string report_;
  bool failed_ = false;
};

/// Only processes of the tree inherit its name, so that it has no records of other programs.
/// Records are read from it as they arrive, and copied to the user's report.
class PrivateReport {
 public:
  /// Creates an empty file in a new directory in TMPDIR or /tmp. Only this user can read the file;
  /// every process that knows its name can write to it. A guard that writes after the end finds no
  /// directory, so no file is left over. `copy` is the user's report. Throws Refusal.
  explicit PrivateReport(std::string copy);
  /// Removes the file and its directory.
  ~PrivateReport();
  PrivateReport(const PrivateReport&) = delete;
  PrivateReport& operator=(const PrivateReport&) = delete;
  const std::string& path() const { return file_; }

  /// Reads what was written since the last call. Never throws, because a program is running.
  void read_on() noexcept;
  /// Reads the file for the last time; a line without a newline counts as well.
  void finish() noexcept;
  const Findings& findings() { return records_.findings(); }
  /// A clause that says why records may be missing, valid after finish(); may be empty.
  const std::string& doubt() const { return doubt_; }

 private:
  void read_file();
  void look_for_doubt();

  UserReport copy_;
  std::string directory_;
  std::string file_;
  uint64_t inode_ = 0;
  uint64_t offset_ = 0;
  bool failed_ = false;  ///< reading has failed
  std::string doubt_;
  Records records_;
  Lines lines_;
};

}  // namespace cudaguard::launcher
