// SPDX-License-Identifier: Apache-2.0
// What a forked child shall know as its parent did: all of the guard's variables that are not in
// Process. What ld.so holds is inherited, and so is what we know of it; what was said is not said
// again; FORCE_CPU that began stays. All zero is its first state (process.cpp sees to
// that), so it takes no room in the file. Thread-safe, async-signal-safe: atomics, and what is
// published by one.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/elf/caller_scope.h"
#include "shim/elf/loader.h"
#include "shim/state/start_environment.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Process;
struct Explainer;

/// An age is even: the odd number that marks an answer as being written is none, however long a
/// process lives.
inline constexpr uint32_t kOneAge = 2;

/// A library of ours as ld.so has it.
struct Loaded {
  std::atomic<const char*> path{nullptr};  ///< published last
  std::atomic<const void*> link_map{nullptr};
  std::atomic<const char*> why{nullptr};  ///< why not: a clause
};

struct InheritedState {
  // What is read on every call.
  std::atomic<Process*> process{nullptr};  ///< of this process, or of the one it was forked from
  Loader loader;                           ///< ask loader()
  std::atomic<bool> null_drivers_tried{false};  ///< both loaded, or found unusable
  /// Goes up where Answers may not hold any more: a library is asked for, FORCE_CPU begins.
  std::atomic<uint32_t> answers_age{0};

  Loaded null_drivers[2];
  /// Does ld.so have to answer to the names libcuda.so, … with them, and does it?
  enum DevNames : uint8_t { kNotNeeded, kNeeded, kClaimed };
  std::atomic<uint8_t> dev_names{kNotNeeded};
  std::atomic<bool> left_later_lookups{false};  ///< was tried (hook/later_lookups.h)
  /// The program has asked for the driver, for NVML, otherwise than by RTLD_NOLOAD.
  std::atomic<bool> requested[2]{};
  Loaded proxies[2];
  std::atomic<const Explainer*> explainer{nullptr};  ///< null: no CUDA was let through
  GlobalNames global_names;

  /// Of the last request that went to another hook, and how often it came in a row.
  std::atomic<uintptr_t> last_request{0};
  std::atomic<uint32_t> rounds{0};

  StartEnvironment start;
  std::atomic<bool> listens{false};      ///< a launcher has answered a beacon of this process
  char report[kMaxReportPath + 1] = {};  ///< of report_to; empty: the start's
  /// Process::Fallen of this process, or of one that it was forked from.
  std::atomic<uint8_t> fallen{0};
  std::atomic<uint32_t> said{0};  ///< lines: bits of Process::Said

  /// Who has initialised CUDA.
  struct Initialised {
    std::atomic<uint32_t> pid{0};
    uint64_t at = 0;  ///< milliseconds since 1970
    char by[96] = {};
  } initialised;
};

extern constinit InheritedState
    inherited;  // NOLINT(bugprone-dynamic-static-initializers): constinit

/// The dynamic loader's functions; found on the first call, which takes its lock.
inline const Loader& loader() {
  if (!inherited.loader.whole.load(std::memory_order_acquire)) [[unlikely]] {
    find(inherited.loader);
  }
  return inherited.loader;
}

}  // namespace cudaguard
