// SPDX-License-Identifier: Apache-2.0
// The hook of dlclose. ld.so unloads the driver and NVML when the program closes them, but our
// libraries for them always stay. So the guard counts the program's handles itself, and answers as
// ld.so would: a dlclose too many fails, and RTLD_NOLOAD finds no library that is closed.
#include <link.h>

#include "shim/guard/state/inherited.h"

namespace cudaguard {
namespace {

/// Returns 0 for our library in place of the driver, 1 for NVML's, -1 for others.
int which_is(const void* handle) {
  for (int which = 0; which < 2; ++which) {
    for (const SharedOwnLibrary* ours :
         {&inherited.hook.null_drivers[which], &inherited.proxy_loader.proxies[which]}) {
      const void* map = ours->link_map.load(std::memory_order_relaxed);
      if (map != nullptr && map == handle) return which;
    }
  }
  return -1;
}

/// Returns false if the program has no handle left.
bool take_handle(int which) {
  uint32_t left = inherited.hook.handles[which].load(std::memory_order_relaxed);
  while (left != 0) {
    if ((left & HookInherited::kKept) != 0) return true;
    if (inherited.hook.handles[which].compare_exchange_weak(left, left - 1)) return true;
  }
  return false;
}

/// Leaves a dlerror that begins with the library's path, as ld.so's own does. Only ld.so can leave
/// one, so the text is that of a name which no library defines.
[[gnu::cold, gnu::noinline]] int fail_to_close(const Loader& libc, void* handle) {
  if (libc.dlsym != nullptr) libc.dlsym(handle, "shared object not open");
  return -1;
}

[[gnu::noinline]] int close_library(void* handle) {
  const Loader& libc = loader();
  const int which = which_is(handle);
  if (which >= 0 && !take_handle(which) &&
      inherited.hook.had_handle[which].load(std::memory_order_relaxed)) {
    return fail_to_close(libc, handle);
  }
  return libc.next_dlclose != nullptr ? libc.next_dlclose(handle) : -1;
}

}  // namespace
}  // namespace cudaguard

extern "C" [[gnu::visibility("default")]] int dlclose(void* handle) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  inherited.hook.closes.fetch_add(1, std::memory_order_relaxed);
  auto* const next = inherited.loader.next_dlclose.get();
  // Programs that have no handle of ours open and close libraries in loops, too.
  const bool is_nobodys_business = next != nullptr &&
                                   !inherited.hook.had_handle[0].load(std::memory_order_relaxed) &&
                                   !inherited.hook.had_handle[1].load(std::memory_order_relaxed);
  const int result = is_nobodys_business ? next(handle) : close_library(handle);
  // What the library's destructors have called must not be taken for what comes to its addresses,
  // and no answer may lead to a library that is gone.
  inherited.hook.closes.fetch_add(1, std::memory_order_relaxed);
  inherited.hook.answers_age.fetch_add(HookInherited::kOneAge, std::memory_order_release);
  return result;
}
