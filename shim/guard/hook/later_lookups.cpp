// SPDX-License-Identifier: Apache-2.0
// The exports stay visible if a loaded library already uses them, or if NVIDIA's driver or NVML is
// loaded.
#include "shim/guard/hook/later_lookups.h"

#include "policy/library.h"
#include "shim/guard/elf/objects.h"
#include "shim/guard/elf/own_symbols.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/hook/null_drivers.h"

namespace cudaguard {

namespace {

bool leaves(const char* name, const void* policy) {
  return leaves_later_lookups(*static_cast<const Policy*>(policy), name);
}

/// True if this object is bound to our exports, or if others would be bound to its exports without
/// ours.
bool needs_exports(const link_map& object, const Policy& policy) {
  if (object.l_ld == _DYNAMIC) return false;
  const char* soname = elf_soname(object.l_ld, object.l_addr);
  const Library library = soname == nullptr ? Library::kOther : classify(soname).library;
  if (library == Library::kDriver || library == Library::kNvml) return !is_null_driver(object);
  return refers_to_own_symbols(object.l_ld, object.l_addr, leaves, &policy);
}

}  // namespace

void leave_later_lookups(const Process& process) {
  if (inherited.hook.left_later_lookups.exchange(true, std::memory_order_relaxed)) return;
  const Policy policy = process.loads();
  if (row_of(policy).later == LaterExports::kAll) return;
  // Objects that were loaded after the start are bound already, perhaps to us.
  if (inherited.hook.may_have_loaded.load(std::memory_order_acquire)) return;
  if (!start_objects().visit(
          [&](const link_map& object) { return needs_exports(object, policy); })) {
    hide_own_symbols(leaves, &policy);
  }
}

}  // namespace cudaguard
