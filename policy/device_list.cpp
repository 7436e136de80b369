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

constexpr bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
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

/// The entries of a comma-separated text. An empty text has one empty entry, as "," has two.
class Entries {
 public:
  explicit Entries(std::string_view text) : rest_(text) {}

  bool next(std::string_view& entry) {
    if (done_) return false;
    const size_t comma = rest_.find(',');
    done_ = comma == std::string_view::npos;
    entry = head(rest_, comma);
    rest_ = tail(rest_, done_ ? rest_.size() : comma + 1);
    return true;
  }

 private:
  std::string_view rest_;
  bool done_ = false;
};

/// The number that `digits` (digits only) write, or kMostIndex + 1 for any larger than kMostIndex.
uint32_t number_of(std::string_view digits) {
  uint32_t number = 0;
  for (const char c : digits) {
    number = number * 10 + static_cast<uint32_t>(c - '0');
    if (number > kMostIndex) return kMostIndex + 1;
  }
  return number;
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
  // Even on a machine with one GPU: the list would mean another one after the next is built in.
  if (text.size() == sizeof kGpuPrefix - 1) return Why::kAmbiguousUuid;
  return text.size() < kMostUuid ? Why::kNone : Why::kUnknownUuid;
}

/// The characters in front of the zero byte; the whole field if there is none.
std::string_view uuid_of(const Device& device) {
  size_t size = 0;
  while (size < kMostUuid && device.uuid[size] != '\0') ++size;
  return {device.uuid, size};
}

bool is_named_by(const Device& device, const AllowEntry& entry) {
  if (device.mig != (entry.kind == Kind::kMig)) return false;
  if (entry.kind != Kind::kIndex) return uuid_of(device).starts_with(entry.text);
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

/// The same device, or a GPU and a part of it.
bool overlap(const Machine& machine, size_t a, size_t b) {
  const Device& first = machine.devices[a];
  const Device& second = machine.devices[b];
  return a == b || (first.mig != second.mig && first.gpu == second.gpu);
}

const Device& device_of(size_t view_index, const View& view, const Machine& machine) {
  return machine.devices[view.devices[view_index]];
}

/// As strtol(text, &end, 10), for what CUDA does with it: the view index, or kNowhere.
size_t view_index_of_number(std::string_view text, const View& view) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  size_t digits = 0;
  while (digits < text.size() && is_digit(text[digits])) ++digits;
  if (digits == 0) return kNowhere;
  const uint32_t number = number_of(head(text, digits));
  return number < view.count && (!negative || number == 0) ? number : kNowhere;
}

/// `text` begins with GPU- or MIG-, as only UUIDs of that kind do.
size_t view_index_of_uuid(std::string_view text, const View& view, const Machine& machine) {
  size_t found = kNowhere;
  for (size_t i = 0; i < view.count; ++i) {
    const std::string_view uuid = uuid_of(device_of(i, view, machine));
    if (uuid.empty()) continue;
    // Without NVML the allow-list's own text stands for the UUID, and may be the shorter one.
    const bool longer = !machine.known && text.starts_with(uuid);
    if (!longer && !uuid.starts_with(text)) continue;
    if (found != kNowhere) return kNowhere;
    found = i;
  }
  return found;
}

bool is_selected(const Selection& selection, size_t view_index) {
  for (size_t i = 0; i < selection.count; ++i) {
    if (selection.view[i] == view_index) return true;
  }
  return false;
}

}  // namespace

AllowList parse_allow_list(std::string_view text) {
  AllowList list;
  const std::string_view whole = without_blanks(text);
  list.none = whole.empty() || whole == "-1";
  if (list.none) return list;
  Entries entries(text);
  std::string_view written;
  while (entries.next(written)) {
    written = without_blanks(written);
    AllowEntry entry;
    const Why why = list.count == kMostGpus ? Why::kTooMany : parse_entry(written, entry);
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
    for (size_t k = 0; k < i && why == Why::kNone; ++k) {
      const AllowEntry& earlier = list.entries[k];
      const bool same = entry.kind == Kind::kIndex ? entry.index == earlier.index
                                                   : entry.text.starts_with(earlier.text) ||
                                                         earlier.text.starts_with(entry.text);
      if (same) why = Why::kDuplicate;
    }
    if (why != Why::kNone) {
      machine.count = 0;
      return {why, i + 1, entry.text};
    }
    Device& device = machine.devices[machine.count++];
    const bool index = entry.kind == Kind::kIndex;
    device.gpu = index ? static_cast<uint16_t>(entry.index) : Machine::kUnknownGpu;
    device.mig = entry.kind == Kind::kMig;
    // parse_entry has seen to it that the text is shorter than the field.
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

Selection select(const char* visible_devices, const View& view, const Machine& machine) {
  Selection selection;
  if (visible_devices == nullptr) {
    for (; selection.count < view.count; ++selection.count) {
      selection.view[selection.count] = static_cast<uint16_t>(selection.count);
    }
    return selection;
  }
  const std::string_view text = visible_devices;
  const std::string_view prefix = text.starts_with(kMigPrefix) ? kMigPrefix : kGpuPrefix;
  const bool numbers = !text.starts_with(prefix);
  Entries entries(text);
  std::string_view entry;
  while (entries.next(entry)) {
    size_t index = kNowhere;
    if (numbers) {
      index = view_index_of_number(entry, view);
    } else if (entry.starts_with(prefix)) {
      index = view_index_of_uuid(entry, view, machine);
    }
    if (index == kNowhere) break;
    if (is_selected(selection, index)) {
      selection.count = 0;
      break;
    }
    // No overflow: at most view.count different ones.
    selection.view[selection.count++] = static_cast<uint16_t>(index);
  }
  return selection;
}

bool write_driver_list(Text& out, const Selection& selection, const View& view,
                       const Machine& machine) {
  // One kind for all: the driver stops at the first entry that is not of the first one's kind.
  bool indices = false;
  for (size_t i = 0; i < selection.count; ++i) {
    if (device_of(selection.view[i], view, machine).uuid[0] == '\0') indices = true;
  }
  if (selection.count == 0) out.put("-1");
  for (size_t i = 0; i < selection.count; ++i) {
    const Device& device = device_of(selection.view[i], view, machine);
    if (i > 0) out.put(",");
    if (!indices) {
      out.put(uuid_of(device));
    } else if (!device.mig && device.gpu != Machine::kUnknownGpu) {
      out.put_decimal(device.gpu);
    } else {
      return false;
    }
  }
  return !out.cut();
}

VisibleDevice visible_device(size_t position, const Selection& selection, const View& view,
                             const Machine& machine) {
  const uint16_t view_index = selection.view[position];
  const Device& device = device_of(view_index, view, machine);
  const bool known = device.gpu != Machine::kUnknownGpu;
  return {.physical = known ? static_cast<int16_t>(device.gpu) : int16_t{-1},
          .written = static_cast<int16_t>(view_index)};
}

int did_you_mean(int asked, const VisibleDevice* devices, size_t count) {
  int meant = -1;
  for (size_t i = 0; asked >= 0 && i < count; ++i) {
    if (devices[i].physical != asked && devices[i].written != asked) continue;
    if (meant >= 0) return -1;
    meant = static_cast<int>(i);
  }
  return meant;
}

}  // namespace cudaguard
