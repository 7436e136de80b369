// SPDX-License-Identifier: Apache-2.0
// The report file of one observed tree. Only processes of the tree inherit its name, so that it has
// no records of other programs. Records are read from it as they arrive, and copied to the report
// that the user asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/launcher/findings/records.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

class TreeReport {
 public:
  /// If `by_file`, creates an empty file in a new directory in TMPDIR or /tmp. Only this user can
  /// read the file; every process that knows its name can write to it. A guard that writes after
  /// the end finds no directory, so no file is left over. `to` is the user's report as in
  /// CUDAGUARD_REPORT, and may be empty. Throws Refusal.
  TreeReport(std::string to, bool by_file);
  /// Removes the file and its directory.
  ~TreeReport();
  TreeReport(const TreeReport&) = delete;
  TreeReport& operator=(const TreeReport&) = delete;
  const std::string& path() const { return file_; }  ///< empty if there is none

  /// Adds a record that did not come by the file. Returns true if the record is a CUDA attempt.
  bool add(std::string_view record, const Identity& who) {
    const Records::Sender sender = {static_cast<uint32_t>(who.pid),
                                    static_cast<uint32_t>(who.stat.parent), who.stat.started};
    return take_line(record, &sender);
  }
  /// Reads what was written since the last call. Never throws, because a program is running.
  void read_on() noexcept;
  /// Reads the file for the last time; a line without a newline counts as well.
  void finish() noexcept;
  bool copies() const { return !to_.empty(); }
  const Findings& findings() { return records_.findings(); }
  /// A clause that says why records may be missing, valid after finish(); may be empty.
  const std::string& doubt() const { return doubt_; }

 private:
  void read_file();
  void look_for_doubt();
  bool take_line(std::string_view line, const Records::Sender* sender = nullptr);
  void copy(std::string_view line, uint32_t pid);

  std::string to_;
  std::string directory_;
  std::string file_;
  uint64_t inode_ = 0;
  uint64_t offset_ = 0;
  bool failed_ = false;       ///< reading has failed
  bool copy_failed_ = false;  ///< writing to the user's report has failed
  std::string doubt_;
  Records records_;
  Lines lines_;
};

}  // namespace cudaguard::launcher
