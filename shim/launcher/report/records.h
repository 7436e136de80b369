// SPDX-License-Identifier: Apache-2.0
// What the records (policy/message.h, write_record) say of each process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/launcher/report/model.h"

namespace cudaguard::launcher {

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
