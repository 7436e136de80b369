// SPDX-License-Identifier: Apache-2.0
// What somebody who wrote CUDA_VISIBLE_DEVICES will not have meant. CUDA itself says nothing: it
// shows fewer devices (select in device_list.h). Pure; thread-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/device_list.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct VisibleMistake {
  enum class Why : uint8_t {
    // These end the list:
    kDuplicate,  ///< and empty it
    kNegative,
    kNoSuchIndex,
    kEmptyEntry,
    kNotUnderstood,
    kMixed,        ///< not of the first entry's kind: a number, GPU- or MIG-
    kBlankAtUuid,  ///< CUDA passes over blanks in front of numbers only
    kUnknownUuid,
    kAmbiguousUuid,
    // These do not:
    kBlank,       ///< CUDA passes over it, as not every reader of the variable does
    kReadInPart,  ///< "0;1", "1 2": CUDA reads the number in front
  };
  Why why = Why::kBlank;
  size_t position = 0;     ///< 1-based
  std::string_view entry;  ///< as written
};

struct VisibleMistakes {
  VisibleMistake items[2];  ///< the first that ends the list, the first that does not
  size_t count = 0;
  size_t entries = 0;  ///< as written
  size_t shown = 0;    ///< how many devices CUDA shows; without a machine: at most
};

/// `view` and `machine`: as for select; null: the machine's devices are not known. What hides
/// nothing that is written is no mistake ("0,1,-1"), nor is what says that no device is wanted: "",
/// "-1", "none", "NoDevFiles".
VisibleMistakes find_visible_mistakes(std::string_view text, const View* view,
                                      const Machine* machine);

}  // namespace cudaguard
