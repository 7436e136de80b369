// SPDX-License-Identifier: Apache-2.0
// The state of record/ (see shim/state/process.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The places in the code that have asked for a GPU in this process. No lock; thread-safe,
/// async-signal-safe.
class Places {
 public:
  /// The most places that one process reports.
  static constexpr uint32_t kMost = 2048;

  enum class Added : uint8_t {
    kKnown,
    kNew,
    kOneTooMany,  ///< the first place for which there is no room
    kTooMany,
  };
  /// `place` is a hash of the function, the calling library and the user's line.
  Added add(uint64_t place);
  /// True if a place was refused.
  bool is_full() const { return full_.load(std::memory_order_relaxed); }
  /// Empties the list.
  void forget();

  // A cache of calls whose place is known. `call` is a hash of what can be read at little cost: the
  // return address and Python's frames. A call that was overwritten is only slower.
  bool was_called(uint64_t call) const {
    return calls_[call % kCalls].load(std::memory_order_relaxed) == call;
  }
  void note_call(uint64_t call) {
    if (call != 0) calls_[call % kCalls].store(call, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kSlots = 2 * kMost;
  static constexpr uint32_t kCalls = 1024;
  std::atomic<uint64_t> places_[kSlots] = {};
  std::atomic<uint64_t> calls_[kCalls] = {};
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> full_{false};
};

/// The longest text of a call site that is kept.
inline constexpr size_t kMostSite = 256;

/// Hashes of distinct cases. If there are too many, an old one is forgotten: a case may then be
/// reported twice, but none is lost. No lock; thread-safe, async-signal-safe.
class Cases {
 public:
  /// Returns true to the first caller with this case.
  bool add(uint64_t key);
  bool has(uint64_t key) const;
  void forget();

 private:
  static constexpr size_t kMost = 256;
  std::atomic<uint64_t> keys_[kMost] = {};
};

struct RecordProcess {
  std::atomic<uint32_t> attempts{0};
  /// The functions that need no more attention, as hashes of their names. A name's address would
  /// not do: its library may be unloaded, and a library has another address in each namespace.
  /// Empty if `places` is in use.
  Cases seen;
  Cases lines;
  Cases events;
  /// Used if a report or a launcher wants every place that asks.
  Places places;
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
};

struct RecordInherited {
  std::atomic<bool> listens{false};  ///< a launcher has answered a beacon of this process
  std::atomic<uint32_t> printed{0};  ///< bits of Message
};

}  // namespace cudaguard
