// SPDX-License-Identifier: Apache-2.0
// What the guard knows about this process: who it is, which policy applies, and what each directory
// of the guard has in its state.h. The state lives in pages that the kernel wipes in a forked child
// (MADV_WIPEONFORK). So a child's first attempt counts as new without an atfork handler. What a
// child keeps is in InheritedState. All-zero is a valid state of every part, because no constructor
// runs. No lock, no malloc; thread-safe, async-signal-safe, callable before constructors.
#pragma once

#include <atomic>
#include <cstdint>

#include "policy/decision.h"
#include "shim/guard/explain/state.h"
#include "shim/guard/exports/state.h"
#include "shim/guard/hook/state.h"
#include "shim/guard/proxy_loader/state.h"
#include "shim/guard/record/state.h"
#include "shim/guard/stack/state.h"
#include "shim/guard/state/inherited.h"
#include "shim/proxy/state.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Process {
  bool ready = false;  ///< false in a forked child
  /// From a process whose other threads may have held a lock. Found out by may_inherit_locks(),
  /// or at once if the other process had such a state: a child that has started threads of its own
  /// before counts, too.
  std::atomic<bool> forked{false};
  std::atomic<bool> fork_known{false};
  uint32_t only_pid = 0;  ///< for kernels without MADV_WIPEONFORK: valid in this process only
  HookProcess hook;
  /// Made at the start. Its strings point into StartEnvironment or InheritedState::report. The
  /// first page of a Process has all of it.
  Decision decision;

  bool has_fallen() const { return hook.is(HookState::kFallen); }
  /// Returns the policy in force. For the guard alone; Services::policy is for the proxies.
  /// Inlined, because each repeated attempt asks.
  [[gnu::always_inline]] Policy policy() const {
    return has_fallen() ? Policy::kForceCpu : decision.calls;
  }
  /// Returns the policy by which libraries are loaded.
  Policy loads() const { return has_fallen() ? Policy::kForceCpu : decision.loads; }
  /// Why FORCE_CPU applies: a constant, empty if the user has named FORCE_CPU.
  std::string_view because() const;

  ProxyProcess proxy;
  ProxyLoaderProcess proxy_loader;
  RecordProcess record;
  PythonFrames python_frames;
  ExportsProcess exports;
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

/// Returns the decision about this process from the environment at the start. `forked`: as in
/// ProcessIdentity.
Decision read_decision(bool forked);

/// Sends the records of this process, and of its forked children, to `path` from now on. Returns
/// false without any change if the machine's file says where they go.
bool report_to(Process& process, const char* path);

/// Applies FORCE_CPU from now on, in forked children, too.
void fall_back(Process& process, Fallen because_of);

/// Returns the present value of a variable, null if it is unset. As unsafe as getenv() during a
/// setenv() in another thread.
const char* variable(const char* name);

/// True under AT_SECURE: setuid, setgid or file capabilities.
bool privileged();

}  // namespace cudaguard
