// SPDX-License-Identifier: Apache-2.0
// A stream cut into lines that are no longer than a record may be, but for those in one part.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace cudaguard::launcher {

class Lines {
 public:
  /// `take` gets each line without its end; of one that is too long, and no record, nothing.
  explicit Lines(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  void feed(std::string_view part);
  /// A line without an end counts as well.
  void finish();

 private:
  std::function<void(std::string_view)> take_;
  std::string rest_;       ///< the beginning of a line
  bool skipping_ = false;  ///< in a line that is too long
};

}  // namespace cudaguard::launcher
