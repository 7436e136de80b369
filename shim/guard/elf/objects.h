// SPDX-License-Identifier: Apache-2.0
// Walks ld.so's list of loaded objects. The way to do so must be right while another thread closes
// a library, and must not wait for a lock that a forked child inherits locked: fork() frees the
// lock of dlopen in the child, but not the one of dl_iterate_phdr. Only with_held_list() takes the
// latter, and only for a process that was not forked. Thread-safe, async-signal-safe.
#pragma once

#include <link.h>

#include <atomic>
#include <cstdint>

#include "shim/guard/elf/symbol_lookup.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Finds the object that holds a code address among those that it is shown. Needs no program
/// headers, to which ld.so's list does not lead: ld.so maps each object in one piece, and linkers
/// put an object's code after its symbol table and before its dynamic section. So the dynamic
/// section that follows the address is that of the object, or the address is in none of them.
class HolderSearch {
 public:
  explicit HolderSearch(const void* address) : address_(reinterpret_cast<uintptr_t>(address)) {}
  void look_at(const link_map& object) {
    const auto at = reinterpret_cast<uintptr_t>(object.l_ld);
    if (at > address_ && (next_ == nullptr || at < reinterpret_cast<uintptr_t>(next_->l_ld))) {
      next_ = &object;
    }
  }
  /// Returns null if no object holds the address.
  const link_map* found() const {
    if (next_ == nullptr) return nullptr;
    const auto* symbols = elf_detail::table<ElfW(Sym)>(next_->l_ld, next_->l_addr, DT_SYMTAB);
    return reinterpret_cast<uintptr_t>(symbols) <= address_ ? next_ : nullptr;
  }

 private:
  uintptr_t address_;
  const link_map* next_ = nullptr;
};

/// The objects that ld.so has mapped for the program's start: the program, the preloaded libraries
/// and all that these need. ld.so never unloads them, and appends every later object to its list.
/// So a walk from the first to the last of them needs no lock. If a constructor that ran before the
/// guard's has loaded a library (libc does that for iconv), that one counts, too. It can be
/// unloaded, so a walk may come to the end of the list without it.
class StartObjects {
 public:
  /// Call this before the program's first dlopen. Later calls do nothing.
  void find();

  /// Calls visit(const link_map&) until it returns true. Returns false if it never did.
  template <typename Visit>
  bool visit(const Visit& visit) const {
    const link_map* last = last_.load(std::memory_order_acquire);
    if (last == nullptr) return false;
    for (const link_map* object = first();; object = object->l_next) {
      if (visit(*object)) return true;
      if (object == last || object->l_next == nullptr) return false;
    }
  }
  const link_map* first() const { return first_.load(std::memory_order_relaxed); }
  /// Returns the one that holds a code address, or null.
  const link_map* holder(const void* address) const {
    HolderSearch search(address);
    visit([&](const link_map& object) { return search.look_at(object), false; });
    return search.found();
  }
  /// Returns the guard itself, or null if the guard was loaded in another way.
  const link_map* guard() const {
    const link_map* found = nullptr;
    visit([&](const link_map& object) {
      if (object.l_ld == _DYNAMIC) found = &object;
      return found != nullptr;
    });
    return found;
  }

 private:
  std::atomic<const link_map*> first_{nullptr};
  std::atomic<const link_map*> last_{nullptr};  ///< published last
};

/// How to walk the objects that were loaded later.
enum class LaterObjects : uint8_t {
  kNone,    ///< there are none
  kFree,    ///< without a lock: a forked child may have inherited it locked, or the caller holds
            ///< the lock of dlopen
  kLocked,  ///< with ld.so's lock, because another thread may unload one of them
};

/// Calls function(data) while ld.so's list does not change.
void with_held_list(void (*function)(void*), void* data);

/// Calls visit(const link_map&) for all loaded objects until it returns true.
template <typename Visit>
bool visit_objects(const StartObjects& start, LaterObjects later, const Visit& visit) {
  if (later == LaterObjects::kNone) return start.visit(visit);
  struct Walk {
    const link_map* first;
    const Visit* visit;
    bool found = false;
  } walk = {start.first(), &visit};
  const auto all = [](void* data) {
    auto& state = *static_cast<Walk*>(data);
    for (const link_map* at = state.first; at != nullptr && !state.found; at = at->l_next) {
      state.found = (*state.visit)(*at);
    }
  };
  if (later == LaterObjects::kFree) {
    all(&walk);
  } else {
    with_held_list(all, &walk);
  }
  return walk.found;
}

}  // namespace cudaguard
