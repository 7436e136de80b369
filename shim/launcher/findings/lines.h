// SPDX-License-Identifier: Apache-2.0
// Cuts a stream into lines no longer than a record may be. A line within one part may be longer.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace cudaguard::launcher {

class Lines {
 public:
  /// Calls `take` with each line, without its newline. A too long line without a record is empty.
  explicit Lines(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  void feed(std::string_view part);
  /// Also takes a last line without a newline.
  void finish();

 private:
  std::function<void(std::string_view)> take_;
  std::string rest_;       ///< the beginning of a line
  bool skipping_ = false;  ///< inside a line that is too long
};

}  // namespace cudaguard::launcher
