// SPDX-License-Identifier: Apache-2.0
// What each policy does: one row. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Policy : uint8_t {
  kForceCpu,   ///< there is no CUDA device; the driver is never entered
  kValidate,   ///< CUDA within the allow-list; a bad device index is explained
  kClamp,      ///< as kValidate; an index that is too high becomes the last valid one
  kNoContext,  ///< as kValidate, but only for queries: a context is refused
  kOff,        ///< the guard does nothing
};

/// What the guard does with a request for a library.
enum class Action : uint8_t {
  kPass,        ///< passes it on unchanged
  kNullDriver,  ///< loads our library that reports no device instead of the real one
  kProxy,       ///< loads our library, which calls the real one
  kRefuse,      ///< requests a name that cannot exist
  kNotLoaded,   ///< answers null without an error, as ld.so does for a library that is not loaded
};

/// The exports of the guard to which ld.so may bind libraries that are loaded later. A library that
/// has variables of the same names, as loaders of the driver do, must not be bound to them.
enum class LaterExports : uint8_t {
  kAll,
  kRuntime,  ///< cudaSetDevice, …: the null drivers have all other names
  kOwn,      ///< dlopen, cudaguard_attempts, …
};

struct PolicyRow {
  Policy policy;
  Action driver;       ///< for a request for the driver or NVML
  Action refused;      ///< for one in kRefusedLibraries
  Action no_proxy;     ///< for such a one that has no proxy, if a proxy enforces something
  LaterExports later;  ///< once the null drivers are loaded
  bool clamps;         ///< an index that is too high becomes the last valid one
  bool contexts;       ///< a program may make a context
};

inline constexpr PolicyRow kPolicies[] = {
    {Policy::kForceCpu, Action::kNullDriver, Action::kRefuse, Action::kRefuse,
     LaterExports::kRuntime, false, false},
    {Policy::kValidate, Action::kProxy, Action::kPass, Action::kRefuse, LaterExports::kAll, false,
     true},
    {Policy::kClamp, Action::kProxy, Action::kPass, Action::kRefuse, LaterExports::kAll, true,
     true},
    {Policy::kNoContext, Action::kProxy, Action::kPass, Action::kRefuse, LaterExports::kAll, false,
     false},
    {Policy::kOff, Action::kPass, Action::kPass, Action::kPass, LaterExports::kOwn, false, true},
};
constexpr const PolicyRow& row_of(Policy policy) { return kPolicies[static_cast<size_t>(policy)]; }
static_assert(row_of(Policy::kForceCpu).policy == Policy::kForceCpu);
static_assert(row_of(Policy::kValidate).policy == Policy::kValidate);
static_assert(row_of(Policy::kClamp).policy == Policy::kClamp);
static_assert(row_of(Policy::kNoContext).policy == Policy::kNoContext);
static_assert(row_of(Policy::kOff).policy == Policy::kOff);

/// The policy's word in CUDAGUARD_POLICY.
std::string_view name_of(Policy policy);

/// True if a program may enter the driver through our proxy.
constexpr bool allows_cuda(Policy policy) { return row_of(policy).driver == Action::kProxy; }

/// True if a program may enter the driver, but make no context.
constexpr bool refuses_contexts(Policy policy) {
  return allows_cuda(policy) && !row_of(policy).contexts;
}

/// True if later look-ups must not find this export of the guard. "cuInit" and "nvmlInit" are the
/// driver's, "cudaSetDevice" is the runtime's, "cudaguard_attempts" and "dlopen" are the guard's
/// own. The name is read no further than it decides, because this is asked some hundred times
/// before a program's first dlopen goes on.
constexpr bool leaves_later_lookups(Policy policy, const char* name) {
  const auto starts_with = [name](const char* prefix) {
    const char* rest = name;
    while (*prefix != '\0' && *rest == *prefix) {
      ++rest;
      ++prefix;
    }
    return *prefix == '\0';
  };
  if (starts_with("cudaguard_")) return false;
  const LaterExports later = row_of(policy).later;
  if (starts_with("cuda")) return later == LaterExports::kOwn;
  return (starts_with("cu") || starts_with("nvml")) && later != LaterExports::kAll;
}

/// `list`: whether there is an allow-list.
constexpr Action action_for(Policy policy, bool list, const LibraryRequest& request) {
  const PolicyRow& row = row_of(policy);
  if (const RefusedLibrary* library = request.refused; library != nullptr) {
    const bool enforces = list || !row.contexts;
    return enforces && library->no_proxy ? row.no_proxy : row.refused;
  }
  const bool driver = request.library == Library::kDriver || request.library == Library::kNvml;
  return driver ? row.driver : Action::kPass;
}

/// Returns the device index to use if a program asks for `asked` and `count` devices are visible
/// (0: not known). A negative index stays as it is, because -1 means "none" to programs that pass
/// it.
constexpr int index_to_use(Policy policy, int asked, int count) {
  return row_of(policy).clamps && count > 0 && asked >= count ? count - 1 : asked;
}

}  // namespace cudaguard
