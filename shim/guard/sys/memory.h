// SPDX-License-Identifier: Apache-2.0
// Writes to read-only pages, and a lock for code that seldom runs. Calls no libc function that
// changes errno.
#pragma once

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "shim/guard/sys/system.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Makes the pages of `size` bytes at `at` writable, and gives them `protection` (PROT_*) in the
/// end.
class WritablePages {
 public:
  WritablePages(const void* at, size_t size, int protection) : protection_(protection) {
    const uintptr_t inside = getauxval(AT_PAGESZ) - 1;
    const auto start = reinterpret_cast<uintptr_t>(at) & ~inside;
    const auto end = (reinterpret_cast<uintptr_t>(at) + size + inside) & ~inside;
    where_ = static_cast<long>(start);
    length_ = static_cast<long>(end - start);
    ok_ = sys::call(SYS_mprotect, where_, length_, protection | PROT_READ | PROT_WRITE) == 0;
  }
  ~WritablePages() {
    const bool stays = (protection_ & PROT_WRITE) != 0;
    if (ok_ && !stays) sys::call(SYS_mprotect, where_, length_, protection_);
  }
  WritablePages(const WritablePages&) = delete;
  WritablePages& operator=(const WritablePages&) = delete;
  /// False if the kernel forbids it.
  bool ok() const { return ok_; }

 private:
  int protection_;
  long where_ = 0;
  long length_ = 0;
  bool ok_ = false;
};

/// Copies `size` bytes to `at` and gives the pages `protection` afterwards (PROT_*). Returns false
/// if the kernel forbids it; nothing was written then.
inline bool overwrite(const void* at, const void* from, size_t size, int protection) {
  const WritablePages pages(at, size, protection);
  if (pages.ok()) memcpy(const_cast<void*>(at), from, size);
  return pages.ok();
}

/// A mutex of one word. Not for signal handlers, and not reentrant, like CUDA's own.
class Lock {
 public:
  explicit Lock(std::atomic<uint32_t>& word) : word_(word) {
    uint32_t free = 0;
    if (word_.compare_exchange_strong(free, 1, std::memory_order_acquire)) return;
    while (word_.exchange(2, std::memory_order_acquire) != 0) {
      sys::call(SYS_futex, sys::word(&word_), 128 /* FUTEX_WAIT_PRIVATE */, 2);
    }
  }
  ~Lock() {
    if (word_.exchange(0, std::memory_order_release) == 2) {
      sys::call(SYS_futex, sys::word(&word_), 129 /* FUTEX_WAKE_PRIVATE */, 1);
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::atomic<uint32_t>& word_;
};

}  // namespace cudaguard
