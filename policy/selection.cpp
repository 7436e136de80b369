// SPDX-License-Identifier: Apache-2.0
#include "policy/selection.h"

namespace cudaguard {

namespace {

using Device = Machine::Device;

constexpr char kGpuPrefix[] = "GPU-";
constexpr char kMigPrefix[] = "MIG-";

/// One entry, as CUDA reads it.
struct Reading {
  bool ends_list = true;
  /// A view index. For a UUID without a view: the position in the list of the first equal entry.
  size_t device = 0;
};

const Device& device_of(size_t view_index, const View& view, const Machine& machine) {
  return machine.devices[view.devices[view_index]];
}

std::string_view without_leading_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return text;
}

bool is_uuid(std::string_view text) {
  return text.starts_with(kGpuPrefix) || text.starts_with(kMigPrefix);
}

/// Reads a number as strtol(entry, &end, 10) does, as far as CUDA uses it.
Reading read_number(std::string_view entry, const View* view) {
  std::string_view rest = without_leading_blanks(entry);
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  size_t digits = 0;
  while (digits < rest.size() && is_digit(rest[digits])) ++digits;
  if (digits == 0) return {};
  const uint32_t number = number_of(head(rest, digits));
  if (negative && number != 0) return {};
  if (view != nullptr && number >= view->count) return {};
  return {false, number};
}

Reading read_uuid(std::string_view entry, std::string_view list, const View* view,
                  const Machine* machine) {
  const std::string_view prefix = head(list, sizeof kGpuPrefix - 1);
  if (!entry.starts_with(prefix)) return {};
  for (const char c : entry) {
    if (is_blank(c)) return {};
  }
  if (view == nullptr) return {false, place_of_entry(list, entry)};
  Reading found;
  for (size_t i = 0; i < view->count; ++i) {
    const std::string_view uuid = device_of(i, *view, *machine).name();
    if (uuid.empty()) continue;
    // Without NVML the allow-list's own text replaces the UUID, and may be shorter than the entry.
    const bool longer = !machine->known && entry.starts_with(uuid);
    if (!longer && !uuid.starts_with(entry)) continue;
    if (!found.ends_list) return {};  // ambiguous
    found = {false, i};
  }
  return found;
}

bool is_selected(const Selection& selection, size_t device) {
  for (size_t i = 0; i < selection.count; ++i) {
    if (selection.view[i] == device) return true;
  }
  return false;
}

bool wants_none(std::string_view text) {
  return text.empty() || text == "-1" || text == "none" || text == "NoDevFiles";
}

}  // namespace

Selection select(const char* visible_devices, const View* view, const Machine* machine) {
  Selection selection;
  if (visible_devices == nullptr) {
    for (; view != nullptr && selection.count < view->count; ++selection.count) {
      selection.view[selection.count] = static_cast<uint32_t>(selection.count);
    }
    return selection;
  }
  const std::string_view text = visible_devices;
  if (wants_none(text)) return selection;
  selection.numbers = !is_uuid(text);
  std::string_view rest = text;
  bool last = false;
  while (!last) {
    const std::string_view entry = take_entry(rest, last);
    const Reading reading =
        selection.numbers ? read_number(entry, view) : read_uuid(entry, text, view, machine);
    if (reading.ends_list) break;
    if (is_selected(selection, reading.device)) {
      selection.count = 0;
      break;
    }
    if (selection.count == kMostGpus) break;  // more devices than any view has
    selection.view[selection.count++] = static_cast<uint32_t>(reading.device);
  }
  return selection;
}

bool write_driver_list(Text& out, const Selection& selection, const View& view,
                       const Machine& machine) {
  // All entries are of one kind, because the driver stops at the first entry of another kind.
  bool indices = false;
  for (size_t i = 0; i < selection.count; ++i) {
    if (device_of(selection.view[i], view, machine).uuid[0] == '\0') indices = true;
  }
  if (selection.count == 0) out.put("-1");
  for (size_t i = 0; i < selection.count; ++i) {
    const Device& device = device_of(selection.view[i], view, machine);
    if (i > 0) out.put(",");
    if (!indices) {
      out.put(device.name());
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
  const uint32_t view_index = selection.view[position];
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
