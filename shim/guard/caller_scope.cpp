// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/caller_scope.h"

#include <link.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>

#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/elf/version_need.h"

namespace cudaguard {

namespace {

/// One remembered answer. `version` is odd while somebody writes (a sequence lock that never waits:
/// who finds it odd or changed asks ld.so again).
struct Remembered {
  std::atomic<uint32_t> version{0};
  std::atomic<const void*> caller{nullptr};
  std::atomic<const char*> name{nullptr};
  std::atomic<uint64_t> generation{0};
  std::atomic<void*> target{nullptr};
};
constinit Remembered remembered[64];

Remembered& place_for(const char* name, const void* caller) {
  const auto mixed =
      (reinterpret_cast<uintptr_t>(caller) >> 2) ^ (reinterpret_cast<uintptr_t>(name) >> 1);
  return remembered[(mixed ^ (mixed >> 6)) % 64];
}

/// One walk over the loaded objects, in the order in which they were loaded. dl_iterate_phdr alone,
/// no dlsym or dlopen: a constructor may hold ld.so's other lock and wait for the thread that calls
/// us.
struct Walk {
  const char* name;
  const void* caller;
  const char* file = nullptr;          // what the caller imports the name from, if it says
  const ElfW(Dyn) * own = nullptr;     // the caller's dynamic section
  const char* own_strings = nullptr;   // its string table
  const void* from_file = nullptr;     // the definition in that file
  const void* from_caller = nullptr;   // the caller's own: TensorFlow's trampolines
  const void* from_needed = nullptr;   // the first in a library that the caller names as needed
  const void* from_program = nullptr;  // the first among the objects of the program's start
  const void* from_any = nullptr;      // the first
  bool started = true;                 // until ld.so's own object: what came with the program
};

bool same(const char* a, const char* b) { return elf_detail::same(a, b); }

int find_caller(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  if (!holds(*object, walk.caller)) return 0;
  walk.own = dynamic_section(*object);
  walk.own_strings = elf_detail::read_tables(walk.own, object->dlpi_addr).strings;
  walk.file = imported_from(walk.own, object->dlpi_addr, walk.name);
  return 1;
}

/// Is the file among the caller's DT_NEEDED?
bool needs(const Walk& walk, const char* soname) {
  if (walk.own_strings == nullptr || soname == nullptr) return false;
  for (const ElfW(Dyn)* entry = walk.own; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && same(walk.own_strings + entry->d_un.d_val, soname))
      return true;
  }
  return false;
}

/// Would ld.so bind the caller's import to a definition there? An import that names a version's
/// file takes that file's, or one of a library without versions (another preload's hook).
bool satisfies(const Walk& walk, const ElfW(Dyn) * dynamic, const char* soname) {
  if (walk.file == nullptr || (soname != nullptr && same(soname, walk.file))) return true;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_VERDEF) return false;
  }
  return true;
}

void keep_first(const void*& slot, const void* found) {
  if (slot == nullptr) slot = found;
}

int find_definition(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  const char* soname = elf_soname(dynamic, object->dlpi_addr);
  // Ours, and a second copy of the guard, which would lead back here.
  if (soname != nullptr && same(soname, "libcudaguard.so")) return 0;
  const void* found = elf_symbol(dynamic, object->dlpi_addr, walk.name);
  if (found != nullptr) {
    if (walk.file != nullptr && soname != nullptr && same(soname, walk.file)) {
      keep_first(walk.from_file, found);
    }
    if (dynamic == walk.own) walk.from_caller = found;
    if (needs(walk, soname)) keep_first(walk.from_needed, found);
    if (walk.started && satisfies(walk, dynamic, soname)) keep_first(walk.from_program, found);
    keep_first(walk.from_any, found);
  }
  // ld.so is the last of libc's dependencies, loaded with the program.
  if (soname != nullptr && soname[0] == 'l' && soname[1] == 'd' && soname[2] == '-') {
    walk.started = false;
  }
  return 0;
}

/// As ld.so would bind it: the program's scope; else the version's file; else the caller's own. The
/// last resort is a call in tail position: the return address is that of the caller's caller, whose
/// scope need not have the name. Somebody's has, or nobody could have called it.
void* look_up(const char* name, const void* caller) {
  Walk walk = {.name = name, .caller = caller};
  dl_iterate_phdr(find_caller, &walk);
  dl_iterate_phdr(find_definition, &walk);
  for (const void* found :
       {walk.from_program, walk.from_file, walk.from_caller, walk.from_needed, walk.from_any}) {
    if (found != nullptr) return const_cast<void*>(found);
  }
  return nullptr;
}

}  // namespace

constinit std::atomic<uint64_t> detail::library_requests{1};

void* definition_for(const char* name, const void* caller) {
  const uint64_t now = detail::library_requests.load(std::memory_order_acquire);
  Remembered& it = place_for(name, caller);
  const uint32_t version = it.version.load(std::memory_order_acquire);
  if (version % 2 == 0 && it.caller.load(std::memory_order_relaxed) == caller &&
      it.name.load(std::memory_order_relaxed) == name &&
      it.generation.load(std::memory_order_relaxed) == now) {
    void* target = it.target.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (it.version.load(std::memory_order_relaxed) == version) return target;
  }
  void* target = look_up(name, caller);
  uint32_t even = version & ~1U;
  if (target != nullptr &&
      it.version.compare_exchange_strong(even, even + 1, std::memory_order_acquire)) {
    std::atomic_thread_fence(std::memory_order_release);
    it.caller.store(caller, std::memory_order_relaxed);
    it.name.store(name, std::memory_order_relaxed);
    it.generation.store(now, std::memory_order_relaxed);
    it.target.store(target, std::memory_order_relaxed);
    it.version.store(even + 2, std::memory_order_release);
  }
  return target;
}

const void* definition_beside(const void* function, const char* name) {
  struct Search {
    const void* function;
    const char* name;
    const void* found;
  } search = {function, name, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (!holds(*object, wanted.function)) return 0;
        wanted.found = elf_symbol(dynamic_section(*object), object->dlpi_addr, wanted.name);
        return 1;
      },
      &search);
  return search.found;
}

}  // namespace cudaguard
