// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/elf/caller_scope.h"

#include <link.h>

#include "shim/guard/elf/reference.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/sys/system.h"

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
    Object* object = at;
    while (object != end && object->soname != name && object->file != name) ++object;
    return object;
  }

  /// Makes a scope of the objects `first` to `last` and all that they need, breadth first, as ld.so
  /// does. Returns the first definition.
  const void* open_scope(const Object* first, const Object* last) {
    Object** free = scope;
    for (Object* object = at; object != end; ++object) {
      object->in_scope = object >= first && object <= last;
      if (object->in_scope) *free++ = object;
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
  const GlobalNames& global;
  const link_map* holder = nullptr;  // the caller's object
  const char* version = nullptr;     // of its reference
  bool past_guard = false;           // the search has passed the guard
  unsigned count = 0;                // the number of definitions
  const void* found = nullptr;

  void set_holder(const link_map* object) {
    holder = object;
    if (object != nullptr) version = version_of_reference(object->l_ld, object->l_addr, name);
  }

  /// Returns a definition after the guard, or null. A caller that reaches the guard was not bound
  /// to an earlier object, or asks for the next definition.
  const void* definition_in(const link_map& object, uint32_t soname) {
    past_guard = past_guard || soname == kGuard;
    if (!past_guard || soname == kGuard) return nullptr;
    return elf_definition(object.l_ld, object.l_addr, name, version);
  }
};

uint32_t soname_of(const link_map& object) {
  const char* soname = elf_soname(object.l_ld, object.l_addr);
  return soname != nullptr ? hash_of(soname) : 0;
}

/// Counts the definitions and keeps the first one.
void count_definitions(Search& search, const StartObjects& start, LaterObjects later) {
  search.past_guard = false;
  visit_objects(start, later, [&](const link_map& object) {
    const void* found = search.definition_in(object, soname_of(object));
    if (found != nullptr && search.count++ == 0) search.found = found;
    return false;
  });
}

/// Chooses among several definitions.
void choose(Search& search, Objects& objects, const StartObjects& start, LaterObjects later) {
  search.past_guard = false;
  objects.end = objects.at;
  const Object* libc = objects.at;
  const Object* caller = nullptr;
  const void* found = nullptr;
  // Everything that needs the objects happens in this walk, which may hold ld.so's lock.
  visit_objects(start, later, [&](const link_map& map) {
    Object* end = objects.end++;
    end->map = &map;
    end->soname = soname_of(map);
    end->file = hash_of(map.l_name);
    end->definition = search.definition_in(map, end->soname);
    if (end->soname == kLibc) libc = end;
    if (&map == search.holder) caller = end;
    const bool full = objects.end == objects.at + Objects::kMost;
    if (map.l_next != nullptr || full) return full;
    // All objects up to libc are the program and its preloads, because every one of them needs
    // libc. The rest follows in the order of loading: libraries that were opened with RTLD_GLOBAL,
    // and the one that brought the caller.
    found = objects.open_scope(objects.at, libc);
    if (caller != nullptr && caller->in_scope) caller = nullptr;
    for (const Object* object = objects.at; found == nullptr && object != objects.end; ++object) {
      const bool global = search.global.has(object->soname) || search.global.has(object->file);
      if (!global && caller == nullptr) continue;
      const void* first = objects.open_scope(object, object);
      if (global || caller->in_scope) found = first;
    }
    return true;
  });
  if (found != nullptr) search.found = found;
}

const link_map* holder_of(const void* address, const StartObjects& start, LaterObjects later) {
  HolderSearch search(address);
  visit_objects(start, later,
                [&](const link_map& object) { return search.look_at(object), false; });
  return search.found();
}

}  // namespace

bool GlobalNames::has(uint32_t hash) const {
  for (const auto& slot : hashes_) {
    const uint32_t stored = slot.load(std::memory_order_relaxed);
    if (stored == hash || stored == 0) return stored != 0;
  }
  return false;
}

void GlobalNames::add(const char* name) {
  const uint32_t hash = hash_of(name);
  for (auto& slot : hashes_) {
    uint32_t stored = slot.load(std::memory_order_relaxed);
    if (stored == 0 && slot.compare_exchange_strong(stored, hash, std::memory_order_relaxed))
      return;
    if (stored == hash) return;
  }
}

const void* find_definition(const char* name, const void* caller, const GlobalNames& global,
                            const StartObjects& start, LaterObjects later) {
  Search search = {.name = name, .caller = caller, .global = global};
  search.set_holder(start.holder(caller));
  if (search.holder != nullptr || later == LaterObjects::kNone) {
    // ld.so binds such a caller to the first definition in the objects of the start.
    count_definitions(search, start, LaterObjects::kNone);
    if (search.found != nullptr || later == LaterObjects::kNone) return search.found;
  } else {
    search.set_holder(holder_of(caller, start, later));
  }
  count_definitions(search, start, later);
  if (search.count > 1) {
    const sys::Mapped<Objects> objects;
    if (objects) choose(search, *objects, start, later);
  }
  return search.found;
}

const void* definition_beside(const void* function, const char* name, const StartObjects& start,
                              LaterObjects later) {
  const link_map* object = start.holder(function);
  if (object == nullptr) object = holder_of(function, start, later);
  return object != nullptr ? elf_symbol(object->l_ld, object->l_addr, name) : nullptr;
}

bool has_rpath(const StartObjects& start, LaterObjects later) {
  return visit_objects(start, later, [](const link_map& object) {
    return elf_detail::dynamic_value(object.l_ld, DT_RPATH) != 0;
  });
}

}  // namespace cudaguard
