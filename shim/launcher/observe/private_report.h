// SPDX-License-Identifier: Apache-2.0
// The file that the guards of one observed tree write to. It is the tree's own: who writes to it
// has inherited its name, so that no record of somebody else's program is among them.
#pragma once

#include <string>

namespace cudaguard::launcher {

class PrivateReport {
 public:
  /// An empty file, for this user alone, in a folder that is made for it (a guard that writes after
  /// the end finds no folder, and leaves no file behind). In TMPDIR or /tmp. Throws Refusal.
  PrivateReport();
  /// Removes both.
  ~PrivateReport();
  PrivateReport(const PrivateReport&) = delete;
  PrivateReport& operator=(const PrivateReport&) = delete;
  const std::string& path() const { return file_; }

 private:
  std::string folder_;
  std::string file_;
};

}  // namespace cudaguard::launcher
