// SPDX-License-Identifier: Apache-2.0
#include "policy/device_list.h"

namespace cudaguard {

namespace {

using Why = ListError::Why;
using Kind = AllowEntry::Kind;
using Device = Machine::Device;

constexpr size_t kNowhere = SIZE_MAX;
constexpr char kGpuPrefix[] = "GPU-";
constexpr char kMigPrefix[] = "MIG-";

/// Old drivers write MIG-GPU-<uuid>/<instance>/<instance>.
constexpr bool is_uuid_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '/';
}

template <typename Wanted>
bool all_are(std::string_view text, Wanted wanted) {
  for (const char c : text) {
    if (!wanted(c)) return false;
  }
  return true;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

Why parse_entry(std::string_view text, AllowEntry& entry) {
  entry = {Kind::kIndex, 0, text};
  if (text.empty()) return Why::kEmptyEntry;
  if (all_are(text, is_digit)) {
    entry.index = number_of(text);
    return entry.index > kMostIndex ? Why::kNoSuchIndex : Why::kNone;
  }
  if (text.size() > 1 && text.front() == '-' && all_are(tail(text, 1), is_digit)) {
    return Why::kNegative;
  }
  if (text.starts_with(kGpuPrefix)) {
    entry.kind = Kind::kGpu;
  } else if (text.starts_with(kMigPrefix)) {
    entry.kind = Kind::kMig;
  } else {
    return Why::kNotUnderstood;
  }
  if (!all_are(text, is_uuid_char)) return Why::kNotUnderstood;
  // An error even on a machine with one GPU, because a second GPU would change what the list means.
  if (text.size() == sizeof kGpuPrefix - 1) return Why::kAmbiguousUuid;
  return text.size() < kMostUuid ? Why::kNone : Why::kUnknownUuid;
}

bool is_named_by(const Device& device, const AllowEntry& entry) {
  if (device.mig != (entry.kind == Kind::kMig)) return false;
  if (entry.kind != Kind::kIndex) return device.name().starts_with(entry.text);
  return device.gpu == entry.index && device.gpu != Machine::kUnknownGpu;
}

/// Finds the one device of the machine that `entry` names.
Why find_device(const AllowEntry& entry, const Machine& machine, size_t& found) {
  found = kNowhere;
  for (size_t i = 0; i < machine.count; ++i) {
    if (!is_named_by(machine.devices[i], entry)) continue;
    if (found != kNowhere) return Why::kAmbiguousUuid;
    found = i;
  }
  if (found != kNowhere) return Why::kNone;
  return entry.kind == Kind::kIndex ? Why::kNoSuchIndex : Why::kUnknownUuid;
}

/// True if both are the same device, or if one is a part of the other.
bool overlap(const Machine& machine, size_t a, size_t b) {
  const Device& first = machine.devices[a];
  const Device& second = machine.devices[b];
  return a == b || (first.mig != second.mig && first.gpu == second.gpu);
}

}  // namespace

std::string_view Machine::Device::name() const {
  size_t size = 0;
  while (size < kMostUuid && uuid[size] != '\0') ++size;
  return {uuid, size};
}

uint32_t number_of(std::string_view digits) {
  uint32_t number = 0;
  for (const char c : digits) {
    number = number * 10 + static_cast<uint32_t>(c - '0');
    if (number > kMostIndex) return kMostIndex + 1;
  }
  return number;
}

bool repeats(const AllowEntry& entry, const AllowEntry& earlier) {
  if (entry.kind != earlier.kind) return false;
  if (entry.kind == Kind::kIndex) return entry.index == earlier.index;
  return entry.text.starts_with(earlier.text) || earlier.text.starts_with(entry.text);
}

AllowList parse_allow_list(std::string_view text) {
  AllowList list;
  const std::string_view whole = without_blanks(text);
  list.none = whole.empty() || whole == "-1";
  if (list.none) return list;
  for (bool last = false; !last;) {
    const std::string_view written = without_blanks(take_entry(text, last));
    AllowEntry entry;
    Why why = list.count == kMostGpus ? Why::kTooMany : parse_entry(written, entry);
    for (size_t i = 0; i < list.count && why == Why::kNone; ++i) {
      if (repeats(entry, list.entries[i])) why = Why::kDuplicate;
    }
    if (why != Why::kNone) {
      list.error = {why, list.count + 1, written};
      break;
    }
    list.entries[list.count++] = entry;
  }
  return list;
}

ListError machine_from_list(const AllowList& list, Machine& machine) {
  machine.known = false;
  machine.count = 0;
  if (list.error.why != Why::kNone) return list.error;
  for (size_t i = 0; i < list.count; ++i) {
    const AllowEntry& entry = list.entries[i];
    Why why = Why::kNone;
    if (entry.kind != list.entries[0].kind) why = Why::kNeedsNvml;
    if (entry.kind == Kind::kIndex && entry.index >= Machine::kUnknownGpu) why = Why::kNoSuchIndex;
    if (why != Why::kNone) {
      machine.count = 0;
      return {why, i + 1, entry.text};
    }
    Device& device = machine.devices[machine.count++];
    const bool index = entry.kind == Kind::kIndex;
    device.gpu = index ? static_cast<uint16_t>(entry.index) : Machine::kUnknownGpu;
    device.mig = entry.kind == Kind::kMig;
    // parse_entry ensures that the text is shorter than the field.
    const std::string_view uuid = index ? std::string_view{} : head(entry.text, kMostUuid - 1);
    for (size_t at = 0; at < kMostUuid; ++at) device.uuid[at] = at < uuid.size() ? uuid[at] : '\0';
  }
  return {};
}

View resolve(const AllowList& list, const Machine& machine) {
  View view;
  view.error = list.error;
  if (view.error.why != Why::kNone) return view;
  for (size_t i = 0; i < list.count; ++i) {
    size_t found = kNowhere;
    Why why = find_device(list.entries[i], machine, found);
    for (size_t k = 0; k < i && why == Why::kNone; ++k) {
      if (overlap(machine, view.devices[k], found)) why = Why::kDuplicate;
    }
    if (why != Why::kNone) {
      view.error = {why, i + 1, list.entries[i].text};
      view.count = 0;
      return view;
    }
    view.devices[view.count++] = static_cast<uint16_t>(found);
  }
  return view;
}

}  // namespace cudaguard
