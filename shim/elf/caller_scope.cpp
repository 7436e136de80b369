// SPDX-License-Identifier: Apache-2.0
#include "shim/elf/caller_scope.h"

#include <link.h>

#include "shim/elf/object.h"
#include "shim/elf/reference.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

/// Returns the hash of the last part of a path (FNV-1a).
constexpr uint32_t hash_of(const char* path) {
  constexpr uint32_t kEmpty = 2166136261;
  uint32_t hash = kEmpty;
  for (; *path != '\0'; ++path) {
    hash = *path == '/' ? kEmpty : (hash ^ static_cast<uint8_t>(*path)) * 16777619;
  }
  return hash;
}
constexpr uint32_t kGuard = hash_of("libcudaguard.so");
constexpr uint32_t kLibc = hash_of("libc.so.6");

struct Object {
  const link_map* map;
  const void* definition;
  uint32_t soname;
  uint32_t file;
  bool in_scope;
};

/// The loaded objects in the order in which they were loaded, and one scope of them.
struct Objects {
  static constexpr unsigned kMost = 4096;
  Object* end;
  Object at[kMost];
  Object* scope[kMost];

  Object* find(uint32_t name) {
    Object* it = at;
    while (it != end && it->soname != name && it->file != name) ++it;
    return it;
  }

  /// Makes a scope of the objects `first` to `last` and all that they need, breadth first, as ld.so
  /// does. Returns the first definition.
  const void* open_scope(const Object* first, const Object* last) {
    Object** free = scope;
    for (Object* it = at; it != end; ++it) {
      it->in_scope = it >= first && it <= last;
      if (it->in_scope) *free++ = it;
    }
    const void* found = nullptr;
    for (Object** next = scope; next != free; ++next) {
      if (found == nullptr) found = (*next)->definition;
      const link_map& map = *(*next)->map;
      const char* strings = elf_detail::table<char>(map.l_ld, map.l_addr, DT_STRTAB);
      for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag != DT_NEEDED) continue;
        Object* needed = find(hash_of(strings + entry->d_un.d_val));
        if (needed == end || needed->in_scope) continue;
        needed->in_scope = true;
        *free++ = needed;
      }
    }
    return found;
  }
};

struct Search {
  const char* name;
  const void* caller;
  const GlobalNames* global = nullptr;
  const ElfW(Dyn) * own = nullptr;  // the caller's dynamic section
  ElfW(Addr) base = 0;
  const char* version = nullptr;  // of the caller's reference
  bool past_guard = false;        // the search has passed the guard
  unsigned count = 0;             // the number of definitions
  const void* found = nullptr;
  Objects* objects = nullptr;
};

int find_caller(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (!holds(*object, search.caller)) return 0;
  search.own = dynamic_section(*object);
  search.base = object->dlpi_addr;
  search.version = version_of_reference(search.own, search.base, search.name);
  return 1;
}

uint32_t soname_of(const ElfW(Dyn) * dynamic, ElfW(Addr) base) {
  const char* soname = elf_soname(dynamic, base);
  return soname != nullptr ? hash_of(soname) : 0;
}

/// Returns a definition after the guard, or null. A caller that reaches the guard was not bound to
/// an earlier object, or asks for the next definition.
const void* definition_in(Search& search, const ElfW(Dyn) * dynamic, ElfW(Addr) base,
                          uint32_t soname) {
  search.past_guard = search.past_guard || soname == kGuard;
  if (!search.past_guard || soname == kGuard) return nullptr;
  return elf_definition(dynamic, base, search.name, search.version);
}

int find_definitions(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  const void* found =
      definition_in(search, dynamic, object->dlpi_addr, soname_of(dynamic, object->dlpi_addr));
  if (found != nullptr && search.count++ == 0) search.found = found;
  return 0;
}

/// Called once, for the program, under dl_iterate_phdr's lock, so ld.so's list does not change.
int choose(dl_phdr_info* program, size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  Objects& the = *search.objects;
  const auto* debug = reinterpret_cast<const r_debug*>(
      elf_detail::dynamic_value(dynamic_section(*program), DT_DEBUG));
  if (debug == nullptr) return 1;
  search.past_guard = false;
  const Object* libc = the.at;
  const Object* caller = nullptr;
  Object* end = the.at;
  for (const link_map* map = debug->r_map; map != nullptr; map = map->l_next) {
    if (end == the.at + Objects::kMost) return 1;
    end->map = map;
    end->soname = soname_of(map->l_ld, map->l_addr);
    end->file = hash_of(map->l_name);
    end->definition = definition_in(search, map->l_ld, map->l_addr, end->soname);
    if (end->soname == kLibc) libc = end;
    if (map->l_ld == search.own) caller = end;
    ++end;
  }
  the.end = end;
  // All objects up to libc are the program and its preloads, because every one of them needs libc.
  // The rest follows in the order of loading: libraries that were opened with RTLD_GLOBAL, and the
  // one that brought the caller.
  const void* found = the.open_scope(the.at, libc);
  if (caller != nullptr && caller->in_scope) caller = nullptr;
  for (const Object* it = the.at; found == nullptr && it != end; ++it) {
    const bool global = search.global->has(it->soname) || search.global->has(it->file);
    if (!global && caller == nullptr) continue;
    const void* first = the.open_scope(it, it);
    if (global || caller->in_scope) found = first;
  }
  if (found != nullptr) search.found = found;
  return 1;
}

}  // namespace

bool GlobalNames::has(uint32_t hash) const {
  for (const auto& slot : hashes_) {
    const uint32_t here = slot.load(std::memory_order_relaxed);
    if (here == hash || here == 0) return here != 0;
  }
  return false;
}

void GlobalNames::add(const char* name) {
  const uint32_t hash = hash_of(name);
  for (auto& slot : hashes_) {
    uint32_t here = slot.load(std::memory_order_relaxed);
    if (here == 0 && slot.compare_exchange_strong(here, hash, std::memory_order_relaxed)) return;
    if (here == hash) return;
  }
}

const void* find_definition(const char* name, const void* caller, const GlobalNames& global) {
  Search search = {.name = name, .caller = caller, .global = &global};
  dl_iterate_phdr(find_caller, &search);
  dl_iterate_phdr(find_definitions, &search);
  if (search.count > 1) {
    const sys::Mapped<Objects> objects;
    search.objects = objects ? &*objects : nullptr;
    if (objects) dl_iterate_phdr(choose, &search);
  }
  return search.found;
}

const void* definition_beside(const void* function, const char* name) {
  Search search = {.name = name, .caller = function};
  dl_iterate_phdr(find_caller, &search);
  return elf_symbol(search.own, search.base, name);
}

}  // namespace cudaguard
