// SPDX-License-Identifier: Apache-2.0
#include "shim/elf/objects.h"

#include "shim/elf/base_namespace.h"

namespace cudaguard {

void StartObjects::find() {
  if (last_.load(std::memory_order_acquire) != nullptr) return;
  const link_map* first = base_objects();
  const link_map* last = nullptr;
  bool guard = false;  // found
  for (const link_map* it = first; it != nullptr; it = it->l_next) {
    last = it;
    guard = guard || it->l_ld == _DYNAMIC;
    if (guard) continue;
    // libc comes before a guard that the program has loaded, with libraries that it may unload.
    const char* soname = elf_soname(it->l_ld, it->l_addr);
    if (soname != nullptr && elf_detail::same(soname, "libc.so.6")) break;
  }
  first_.store(first, std::memory_order_relaxed);
  // Another thread may have been faster, and may have loaded a library since.
  const link_map* none = nullptr;
  last_.compare_exchange_strong(none, last, std::memory_order_release);
}

void with_held_list(void (*function)(void*), void* data) {
  struct Call {
    void (*function)(void*);
    void* data;
  } call = {function, data};
  dl_iterate_phdr(
      [](dl_phdr_info*, size_t, void* given) {
        const auto& it = *static_cast<const Call*>(given);
        it.function(it.data);
        return 1;
      },
      &call);
}

}  // namespace cudaguard
