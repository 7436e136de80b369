// SPDX-License-Identifier: Apache-2.0
// The state that a forked child keeps from its parent: all of the guard's variables that are not in
// Process. The child inherits what ld.so holds, and so our knowledge of it. The child prints no
// message again, and a FORCE_CPU that began stays. The first state is all zero, which process.cpp
// ensures, so it takes no room in the file. Thread-safe, async-signal-safe: every member is atomic
// or is published by an atomic one.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/elf/caller_scope.h"
#include "shim/elf/loader.h"
#include "shim/elf/own_files.h"
#include "shim/explain/state.h"
#include "shim/state/start_environment.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Process;

/// Why FORCE_CPU has replaced the configured policy.
enum class Fallen : uint8_t { kNot, kNoProxy, kNotEnforced, kNotAccepted };

/// Ages are even. The mark of an answer that is being written is odd, so no age equals the mark,
/// however long a process lives.
inline constexpr uint32_t kOneAge = 2;

struct InheritedState {
  // Every call reads these members.
  std::atomic<Process*> process{nullptr};       ///< of this process, or of the one that forked it
  Loader loader;                                ///< read by loader()
  std::atomic<bool> null_drivers_tried{false};  ///< both loaded, or found unusable
  /// Goes up when Answers may be invalid: a library is requested, or FORCE_CPU begins.
  std::atomic<uint32_t> answers_age{0};

  SharedOwnLibrary null_drivers[2];
  /// Whether ld.so must answer to the dev names (libcuda.so, …) with the null drivers, and already
  /// does.
  enum DevNames : uint8_t { kNotNeeded, kNeeded, kClaimed };
  std::atomic<uint8_t> dev_names{kNotNeeded};
  std::atomic<bool> left_later_lookups{false};  ///< tried (hook/later_lookups.h)
  /// How many handles the program has of our libraries for the driver and for NVML, and whether it
  /// has ever had one. ld.so does not count for a library that always stays loaded.
  std::atomic<uint32_t> handles[2]{};
  /// A bit of `handles`: the program has opened the library with RTLD_NODELETE, so it stays loaded.
  static constexpr uint32_t kKept = 0x80000000;
  std::atomic<bool> had_handle[2]{};
  SharedOwnLibrary proxies[2];
  GlobalNames global_names;
  StartObjects start_objects;  ///< read by start_objects()
  /// A request of the program that may load libraries has gone on. Set only after `process`, so
  /// that a forked child recognises itself as one.
  std::atomic<bool> may_have_loaded{false};

  StartEnvironment start;
  std::atomic<bool> listens{false};          ///< a launcher has answered a beacon of this process
  char report[kMaxReportPath + 1] = {};      ///< set by report_to; empty: that of the start
  std::atomic<Fallen> fallen{Fallen::kNot};  ///< in this process, or in one that forked it
  std::atomic<uint32_t> printed{0};          ///< printed messages: bits of Process::Message

  ExplainInherited explain;
};

extern constinit InheritedState
    inherited;  // NOLINT(bugprone-dynamic-static-initializers): constinit

inline const StartObjects& start_objects() {
  inherited.start_objects.find();
  return inherited.start_objects;
}

/// Returns the dynamic loader's functions. The first call finds them and takes the lock of dlopen.
inline const Loader& loader() {
  if (!inherited.loader.whole.load(std::memory_order_acquire)) [[unlikely]] {
    find(inherited.loader, start_objects());
  }
  return inherited.loader;
}

}  // namespace cudaguard
