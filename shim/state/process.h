// SPDX-License-Identifier: Apache-2.0
// What the guard knows about this process: the configuration from the environment at its start, and
// what has been recorded so far. The state lives in pages that the kernel wipes in a forked child
// (MADV_WIPEONFORK). So a child's first attempt counts as new without an atfork handler. No lock,
// no malloc; thread-safe, async-signal-safe, callable before constructors.
#pragma once

#include <atomic>
#include <cstdint>

#include "policy/rules.h"
#include "shim/explain/state.h"
#include "shim/state/answers.h"
#include "shim/state/inherited.h"
#include "shim/state/places.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Config;

struct Process {
  bool ready = false;  ///< false in a forked child
  /// From a process whose other threads may have held a lock. Found out by may_inherit_locks(),
  /// or at once if the other process had such a state: a child that has started threads of its own
  /// before counts, too.
  std::atomic<bool> forked{false};
  std::atomic<bool> fork_known{false};
  /// Nothing is left to do before a dlopen goes on: FORCE_CPU applies, the null drivers were tried,
  /// the loader is known, and no other hook comes next. Never set with only_pid.
  std::atomic<bool> steady{false};
  uint32_t only_pid = 0;  ///< for kernels without MADV_WIPEONFORK: valid in this process only
  Policy configured = Policy::kForceCpu;  ///< at the start; policy() has the one in force
  /// In the same pages. Its strings point into StartEnvironment or InheritedState::report.
  Config* config = nullptr;

  /// True if every place that asks is wanted, and not only one of each kind.
  bool wants_places() const;

  /// For the guard alone; Services::policy is for the proxies.
  Policy policy() const {
    return inherited.fallen.load(std::memory_order_relaxed) == Fallen::kNot ? configured
                                                                            : Policy::kForceCpu;
  }
  /// Why FORCE_CPU applies: a constant, empty if the user has named FORCE_CPU.
  std::string_view because() const;

  std::atomic<uint32_t> touches{0};
  /// The names of attempts that need no more attention, in order of arrival. They are compared by
  /// address first, because the callers pass constants. Empty if `places` is in use.
  std::atomic<const char*> seen[24] = {};
  /// Used if a report or a launcher wants every place that asks.
  Places places;
  PythonFrames python_frames;
  /// Messages that are printed once per process, and not again by its forked children.
  enum Message : uint32_t {
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
  };
  /// True for the first caller with this bit, unless `other` was printed before.
  static bool print_once(Message bit, uint32_t other = 0) {
    return (inherited.printed.fetch_or(bit, std::memory_order_relaxed) & (bit | other)) == 0;
  }

  /// Hashes of distinct cases, in order of arrival. There are fewer events than places: two for
  /// each of 64 GPUs. The number of messages is not limited, but more of them are too many to read.
  using Cases = std::atomic<uint64_t>[256];
  Cases lines = {};
  Cases events = {};
  /// True for the first caller with this case. False if there are too many.
  static bool first_case(Cases& cases, uint64_t key);
  /// True if first_case() has had this case.
  static bool had_case(const Cases& cases, uint64_t key);

  /// Locks of the proxies. They are here because a thread of the parent may hold one at a fork, and
  /// the child would never find it free.
  std::atomic<uint32_t> binding{0};
  std::atomic<uint32_t> initialising{0};
  /// A cuInit has succeeded in this process; every guarded call reads this. Not a bool, whose load
  /// would be a function call under -Os.
  std::atomic<uint32_t> open{0};

  std::atomic<bool> proxies_looked{false};
  std::atomic<bool> no_nvml{false};  ///< NVML's proxy cannot be used
  /// Devices 0 to 63 that were selected successfully, one bit each.
  std::atomic<uint64_t> selected{0};
  Answers answers;
  std::atomic<int> device_count{0};  ///< the runtime's answer when CLAMP asked; 0: not yet
  ExplainProcess explain;
};

namespace detail {
Process& make_process(Process* stale);
}

/// Returns this process's state. The first call in a process creates it.
inline Process& process() {
  Process* known = inherited.process.load(std::memory_order_acquire);
  if (known != nullptr && known->ready && known->only_pid == 0) [[likely]] {
    return *known;
  }
  return detail::make_process(known);
}

/// True if this process was forked, and by a process that had more than one thread: it may have
/// inherited a lock locked, and no thread here will unlock it.
bool may_inherit_locks(Process& process);

/// Returns how to walk the objects that were loaded after the start.
LaterObjects later_objects();
/// The same for a search that begins at this code, which may be in a library that was loaded by a
/// request that we have not seen.
LaterObjects later_objects(const void* code);

/// Returns the configuration of the environment at the start. `forked`: as in Environment.
Config read_config(bool forked);

/// Sends the records of this process, and of its forked children, to `path` from now on.
void report_to(Process& process, const char* path);

/// Applies FORCE_CPU from now on, in forked children, too.
void fall_back(Process& process, Fallen because_of);

/// Returns the present value of a variable, null if it is unset. As unsafe as getenv() during a
/// setenv() in another thread.
const char* variable(const char* name);

/// True under AT_SECURE: setuid, setgid or file capabilities.
bool privileged();

}  // namespace cudaguard
