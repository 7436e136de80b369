// SPDX-License-Identifier: Apache-2.0
// The state of record/ (see shim/guard/state/process.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What this process has reported already: places in the code that have asked for a GPU, functions,
/// events and cases of messages, all as hashes. Hashes of texts, because a name's library may be
/// unloaded, and has another address in each namespace. No lock; thread-safe, async-signal-safe.
class Reported {
 public:
  /// The most that is kept.
  static constexpr uint32_t kMost = 2048;

  enum class Added : uint8_t {
    kKnown,
    kNew,
    kOneTooMany,  ///< the first place for which there is no room
    kTooMany,
  };
  /// For a place, which is not reported without room: verify must know that some are missing.
  Added add_place(uint64_t key);
  /// For all else: returns true to the first caller with this key. Without room, an older key is
  /// forgotten. It may be reported twice then, but nothing is lost.
  bool add(uint64_t key);
  bool has(uint64_t key) const;
  /// True if a place was refused.
  bool lacks_places() const { return lacks_places_.load(std::memory_order_relaxed); }
  /// Empties the table.
  void forget();

 private:
  static constexpr uint32_t kSlots = 2 * kMost;
  Added try_to_add(uint64_t key);

  std::atomic<uint64_t> keys_[kSlots] = {};
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> lacks_places_{false};
};

/// A cache of calls whose place is known. `call` is a hash of what can be read at little cost: the
/// return address and Python's frames. A call that was overwritten is only slower.
class KnownCalls {
 public:
  bool has(uint64_t call) const {
    return calls_[call % kCalls].load(std::memory_order_relaxed) == call;
  }
  void add(uint64_t call) {
    if (call != 0) calls_[call % kCalls].store(call, std::memory_order_relaxed);
  }
  void forget() {
    for (auto& slot : calls_) slot.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kCalls = 1024;
  std::atomic<uint64_t> calls_[kCalls] = {};
};

/// The longest text of a call site that is kept.
inline constexpr size_t kMostSite = 256;

/// The addresses of names that RecordProcess::reported has, so that a repeated call needs no hash.
/// An address counts until a dlclose, after which it may be another name's. No lock; thread-safe,
/// async-signal-safe.
class KnownNames {
 public:
  /// `closes` is HookInherited::closes.
  [[gnu::always_inline]] bool has(const char* name, uint32_t closes) const {
    if (closes_.load(std::memory_order_acquire) != closes) return false;
    for (const auto& slot : names_) {
      if (slot.load(std::memory_order_relaxed) == name) return true;
    }
    return false;
  }
  void add(const char* name, uint32_t closes);
  void forget();

 private:
  std::atomic<uint32_t> closes_{0};
  std::atomic<const char*> names_[4] = {};
};

struct RecordProcess {
  std::atomic<uint32_t> attempts{0};
  /// Has no functions if a report or a launcher wants every place that asks.
  Reported reported;
  KnownNames names;
  KnownCalls known_calls;
};

/// Messages that are printed once per process, and not again by its forked children.
enum class Message : uint32_t {
  kDenied = 1,
  kComplaints = 2,
  kReportFailed = 4,
  kNoNullDriver = 8,
  kNoNullNvml = 16,
  kNoDriverProxy = 32,
  kNoNvmlProxy = 64,
  kList = 128,
  kLateWrite = 256,
  kForkPoison = 512,
  kOpenCl = 1024,
  kDeniedNvml = 2048,
  kListInVain = 4096,
  kDeniedOpenCl = 8192,
  kStubDriver = 16384,
  kStubNvml = 32768,
  kNoContext = 65536,
};

struct RecordInherited {
  std::atomic<bool> listens{false};  ///< a launcher has answered a beacon of this process
  std::atomic<uint32_t> printed{0};  ///< bits of Message
};

}  // namespace cudaguard
