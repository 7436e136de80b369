// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A hash of several values. 0 is never a result, because the tables have it for "none".
class Hash {
 public:
  Hash& add(uint64_t value) {
    value_ = (value_ ^ value) * 0x9e3779b97f4a7c15;
    value_ ^= value_ >> 29;
    return *this;
  }
  Hash& add(const void* value) { return add(reinterpret_cast<uintptr_t>(value)); }
  Hash& add(std::string_view text) {
    uint64_t word = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      word = word << 8 | static_cast<unsigned char>(text.data()[at]);
      if (at % sizeof word == sizeof word - 1) add(word);
    }
    return add(word).add(text.size());
  }
  uint64_t result() const { return value_ == 0 ? 1 : value_; }

 private:
  uint64_t value_ = 0x243f6a8885a308d3;
};

}  // namespace cudaguard
