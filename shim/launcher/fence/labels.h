// SPDX-License-Identifier: Apache-2.0
// A seccomp filter whose jumps name their target. assemble() counts the instructions between them.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// The target of a jump that goes on with the next instruction.
inline constexpr std::string_view kNext;

/// An instruction, or the label of the one that follows.
struct FilterLine {
  sock_filter instruction = {};
  std::string_view label = {};  ///< if this is a label, which is no instruction
  std::string_view if_true = kNext;
  std::string_view if_false = kNext;
};

FilterLine label(std::string_view name);
/// Loads a word of seccomp_data.
FilterLine word(uint32_t offset);
FilterLine keep_bits(uint32_t mask);
FilterLine answer(uint32_t value);
FilterLine go_to(std::string_view target);
/// `comparison` is BPF_JEQ, BPF_JGE or BPF_JGT.
FilterLine jump(uint16_t comparison, uint32_t value, std::string_view if_true,
                std::string_view if_false);

/// Adds `rest`, whose jumps are counted, and counts those of `lines`. Throws std::logic_error if a
/// label is missing, stands twice or has no instruction, and if a jump leads backwards or further
/// than the instruction can say. Pure.
std::vector<sock_filter> assemble(const std::vector<FilterLine>& lines,
                                  const std::vector<sock_filter>& rest = {});

}  // namespace cudaguard::launcher
