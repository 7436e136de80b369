// SPDX-License-Identifier: Apache-2.0
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

/// If two threads add names, one of these may get lost, which costs time only.
void KnownNames::add(const char* name, uint32_t closes) {
  if (closes_.load(std::memory_order_relaxed) != closes) {
    forget();
    closes_.store(closes, std::memory_order_relaxed);
  }
  for (auto& slot : names_) {
    const char* none = nullptr;
    if (slot.compare_exchange_strong(none, name, std::memory_order_relaxed)) return;
  }
}

void KnownNames::forget() {
  for (auto& slot : names_) slot.store(nullptr, std::memory_order_relaxed);
}

}  // namespace cudaguard
