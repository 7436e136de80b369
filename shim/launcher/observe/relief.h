// SPDX-License-Identifier: Apache-2.0
// A process that receives the calls of the seccomp filter while the launcher is stopped or has no
// time. It answers start beacons itself, so that no program has to wait for the launcher to start.
// It passes all other calls on: whatever decides the verdict waits for the launcher, which alone
// may read the memory of the calling process (Yama).
#pragma once

#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// True for a start beacon.
bool is_start(const seccomp_notif& call);

class Relief {
 public:
  /// Starts the process. It is in a session of its own, so that neither Ctrl-Z nor a signal to the
  /// launcher's process group reaches it. It ends with this object, or with the launcher. Both
  /// processes hold `listener`, which is Fence::listener. If it is -1, without /proc, or if the
  /// process cannot be started, there is none, and every call waits for the launcher.
  explicit Relief(int listener);
  ~Relief();
  Relief(const Relief&) = delete;
  Relief& operator=(const Relief&) = delete;

  /// Readable if take() has something. -1: there is no process.
  int descriptor() const { return calls_; }
  /// Call this often. The process takes over if it has not been called for some time.
  void note_progress() {
    if (shared_ != nullptr) shared_->progress.fetch_add(1, std::memory_order_relaxed);
  }

  /// Ends the process, so that it no longer holds `listener`.
  void end();

  /// A call that the process has received.
  struct Call {
    seccomp_notif call;
    Identity who;        ///< of a start beacon
    std::string record;  ///< of a start beacon, which has its answer already
  };
  /// Waits only for a call that the process has received and not yet passed on, for at most three
  /// seconds. Then it ends the process.
  std::optional<Call> take();
  /// True if a call that the process has received was not taken.
  bool is_behind() const {
    return shared_ != nullptr && shared_->received.load(std::memory_order_acquire) > taken_;
  }

  /// What both processes use.
  struct Shared {
    std::atomic<uint64_t> progress{0};  ///< of the launcher
    std::atomic<uint64_t> received{0};  ///< calls, by the process
    pthread_mutex_t receiving = {};     ///< held by the one that receives a call
  };
  /// Receives a call that waits, and blocks for none. Returns 0 or errno; EAGAIN if no call waits,
  /// or if the other process receives it.
  static int receive(Shared* shared, int listener, seccomp_notif* to);
  int receive(int listener, seccomp_notif* to) const { return receive(shared_, listener, to); }

 private:
  pid_t pid_ = -1;
  int calls_ = -1;
  Shared* shared_ = nullptr;
  uint64_t taken_ = 0;
};

}  // namespace cudaguard::launcher
