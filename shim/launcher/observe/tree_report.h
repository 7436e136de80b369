// SPDX-License-Identifier: Apache-2.0
// The file that the guards of one observed tree write to. It is the tree's own: who writes to it
// has inherited its name, so that no record of somebody else's program is among them. The records
// are taken out as they come, and copied to the report that the user asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/launcher/findings/lines.h"
#include "shim/launcher/findings/records.h"

namespace cudaguard::launcher {

class TreeReport {
 public:
  /// `by_file`: an empty file, which this user alone can read, and who knows its name can write to,
  /// in a directory that is made for it (a guard that writes after the end finds no directory, and
  /// leaves no file behind). In TMPDIR or /tmp. Throws Refusal. `to`: the user's report, as
  /// CUDAGUARD_REPORT names it; may be empty.
  TreeReport(std::string to, bool by_file);
  /// Removes both.
  ~TreeReport();
  TreeReport(const TreeReport&) = delete;
  TreeReport& operator=(const TreeReport&) = delete;
  const std::string& path() const { return file_; }  ///< empty: there is none

  /// One record that did not come by the file. True: it is a touch.
  bool add(std::string_view record, const Records::Sender& sender) {
    return take_line(record, &sender);
  }
  /// Everything that was written since the last time. Throws nothing: a program is running.
  void read_on() noexcept;
  /// The last time: a line without an end counts as well.
  void finish() noexcept;
  bool copies() const { return !to_.empty(); }
  const Findings& findings() { return records_.findings(); }
  /// After finish(): why records may be missing, a clause; may be empty.
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
  bool failed_ = false;       ///< to read
  bool copy_failed_ = false;  ///< to write to the user's report
  std::string doubt_;
  Records records_;
  Lines lines_;
};

}  // namespace cudaguard::launcher
