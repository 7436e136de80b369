// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/caller_scope.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/guard/loader.h"

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

/// Changes whenever an object is loaded or unloaded.
uint64_t loader_generation() {
  uint64_t sum = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* to) {
        *static_cast<uint64_t*>(to) = object->dlpi_adds + object->dlpi_subs;
        return 1;
      },
      &sum);
  return sum;
}

struct Definition {
  const char* name;
  const void* found;
};

/// The first object that defines the name, ours left out.
int find_definition(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& wanted = *static_cast<Definition*>(data);
  if (holds(*object, reinterpret_cast<const void*>(&find_definition))) return 0;
  wanted.found = elf_symbol(dynamic_section(*object), object->dlpi_addr, wanted.name);
  return wanted.found != nullptr ? 1 : 0;
}

void* look_up(const char* name, const void* caller) {
  const Loader& the = loader();
  if (void* next = next_symbol(name)) return next;
  if (the.dlsym == nullptr || the.dlopen == nullptr) return nullptr;
  void* result = nullptr;
  const char* object = object_name(caller);
  if (object != nullptr && object[0] != '\0') {
    if (void* handle = the.dlopen(object, RTLD_LAZY | RTLD_NOLOAD)) {
      result = the.dlsym(handle, name);
      the.dlclose(handle);
    }
  }
  the.dlerror();  // drop our own failures
  if (result == nullptr) {
    // A call in tail position: the return address is that of the caller's caller, whose scope need
    // not have the name. Somebody's has, or nobody could have called it.
    Definition anywhere = {name, nullptr};
    dl_iterate_phdr(find_definition, &anywhere);
    result = const_cast<void*>(anywhere.found);
  }
  return result;
}

}  // namespace

void* definition_for(const char* name, const void* caller) {
  const uint64_t now = loader_generation();
  Remembered& it = place_for(name, caller);
  const uint32_t version = it.version.load(std::memory_order_acquire);
  if (version % 2 == 0 && it.caller.load(std::memory_order_relaxed) == caller &&
      it.name.load(std::memory_order_relaxed) == name &&
      it.generation.load(std::memory_order_relaxed) == now) {
    void* target = it.target.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (it.version.load(std::memory_order_relaxed) == version) return target;
  }
  const int saved_errno = errno;
  void* target = look_up(name, caller);
  errno = saved_errno;
  uint32_t even = version & ~1U;
  if (it.version.compare_exchange_strong(even, even + 1, std::memory_order_acquire)) {
    std::atomic_thread_fence(std::memory_order_release);
    it.caller.store(caller, std::memory_order_relaxed);
    it.name.store(name, std::memory_order_relaxed);
    it.generation.store(now, std::memory_order_relaxed);
    it.target.store(target, std::memory_order_relaxed);
    it.version.store(even + 2, std::memory_order_release);
  }
  return target;
}

}  // namespace cudaguard
