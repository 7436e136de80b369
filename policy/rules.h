// SPDX-License-Identifier: Apache-2.0
// What each policy does: one row. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

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
  kPass,        ///< it goes on as it is
  kNullDriver,  ///< our library that reports no device, in the real one's place
  kProxy,       ///< our library in front of the real one
  kRefuse,      ///< a name that cannot exist
};

/// Which of the guard's exports libraries that are loaded later may be bound to. Those of a library
/// that has variables of the same names, as loaders of the driver have, must not be.
enum class LaterExports : uint8_t {
  kAll,
  kRuntime,  ///< cudaSetDevice, …: the null drivers have all others
  kOwn,      ///< dlopen, cudaguard_touches, …
};

struct Rules {
  Policy policy;
  Action driver;       ///< on a request for the driver, or NVML
  Action refused;      ///< on one for a row of kRefusedLibraries
  Action under_list;   ///< the same under an allow-list, where the row says so
  LaterExports later;  ///< once the null drivers are loaded
  bool clamps;         ///< an index that is too high becomes the last valid one
};

inline constexpr Rules kRules[] = {
    {Policy::kForceCpu, Action::kNullDriver, Action::kRefuse, Action::kRefuse,
     LaterExports::kRuntime, false},
    {Policy::kValidate, Action::kProxy, Action::kPass, Action::kRefuse, LaterExports::kAll, false},
    {Policy::kClamp, Action::kProxy, Action::kPass, Action::kRefuse, LaterExports::kAll, true},
    {Policy::kOff, Action::kPass, Action::kPass, Action::kPass, LaterExports::kOwn, false},
};
constexpr const Rules& rules_of(Policy policy) { return kRules[static_cast<size_t>(policy)]; }
static_assert(rules_of(Policy::kForceCpu).policy == Policy::kForceCpu);
static_assert(rules_of(Policy::kValidate).policy == Policy::kValidate);
static_assert(rules_of(Policy::kClamp).policy == Policy::kClamp);
static_assert(rules_of(Policy::kOff).policy == Policy::kOff);

/// May a program enter the driver, with us in front?
constexpr bool lets_through(Policy policy) { return rules_of(policy).driver == Action::kProxy; }

/// Does this export of the guard leave later look-ups? "cuInit" and "nvmlInit" are the driver's,
/// "cudaSetDevice" is the runtime's, "cudaguard_touches" and "dlopen" are the guard's own.
constexpr bool leaves_later_lookups(Policy policy, std::string_view name) {
  if (name.starts_with("cudaguard_")) return false;
  const LaterExports later = rules_of(policy).later;
  if (name.starts_with("cuda")) return later == LaterExports::kOwn;
  return (name.starts_with("cu") || name.starts_with("nvml")) && later != LaterExports::kAll;
}

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
