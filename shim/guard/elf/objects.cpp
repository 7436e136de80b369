// SPDX-License-Identifier: Apache-2.0
// How the guard walks ld.so's list. It needs some of the loaded objects: libc, the object that
// holds a caller, the next definition of a name. dl_iterate_phdr lists them under a lock. In a
// forked child, glibc frees the lock of dlopen, but not this one: if another thread held it at the
// fork, the child waits permanently. There are therefore three ways:
//
// - The objects of the start (StartObjects) need no lock. Almost all walks need only these.
// - Those that were loaded later, for a call, in a process that was not forked or by a process with
//   one thread: under the lock of dl_iterate_phdr. The thread that holds it exists and will free
//   it. Another thread may unload an object at any time, so a walk without it would read freed
//   memory.
// - Those that were loaded later, for a call, in another forked child: without a lock. The child
//   has one thread at first, and no thread would free the lock. If its own threads unload libraries
//   while another one walks, the walk can crash. A child of a process with one thread is also such
//   a child if it starts threads before the guard's first work in it.
//
// A call needs the later objects if the policy is not FORCE_CPU, once per function and caller that
// was itself loaded later. It does not use the lock of dlopen, because a constructor may hold that
// lock and wait for the thread that calls. glibc's _dl_find_object needs no lock, but exists only
// from 2.35 on, and finds one object by its address.
//
// Loading a library takes the lock, too. In a forked child of a process with several threads, the
// guard loads nothing of its own before a request that loads nothing: ld.so has the library, or
// finds no file. tests/artefacts/test_locks.py lists the code that takes the lock, and
// tests/races/test_fork_phdr.py forks a process whose thread holds it.
#include "shim/guard/elf/objects.h"

#include "shim/guard/elf/base_namespace.h"
#include "shim/guard/sys/literal.h"

namespace cudaguard {

[[gnu::hot]] void StartObjects::find() {
  if (last_.load(std::memory_order_acquire) != nullptr) return;
  const link_map* first = base_objects();
  const link_map* last = nullptr;
  bool guard = false;  // found
  for (const link_map* object = first; object != nullptr; object = object->l_next) {
    last = object;
    guard = guard || object->l_ld == _DYNAMIC;
    if (guard) continue;
    // libc comes before a guard that the program has loaded, with libraries that it may unload.
    const char* soname = elf_soname(object->l_ld, object->l_addr);
    if (soname != nullptr && sys::begins_with(soname, "lib") &&
        elf_detail::same(soname, "libc.so.6")) {
      break;
    }
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
        const auto& callback = *static_cast<const Call*>(given);
        callback.function(callback.data);
        return 1;
      },
      &call);
}

}  // namespace cudaguard
