// SPDX-License-Identifier: Apache-2.0
#include "shim/hook/dlopen_recursion.h"

#include "shim/elf/object.h"
#include "shim/elf/reference.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/state/inherited.h"

namespace cudaguard {

namespace {

/// The search for another hook of the same function that comes after ours and looks up symbols by
/// version.
struct NextHook {
  const char* function;
  const void* caller;
  bool passed_us = false;
  bool found = false;
  bool calls = false;  // this hook is the caller
  unsigned long long loaded = 0;
};

[[gnu::cold]] int find_hook(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& look = *static_cast<NextHook*>(data);
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  if (holds(*object, &inherited)) {
    look.passed_us = true;
  } else if (look.passed_us && elf_symbol(dynamic, object->dlpi_addr, look.function) != nullptr) {
    look.found = version_of_reference(dynamic, object->dlpi_addr, "dlvsym") != nullptr;
    look.calls = holds(*object, look.caller);
    look.loaded = object->dlpi_adds;
  }
  return static_cast<int>(look.found);
}

}  // namespace

bool is_recursive_dlopen(const char* function, const char* name, const void* caller) {
  constexpr uint32_t kMany = 16;
  NextHook look = {.function = function, .caller = caller};
  dl_iterate_phdr(find_hook, &look);
  if (!look.found || look.calls) return look.calls;
  const uintptr_t request =
      reinterpret_cast<uintptr_t>(caller) ^ reinterpret_cast<uintptr_t>(name) ^ look.loaded;
  if (inherited.last_request.exchange(request, std::memory_order_relaxed) != request) {
    inherited.rounds.store(0, std::memory_order_relaxed);
  }
  return inherited.rounds.fetch_add(1, std::memory_order_relaxed) % kMany == kMany - 1;
}

}  // namespace cudaguard
