// SPDX-License-Identifier: Apache-2.0
// The state that a forked child keeps from its parent: all of the guard's variables that are not in
// Process. Like Process, it has a part for each directory of the guard that needs one. The child
// inherits what ld.so holds, and so our knowledge of it. The child prints no message again, and a
// FORCE_CPU that began stays. The first state is all zero, which process.cpp ensures, so it takes
// no room in the file. Thread-safe, async-signal-safe: every member is atomic or is published by an
// atomic one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/guard/elf/loader.h"
#include "shim/guard/explain/state.h"
#include "shim/guard/hook/state.h"
#include "shim/guard/proxy_loader/state.h"
#include "shim/guard/record/state.h"
#include "shim/guard/state/start_environment.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Process;
struct MachineRuling;
struct Ruling;

/// Why FORCE_CPU has replaced the configured policy.
enum class Fallen : uint8_t { kNot, kNoProxy, kNotEnforced, kNotAccepted };

/// What a first dlopen needs is in the first page, so that it costs one page fault. A long text is
/// at the end of its struct.
struct alignas(4096) InheritedState {
  std::atomic<Process*> process{nullptr};  ///< of this process, or of the one that forked it
  /// Pages for the Process of a forked child; zero there, as those of `process` are.
  std::atomic<void*> spare{nullptr};
  Loader loader;                                       ///< read by loader()
  StartObjects start_objects;                          ///< read by start_objects()
  std::atomic<const MachineRuling*> machine{nullptr};  ///< read by machine_ruling()
  /// What CUDAGUARD_RULES says; null if there are none. Read by decide_with_rules().
  std::atomic<const Ruling*> ruling{nullptr};
  std::atomic<Fallen> fallen{Fallen::kNot};  ///< in this process, or in one that forked it
  std::atomic<bool> has_report{false};       ///< `report` is not that of the start

  HookInherited hook;
  RecordInherited record;
  ExplainInherited explain;
  ProxyLoaderInherited proxy_loader;

  StartEnvironment start;
  char report[kMaxReportPath + 1] = {};  ///< set by report_to
};

static_assert(offsetof(InheritedState, start) + offsetof(StartEnvironment, text) <= 4096);

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
