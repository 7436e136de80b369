// SPDX-License-Identifier: Apache-2.0
// What each policy does: one row. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Policy : uint8_t {
  kForceCpu,  ///< there is no CUDA device; the driver is never entered
  kValidate,  ///< CUDA, inside the allow-list; a bad device index is explained
  kClamp,     ///< the same; an index that is too high becomes the last valid one
  kOff,       ///< the guard does nothing
};

/// What becomes of a request for a library.
enum class Action : uint8_t {
  kPass,       ///< it goes on as it is
  kStandin,    ///< our library that reports no device, in the real one's place
  kCompanion,  ///< our library in front of the real one
  kRefuse,     ///< a name that cannot exist
};

struct Rules {
  uint8_t freedom;    ///< a forked child may have as much as its parent: 0 is the strictest
  Action driver;      ///< on a request for the driver, or NVML
  Action refused;     ///< on one for a row of kRefusedLibraries
  Action under_list;  ///< the same under an allow-list, where the row says so
  bool clamps;        ///< an index that is too high becomes the last valid one
};

/// In the order of Policy.
inline constexpr Rules kRules[] = {
    {0, Action::kStandin, Action::kRefuse, Action::kRefuse, false},
    {1, Action::kCompanion, Action::kPass, Action::kRefuse, false},
    {1, Action::kCompanion, Action::kPass, Action::kRefuse, true},
    {2, Action::kPass, Action::kPass, Action::kPass, false},
};
constexpr const Rules& rules_of(Policy policy) { return kRules[static_cast<size_t>(policy)]; }

/// May a program enter the driver, with us in front?
constexpr bool lets_through(Policy policy) { return rules_of(policy).driver == Action::kCompanion; }

/// `list`: there is an allow-list.
constexpr Action action_for(Policy policy, bool list, const LibraryRequest& request) {
  const Rules& rules = rules_of(policy);
  if (const RefusedLibrary* row = request.refused; row != nullptr) {
    return list && row->under_list ? rules.under_list : rules.refused;
  }
  const bool driver = request.library == Library::kDriver || request.library == Library::kNvml;
  return driver ? rules.driver : Action::kPass;
}

/// The device index to use where a program asks for `asked` and `count` devices are visible; 0: it
/// is not known how many. A negative one is never another: -1 means "none" to those who write it.
constexpr int index_to_use(Policy policy, int asked, int count) {
  return rules_of(policy).clamps && count > 0 && asked >= count ? count - 1 : asked;
}

}  // namespace cudaguard
