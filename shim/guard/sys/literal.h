// SPDX-License-Identifier: Apache-2.0
// Comparisons with literals that are in the code itself. What runs in every process at its start is
// in the first pages of the file (gnu::hot) and reads no constants, which are in other pages: each
// 64 KiB of the file of which a page is touched cost a page fault.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

namespace cudaguard::sys {

/// True if `text`, which ends in a zero byte, begins with the literal.
template <size_t kSize>
[[gnu::always_inline]] constexpr bool begins_with(const char* text, const char (&literal)[kSize]) {
  return [&]<size_t... kAt>(std::index_sequence<kAt...>) __attribute__((always_inline)) {
    return ((text[kAt] == literal[kAt]) && ...);
  }
  (std::make_index_sequence<kSize - 1>());
}

template <size_t kSize>
[[gnu::always_inline]] constexpr bool ends_with(std::string_view text,
                                                const char (&literal)[kSize]) {
  return text.size() >= kSize - 1 && begins_with(text.data() + text.size() - (kSize - 1), literal);
}

}  // namespace cudaguard::sys
