// SPDX-License-Identifier: Apache-2.0
// The state of hook/ (see shim/guard/state/process.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/guard/elf/caller_scope.h"
#include "shim/guard/elf/own_files.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// How far the hook has come in this process. It goes on in this order, and falls from any state.
enum class HookState : uint8_t {
  kFresh,  ///< what the policy needs before a dlopen goes on was not tried; OFF needs nothing
  kReady,  ///< a thread has begun to load it; another library's dlopen still asks make_ready()
  /// Nothing is left to do: FORCE_CPU applies, the loader is known, and no other hook comes next.
  /// Never with Process::only_pid.
  kSteady,
  kFallen,  ///< FORCE_CPU has replaced the policy of the start, in forked children, too
};

struct HookProcess {
  std::atomic<HookState> state{HookState::kFresh};

  [[gnu::always_inline]] bool is(HookState asked) const {
    return state.load(std::memory_order_acquire) == asked;
  }
  /// Goes on to the next state. Returns false if another thread has done so, or if it has fallen.
  bool advance(HookState from, HookState to) {
    return state.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }
};

struct HookInherited {
  std::atomic<bool> null_drivers_tried{false};  ///< both loaded, or found unusable
  /// Goes up when Answers may be invalid: a library is requested or closed, or FORCE_CPU begins.
  /// Ages are even. The mark of an answer that is being written is odd, so no age equals the mark,
  /// however long a process lives.
  std::atomic<uint32_t> answers_age{0};
  static constexpr uint32_t kOneAge = 2;
  GlobalNames global_names;

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
  std::atomic<uint32_t> closes{0};  ///< goes up before and after each dlclose
  /// A request of the program that may load libraries has gone on. Set only after
  /// InheritedState::process, so that a forked child recognises itself as one.
  std::atomic<bool> may_have_loaded{false};
};

}  // namespace cudaguard
