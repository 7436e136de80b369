// SPDX-License-Identifier: Apache-2.0
// What the guard knows about this process: the configuration, which is that of the environment at
// its start, and what has been recorded so far. It lives in pages that the kernel
// wipes in a forked child (MADV_WIPEONFORK), so that a child's first touch is its own without any
// atfork handler. No lock, no malloc; thread-safe, async-signal-safe, callable before constructors.
#pragma once

#include <atomic>
#include <cstdint>

#include "policy/config.h"
#include "shim/state/answers.h"
#include "shim/state/inherited.h"
#include "shim/state/visible_gpus.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Of CUDA_VISIBLE_DEVICES.
struct LateWrite {
  /// What the variable was when something happened for the first time.
  struct Moment {
    std::atomic<int> state{0};  ///< 0: it has not happened, 1: being written, 2: it has
    const char* api = nullptr;
    unsigned count = 0;  ///< the GPUs that the program was told of
    bool set = false;
    char value[256] = {};  ///< perhaps cut: two values that differ only later are not told apart
  };
  Moment counted;
  Moment initialised;
};

struct Process {
  bool ready = false;  ///< false in a forked child
  /// Nothing is left to be settled before a dlopen goes on: FORCE_CPU, the null drivers tried, the
  /// loader known, no other hook behind ours. (Never set with only_pid.)
  std::atomic<bool> steady{false};
  uint32_t only_pid = 0;  ///< kernels without MADV_WIPEONFORK: valid in this process only
  Config config;  ///< its strings point into StartEnvironment, or are InheritedState::report
  std::atomic<bool> listens{false};  ///< as InheritedState's
  /// What makes it FORCE_CPU although the configuration lets CUDA through.
  enum Fallen : uint8_t { kStands, kNoProxy, kNotEnforced, kNotAccepted };
  std::atomic<uint8_t> fallen{kStands};

  Policy policy() const {
    return fallen.load(std::memory_order_relaxed) == kStands ? config.policy : Policy::kForceCpu;
  }
  /// Why it is FORCE_CPU, where nobody asked for that by name; a constant, else empty.
  std::string_view because() const;

  std::atomic<uint32_t> touches{0};
  /// Names whose touch was recorded (or is being recorded), in order of arrival. Compared by
  /// address first: the callers pass constants.
  std::atomic<const char*> seen[24] = {};
  /// Lines that are said once per process, and not again by its forked children.
  enum Message : uint32_t {
    kDenied = 1,
    kComplaints = 2,
    kReportFailed = 4,
    kNoDriver = 8,
    kNoNvml = 16,
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
  /// True for the first caller with this bit, if there was none with `other`.
  static bool print_once(Message bit, uint32_t other = 0) {
    return (inherited.said.fetch_or(bit, std::memory_order_relaxed) & (bit | other)) == 0;
  }

  /// Distinct cases: hashes, in order of arrival. There are fewer events than places (two for each
  /// of 64 GPUs); lines there may be any number, and more are too many to read.
  using Cases = std::atomic<uint64_t>[256];
  Cases lines = {};
  Cases events = {};
  /// True for the first caller with this case. False as well when there are too many.
  static bool first_case(Cases& cases, uint64_t key);

  /// Of the proxies. Their locks are here because a thread of the parent may hold one when it
  /// forks: the child would never find it free.
  std::atomic<uint32_t> binding{0};
  std::atomic<uint32_t> initialising{0};
  /// A cuInit has succeeded here. Every guarded call asks. (The load of a bool would be a function
  /// call under -Os.)
  std::atomic<uint32_t> open{0};

  std::atomic<bool> proxies_looked{false};
  std::atomic<bool> no_nvml{false};  ///< its proxy cannot be used
  std::atomic<bool> fork_checked{false};
  /// Devices 0 to 63 that were selected with success, one bit each.
  std::atomic<uint64_t> selected{0};
  Answers answers;
  std::atomic<int> device_count{0};  ///< what the runtime said when CLAMP asked; 0: not yet
  LateWrite late_write;
  std::atomic<bool> visible_known{false};
  VisibleGpus visible;
};

namespace detail {
Process& make_process(Process* stale);
}

/// This process's state; made when this is the first call here.
inline Process& process() {
  Process* known = inherited.process.load(std::memory_order_acquire);
  if (known != nullptr && known->ready && known->only_pid == 0) [[likely]] {
    return *known;
  }
  return detail::make_process(known);
}

/// What the environment said at the start. `forked`: as in Environment.
Config read_config(bool forked);

/// Where the records of this process, and of those that it forks, go from now on.
void report_to(Process& process, const char* path);

/// FORCE_CPU from now on, in forked children too.
void fall_back(Process& process, Process::Fallen because_of);

/// A variable as the program has it now; null: unset. As safe as getenv() beside setenv().
const char* variable(const char* name);

/// AT_SECURE: setuid, setgid, file capabilities.
bool privileged();

}  // namespace cudaguard
