// SPDX-License-Identifier: Apache-2.0
// If there is a report or a launcher, every place that asks is wanted: a hash of the function, the
// library, the user's line and the modules that it calls. A place needs the stack, which takes
// 100 us or more, so KnownCalls holds hashes of what can be read at once (call_of): the return
// address, and the code, the file, the line and the position of each Python frame. A dlclose
// empties it. A known call takes 0.2 us, and 50 ns more for each Python frame.
#include "shim/guard/record/state.h"

namespace cudaguard {

namespace {

/// A key that no empty slot has.
constexpr uint64_t valid(uint64_t key) { return key != 0 ? key : 1; }

}  // namespace

/// Returns kTooMany without room.
Reported::Added Reported::try_to_add(uint64_t key) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    std::atomic<uint64_t>& slot = keys_[(key + i) % kSlots];
    uint64_t known = slot.load(std::memory_order_relaxed);
    if (known == key) return Added::kKnown;
    if (known != 0) continue;
    if (count_.load(std::memory_order_relaxed) >= kMost) break;
    if (slot.compare_exchange_strong(known, key, std::memory_order_relaxed)) {
      count_.fetch_add(1, std::memory_order_relaxed);
      return Added::kNew;
    }
    if (known == key) return Added::kKnown;
  }
  return Added::kTooMany;
}

Reported::Added Reported::add_place(uint64_t key) {
  const Added added = try_to_add(valid(key));
  if (added != Added::kTooMany) return added;
  return lacks_places_.exchange(true, std::memory_order_relaxed) ? Added::kTooMany
                                                                 : Added::kOneTooMany;
}

bool Reported::add(uint64_t key) {
  key = valid(key);
  if (has(key)) return false;
  // Half of the room is for places alone, because a place without room is not reported.
  if (count_.load(std::memory_order_relaxed) < kMost / 2) {
    const Added added = try_to_add(key);
    if (added != Added::kTooMany) return added == Added::kNew;
  }
  return keys_[key % kSlots].exchange(key, std::memory_order_relaxed) != key;
}

bool Reported::has(uint64_t key) const {
  key = valid(key);
  for (uint32_t i = 0; i < kSlots; ++i) {
    const uint64_t known = keys_[(key + i) % kSlots].load(std::memory_order_relaxed);
    if (known == key) return true;
    if (known == 0) break;
  }
  return false;
}

void Reported::forget() {
  for (auto& slot : keys_) slot.store(0);
  count_.store(0, std::memory_order_relaxed);
  lacks_places_.store(false, std::memory_order_relaxed);
}

/// If two threads add names, one of these may get lost, which costs time only.
void KnownNames::add(const char* name, uint32_t closes) {
  if (closes_.load(std::memory_order_relaxed) != closes) {
    forget();
    closes_.store(closes, std::memory_order_release);
  }
  for (auto& slot : names_) {
    const char* known = slot.load(std::memory_order_relaxed);
    if (known == name) return;
    if (known == nullptr && slot.compare_exchange_strong(known, name)) return;
  }
}

void KnownNames::forget() {
  for (auto& slot : names_) slot.store(nullptr);
}

}  // namespace cudaguard
