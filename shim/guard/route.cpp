// SPDX-License-Identifier: Apache-2.0
// Where a dlopen goes. Called by the thunks on every request, so the way of a request that is not
// ours is a few loads and compares: no lock, no allocation, no system call.
#include "policy/library.h"
#include "shim/guard/loader.h"
#include "shim/guard/process.h"
#include "shim/guard/record.h"
#include "shim/guard/standins.h"

namespace cudaguard {

namespace {

/// The loaded stand-in's own name, or one that cannot exist.
const char* standin_name(StandinKind kind, const char* never) {
  const Standin it = standin(kind);
  if (it.path != nullptr) return it.path;
  say_missing(kind);
  return never;
}

[[gnu::cold, gnu::noinline]] const char* choose_ours(Process& here, const char* name,
                                                     const void* caller);

[[gnu::always_inline]] inline const char* choose_name(const char* name, const void* caller) {
  Process& here = process();
  if (here.config.policy == Policy::kOff) return name;
  // Before the first request of any kind goes on: what it loads may be linked to the driver.
  if (!standins_tried()) [[unlikely]] {
    standin(StandinKind::kDriver);
  }
  if (name == nullptr || !may_be_ours(name)) [[likely]] {
    return name;
  }
  return choose_ours(here, name, caller);
}

const char* choose_ours(Process& here, const char* name, const void* caller) {
  const LibraryRequest request = classify(name);
  switch (request.library) {
    case Library::kDriver:
      return standin_name(StandinKind::kDriver, kNoDriver.data());
    case Library::kNvml:
      return standin_name(StandinKind::kNvml, kNoNvml.data());
    case Library::kRefused:
      record_touch(here, request.refused->name.data(), name, caller);
      return request.refused->never.data();
    default:
      return name;
  }
}

}  // namespace
}  // namespace cudaguard

extern "C" {

/// Two registers: the name to ask for and the function to jump to (null: answer null).
struct Route {
  const char* name;
  const void* target;
};

Route cudaguard_route_dlopen(const char* name, const void* caller) {
  const auto next = reinterpret_cast<const void*>(cudaguard::loader().next_dlopen);
  return {cudaguard::choose_name(name, caller), next};
}

Route cudaguard_route_dlmopen(const char* name, const void* caller) {
  const auto next = reinterpret_cast<const void*>(cudaguard::loader().next_dlmopen);
  return {cudaguard::choose_name(name, caller), next};
}
}
