// SPDX-License-Identifier: Apache-2.0
// What the records (policy/message.h, write_record) say of each process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cudaguard::launcher {

struct ObservedProcess {
  uint32_t pid = 0;
  std::string command;  ///< its words; not for a terminal yet
  bool initialised = false;
  std::string by;                    ///< the file whose code called cuInit, without its folders
  std::string told;                  ///< what the driver was told to show; empty: no list
  std::set<int> contexts;            ///< devices
  bool worked = false;               ///< loaded code
  bool nvml = false;                 ///< was let into NVML
  bool found_none = false;           ///< asked the driver, which showed no GPU
  bool failed = false;               ///< asked, and was told of an error
  std::vector<std::string> tried;    ///< these two: "found none by libx.so", each once
  std::vector<std::string> refused;  ///< "cuInit by libx.so", each once
};

/// In the order of each one's first record.
class Records {
 public:
  /// One line, without its end. False: it is not such a record; it is counted, and says nothing.
  /// `pid`: the process that wrote it.
  bool add(std::string_view line, uint32_t& pid);
  const std::vector<ObservedProcess>& processes() const { return processes_; }
  size_t not_understood() const { return not_understood_; }

 private:
  std::vector<ObservedProcess> processes_;
  /// One process may be several programs, one after another, and processes of several pid
  /// namespaces may have the same number.
  std::map<std::pair<uint32_t, std::string>, size_t> places_;
  size_t not_understood_ = 0;
};

}  // namespace cudaguard::launcher
