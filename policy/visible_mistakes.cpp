// SPDX-License-Identifier: Apache-2.0
#include "policy/visible_mistakes.h"

namespace cudaguard {

namespace {

using Why = VisibleMistake::Why;

constexpr std::string_view kPrefixes[] = {"GPU-", "MIG-"};

constexpr bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_leading_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return text;
}

bool is_uuid(std::string_view text) {
  return text.starts_with(kPrefixes[0]) || text.starts_with(kPrefixes[1]);
}

size_t count_entries(std::string_view text) {
  size_t count = 1;
  for (const char c : text) {
    if (c == ',') ++count;
  }
  return count;
}

/// One entry, as CUDA reads it.
struct Reading {
  bool ends = false;
  bool odd = false;
  Why why = Why::kBlank;     ///< where it ends the list, or is odd
  uint32_t number = 0;       ///< else: the device's index...
  std::string_view uuid;     ///< ...or the beginning of its UUID
  size_t device = SIZE_MAX;  ///< position in the view, if that is known
};

Reading ended(Why why) {
  Reading reading;
  reading.ends = true;
  reading.why = why;
  return reading;
}

Reading read_number(std::string_view entry, bool first, const View* view) {
  std::string_view rest = without_leading_blanks(entry);
  if (rest.empty()) return ended(Why::kEmptyEntry);
  // The first entry decides the kind; it is not of another.
  if (is_uuid(rest)) return ended(first ? Why::kBlankAtUuid : Why::kMixed);
  Reading reading;
  reading.odd = rest.size() != entry.size();
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  size_t digits = 0;
  for (; digits < rest.size() && is_digit(rest[digits]); ++digits) {
    if (reading.number <= kMostIndex) {
      reading.number = reading.number * 10 + static_cast<uint32_t>(rest[digits] - '0');
    }
  }
  if (digits == 0) return ended(Why::kNotUnderstood);
  if (negative && reading.number != 0) return ended(Why::kNegative);
  if (view != nullptr && reading.number >= view->count) return ended(Why::kNoSuchIndex);
  reading.device = reading.number;
  rest.remove_prefix(digits);
  if (!without_leading_blanks(rest).empty()) {
    reading.odd = true;
    reading.why = Why::kReadInPart;
  } else if (!rest.empty()) {
    reading.odd = true;
  }
  return reading;
}

Reading read_uuid(std::string_view entry, std::string_view prefix, const View* view,
                  const Machine* machine) {
  if (!entry.starts_with(prefix)) {
    const std::string_view rest = without_leading_blanks(entry);
    if (rest.empty()) return ended(Why::kEmptyEntry);
    if (rest.starts_with(prefix)) return ended(Why::kBlankAtUuid);
    const bool other_kind = is_uuid(rest) || is_digit(rest.front());
    return ended(other_kind ? Why::kMixed : Why::kNotUnderstood);
  }
  for (const char c : entry) {
    if (is_blank(c)) return ended(Why::kBlankAtUuid);
  }
  Reading reading;
  reading.uuid = entry;
  if (view == nullptr || machine == nullptr) return reading;
  for (size_t i = 0; i < view->count; ++i) {
    const std::string_view uuid = machine->devices[view->devices[i]].uuid;
    if (!uuid.starts_with(entry)) continue;
    if (reading.device != SIZE_MAX) return ended(Why::kAmbiguousUuid);
    reading.device = i;
  }
  return reading.device == SIZE_MAX ? ended(Why::kUnknownUuid) : reading;
}

bool is_same(const Reading& a, const Reading& b) {
  if (a.device != SIZE_MAX) return a.device == b.device;
  return a.uuid == b.uuid;
}

void add(VisibleMistakes& mistakes, Why why, size_t position, std::string_view entry) {
  VisibleMistake& mistake = mistakes.items[mistakes.count++];
  mistake.why = why;
  mistake.position = position;
  mistake.entry = entry;
}

}  // namespace

VisibleMistakes find_visible_mistakes(std::string_view text, const View* view,
                                      const Machine* machine) {
  VisibleMistakes mistakes;
  mistakes.entries = text.empty() ? 0 : count_entries(text);
  for (const std::string_view none : {"", "-1", "none", "NoDevFiles"}) {
    if (text == none) return mistakes;
  }
  const std::string_view prefix = text.starts_with(kPrefixes[1]) ? kPrefixes[1] : kPrefixes[0];
  const bool numbers = !text.starts_with(prefix);
  Reading seen[kMostGpus];
  bool odd = false;
  for (size_t position = 1; position <= mistakes.entries; ++position) {
    const std::string_view entry = head(text, text.find(','));
    text = tail(text, entry.size() + 1);
    const Reading reading =
        numbers ? read_number(entry, position == 1, view) : read_uuid(entry, prefix, view, machine);
    const bool last = position == mistakes.entries;
    if (reading.ends) {
      const bool hides = !last || position == 1;
      const bool meant = reading.why == Why::kNegative || reading.why == Why::kEmptyEntry;
      if (hides || !meant) add(mistakes, reading.why, position, entry);
      return mistakes;
    }
    for (size_t i = 0; i < mistakes.shown; ++i) {
      if (!is_same(seen[i], reading)) continue;
      mistakes.shown = 0;
      add(mistakes, Why::kDuplicate, position, entry);
      return mistakes;
    }
    if (reading.odd && !odd) add(mistakes, reading.why, position, entry);
    odd = odd || reading.odd;
    if (mistakes.shown == kMostGpus) return mistakes;
    seen[mistakes.shown++] = reading;
  }
  return mistakes;
}

}  // namespace cudaguard
