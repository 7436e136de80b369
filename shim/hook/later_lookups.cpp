// SPDX-License-Identifier: Apache-2.0
#include "shim/hook/later_lookups.h"

#include "policy/library.h"
#include "shim/elf/object.h"
#include "shim/elf/own_symbols.h"
#include "shim/elf/symbol_lookup.h"

namespace cudaguard {

namespace {

bool leaves(const char* name, const void* policy) {
  return leaves_later_lookups(*static_cast<const Policy*>(policy), name);
}

bool is_null_driver(const dl_phdr_info& object) {
  for (const Loaded& it : inherited.null_drivers) {
    const auto* map = static_cast<const link_map*>(it.link_map.load(std::memory_order_acquire));
    if (map != nullptr && map->l_addr == object.dlpi_addr) return true;
  }
  return false;
}

/// True if this object is bound to our exports, or if others would be bound to its exports without
/// ours.
int needs_exports(dl_phdr_info* object, size_t /*size*/, void* policy) {
  if (holds(*object, &inherited) || is_null_driver(*object)) return 0;
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  if (dynamic == nullptr) return 0;
  const char* soname = elf_soname(dynamic, object->dlpi_addr);
  const Library library = soname == nullptr ? Library::kOther : classify(soname).library;
  if (library == Library::kDriver || library == Library::kNvml) return 1;
  return static_cast<int>(refers_to_own_symbols(dynamic, object->dlpi_addr, leaves, policy));
}

}  // namespace

void leave_later_lookups(const Process& here) {
  if (inherited.left_later_lookups.exchange(true, std::memory_order_relaxed)) return;
  Policy policy = here.policy();
  if (rules_of(policy).later == LaterExports::kAll) return;
  if (dl_iterate_phdr(needs_exports, &policy) == 0) hide_own_symbols(leaves, &policy);
}

}  // namespace cudaguard
