// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/labels.h"

#include <limits>
#include <map>
#include <stdexcept>
#include <string>

namespace cudaguard::launcher {

namespace {

constexpr uint16_t kGoTo = BPF_JMP | BPF_JA;

[[noreturn]] void refuse(std::string_view name, const char* why) {
  throw std::logic_error("the fence's filter: the label " + std::string(name) + ' ' + why);
}

}  // namespace

FilterLine label(std::string_view name) { return {.label = name}; }
FilterLine word(uint32_t offset) {
  return {.instruction = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)};
}
FilterLine keep_bits(uint32_t mask) {
  return {.instruction = BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask)};
}
FilterLine answer(uint32_t value) { return {.instruction = BPF_STMT(BPF_RET | BPF_K, value)}; }
FilterLine go_to(std::string_view target) {
  return {.instruction = BPF_STMT(kGoTo, 0), .if_true = target};
}
FilterLine jump(uint16_t comparison, uint32_t value, std::string_view if_true,
                std::string_view if_false) {
  const auto code = static_cast<uint16_t>(BPF_JMP | BPF_K | comparison);
  return {.instruction = BPF_STMT(code, value), .if_true = if_true, .if_false = if_false};
}

std::vector<sock_filter> assemble(const std::vector<FilterLine>& lines,
                                  const std::vector<sock_filter>& rest) {
  std::vector<FilterLine> program;
  std::map<std::string_view, size_t> places;
  for (const FilterLine& line : lines) {
    if (line.label.empty()) {
      program.push_back(line);
    } else if (!places.emplace(line.label, program.size()).second) {
      refuse(line.label, "stands twice");
    }
  }
  std::vector<sock_filter> result;
  for (const FilterLine& line : program) {
    // How many instructions the jump skips.
    const auto distance = [&](std::string_view target, size_t limit) -> size_t {
      if (target == kNext) return 0;
      const auto place = places.find(target);
      if (place == places.end()) refuse(target, "is missing");
      const size_t next = result.size() + 1;
      if (place->second < next) refuse(target, "is before a jump to it");
      if (place->second - next > limit) refuse(target, "is too far from a jump to it");
      if (place->second >= program.size() + rest.size()) refuse(target, "has no instruction");
      return place->second - next;
    };
    sock_filter one = line.instruction;
    if (one.code == kGoTo) {
      one.k = static_cast<uint32_t>(distance(line.if_true, BPF_MAXINSNS));
    } else {
      constexpr size_t kFurthest = std::numeric_limits<uint8_t>::max();
      one.jt = static_cast<uint8_t>(distance(line.if_true, kFurthest));
      one.jf = static_cast<uint8_t>(distance(line.if_false, kFurthest));
    }
    result.push_back(one);
  }
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

}  // namespace cudaguard::launcher
