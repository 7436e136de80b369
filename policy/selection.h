// SPDX-License-Identifier: Apache-2.0
// What a program's own CUDA_VISIBLE_DEVICES selects among the allowed GPUs, read as CUDA reads it.
// Pure; thread-safe, async-signal-safe, allocation-free.
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
  bool numbers = false;  ///< the list is of indices
};

/// By CUDA's own rules, read inside the view; null: unset, which is all of it. The first invalid
/// entry ends the list; a repeated device empties it; numbers are read as strtol does (" +1gpu2" is
/// 1); the first entry decides whether the list is of numbers, GPU- or MIG-. Without a view it is
/// not known which devices there are: any index and any UUID is taken for one.
Selection select(const char* visible_devices, const View* view, const Machine* machine);

/// What the driver is told: full UUIDs (indices where those are not known), comma separated; "-1"
/// for none. False: it does not fit, or cannot be said; what was written must not be used.
bool write_driver_list(Text& out, const Selection& selection, const View& view,
                       const Machine& machine);

/// What one of a program's devices is.
struct VisibleDevice {
  int16_t physical = 0;  ///< the machine's index; -1: not known
  int16_t written = 0;   ///< the view's index, by which the program's own list names it
};
VisibleDevice visible_device(size_t position, const Selection& selection, const View& view,
                             const Machine& machine);

/// The program asked for device `asked` and there is none. The index that it should have asked for:
/// of the one device whose physical index that is, or that it named by that index itself. -1: there
/// is none, or several.
int did_you_mean(int asked, const VisibleDevice* devices, size_t count);

}  // namespace cudaguard
