// SPDX-License-Identifier: Apache-2.0
// If there is a report or a launcher, every place that asks is wanted, so there are two tables. The
// larger one holds the places: hashes of the function, the library, the user's line and the modules
// that it calls. A place needs the stack, which takes 100 us or more. So a smaller table holds
// hashes of what can be read at once (call_of): the return address, and the code, the file, the
// line and the position of each Python frame. A dlclose empties it. A known call takes 0.2 us, and
// 50 ns more for each Python frame.
#include "shim/record/state.h"

namespace cudaguard {

Places::Added Places::add(uint64_t place) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    std::atomic<uint64_t>& slot = places_[(place + i) % kSlots];
    uint64_t here = slot.load(std::memory_order_relaxed);
    if (here == place) return Added::kKnown;
    if (here != 0) continue;
    if (count_.load(std::memory_order_relaxed) >= kMost) break;
    if (slot.compare_exchange_strong(here, place, std::memory_order_relaxed)) {
      count_.fetch_add(1, std::memory_order_relaxed);
      return Added::kNew;
    }
    if (here == place) return Added::kKnown;
  }
  return full_.exchange(true, std::memory_order_relaxed) ? Added::kTooMany : Added::kOneTooMany;
}

void Places::forget() {
  for (auto& slot : places_) slot.store(0, std::memory_order_relaxed);
  for (auto& slot : calls_) slot.store(0, std::memory_order_relaxed);
  count_.store(0, std::memory_order_relaxed);
  full_.store(false, std::memory_order_relaxed);
}

bool Cases::add(uint64_t key) {
  if (key == 0) key = 1;
  for (auto& slot : keys_) {
    uint64_t here = slot.load(std::memory_order_relaxed);
    if (here == 0 && slot.compare_exchange_strong(here, key, std::memory_order_relaxed))
      return true;
    if (here == key) return false;
  }
  return keys_[key % kMost].exchange(key, std::memory_order_relaxed) != key;
}

bool Cases::has(uint64_t key) const {
  if (key == 0) key = 1;
  for (const auto& slot : keys_) {
    const uint64_t here = slot.load(std::memory_order_relaxed);
    if (here == key) return true;
    if (here == 0) break;
  }
  return false;
}

void Cases::forget() {
  for (auto& slot : keys_) slot.store(0, std::memory_order_relaxed);
}

}  // namespace cudaguard
