// SPDX-License-Identifier: Apache-2.0
// Selects GPUs among the allowed ones by a program's own CUDA_VISIBLE_DEVICES, read as CUDA reads
// it. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/device_list.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// View indices, in the program's order.
struct Selection {
  uint32_t view[kMostGpus];
  size_t count = 0;
  bool numbers = false;  ///< the list consists of indices
};

/// Applies CUDA's own rules within the view; null means unset and selects the whole view. The first
/// invalid entry ends the list. A repeated device empties it. Numbers are read as by strtol, so
/// " +1gpu2" is 1. The first entry decides whether the list is of numbers, GPU- or MIG-. Without a
/// view the devices are not known, so any index and any UUID is accepted.
Selection select(const char* visible_devices, const View* view, const Machine* machine);

/// Writes the list for the driver: full UUIDs (indices if UUIDs are not known), comma separated;
/// "-1" for none. Returns false if the list does not fit or cannot be expressed; the output must
/// not be used then.
bool write_driver_list(Text& out, const Selection& selection, const View& view,
                       const Machine& machine);

/// The identity of one of a program's devices.
struct VisibleDevice {
  int16_t physical = 0;  ///< the machine's index; -1: not known
  int16_t written = 0;   ///< the view's index, by which the program's own list names it
};
VisibleDevice visible_device(size_t position, const Selection& selection, const View& view,
                             const Machine& machine);

/// Returns the index that the program should have used instead of `asked`, which does not exist. It
/// is that of the one device whose physical index is `asked`, or that the program's list names by
/// `asked`. Returns -1 if there is none, or if there are several.
int did_you_mean(int asked, const VisibleDevice* devices, size_t count);

}  // namespace cudaguard
