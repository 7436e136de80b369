// SPDX-License-Identifier: Apache-2.0
// Included before everything else. A thread keeps the lock for 2 ms, so that forks happen during
// that time. With CG_ONE_WORD the locks of all processes are one word of this library, which a fork
// copies.
#pragma once

#include <time.h>

#define Lock PlainLock
#include "shim/guard/sys/memory.h"
#undef Lock

namespace [[gnu::visibility("hidden")]] cudaguard {

#ifdef CG_ONE_WORD
inline constinit std::atomic<uint32_t> one_word{0};
#define CG_WORD(word) one_word
#else
#define CG_WORD(word) word
#endif

class Lock {
 public:
  explicit Lock(std::atomic<uint32_t>& word) : lock_(CG_WORD(word)) {
    (void)word;
    const timespec pause = {0, 2000000};
    sys::call(SYS_nanosleep, sys::word(&pause), 0);
  }

 private:
  const PlainLock lock_;
};

}  // namespace cudaguard
