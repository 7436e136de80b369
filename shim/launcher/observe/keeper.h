// SPDX-License-Identifier: Apache-2.0
// A process that receives the calls of the seccomp filter whenever the launcher does not: before it
// listens, while it is stopped or has no time, and after its end. A filter cannot be removed, and
// without an answer no program below it could start.
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
/// True for execve and execveat. The kernel carries them out after an answer with kContinue.
bool is_exec(const seccomp_notif& call);

/// Lets execve pass, hears a beacon, refuses an ioctl. Returns false if the thread does not wait,
/// or has its answer.
bool answer_call(int listener, const seccomp_notif& call);
/// Returns false if the thread was killed meanwhile, or has its answer. Its id may then belong to
/// another thread.
bool still_waits(int listener, const seccomp_notif& call);

/// While the launcher lives, the process lets each execve pass and hears start beacons, so that no
/// program has to wait for the launcher to start, also the one that a stopped launcher has
/// received. It forwards these calls, too. All others wait for the launcher: they decide the
/// verdict, and the launcher alone may read the memory of the calling process (Yama).
class Keeper {
 public:
  /// Starts the process. It is in a session of its own, so that neither Ctrl-Z nor a signal to the
  /// launcher's process group reaches it. Construct it before the filter is installed: the kernel
  /// reports the end of the last process that has the filter. Throws Refusal.
  Keeper();
  /// Ends the process, unless it must outlive this one.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Gives `listener`, which is Fence::listener, to the process. Throws Refusal.
  void keep(int listener);

  /// Readable if take() has something. -1 after end().
  int descriptor() const { return calls_; }
  /// Call this often. From the first time on, this process listens, and the other one takes over if
  /// this has not been called for some time.
  void note_progress() { shared_->progress.fetch_add(1, std::memory_order_relaxed); }

  /// This process does not listen any more. The other one answers all calls.
  void end();
  /// If processes with the filter are left, the other process lives as long as they (Linux 5.9).
  void outlive(bool left) { outlives_ = left; }

  /// A call that the process has received, or has taken from the stopped launcher. All zero if the
  /// launcher was faster.
  struct Call {
    seccomp_notif call;
    bool answered;       ///< true for an execve and for a start beacon
    Identity who;        ///< of an answered call
    std::string record;  ///< of an answered start beacon
  };
  /// Waits only for a call that the process has received and not yet passed on, for at most three
  /// seconds. Then it ends the process.
  std::optional<Call> take();
  /// True if a call that the process has received was not taken.
  bool is_behind() const { return shared_->received.load(std::memory_order_acquire) > taken_; }

  /// What both processes use.
  struct Shared {
    std::atomic<uint64_t> progress{0};  ///< of the launcher
    std::atomic<uint64_t> received{0};  ///< calls, by the process
    std::atomic<bool> over{false};      ///< no process with the filter is left
    pthread_mutex_t receiving = {};     ///< held by the one that receives a call
    seccomp_notif last = {};  ///< the launcher's, which it may have died without answering
    /// The process's, likewise. Its id is 0 if it is answered or passed on.
    seccomp_notif held = {};
  };
  /// Receives a call that waits, and blocks for none. Returns 0 or errno; EAGAIN if no call waits,
  /// or if the other process receives it.
  static int receive(Shared& shared, int listener, seccomp_notif& to);
  int receive(int listener) { return receive(*shared_, listener, shared_->last); }
  const seccomp_notif& received() const { return shared_->last; }

 private:
  void kill();
  /// The call that the process had when it was killed.
  std::optional<Call> held() const;

  pid_t pid_ = -1;  ///< 0: it is not our child
  int calls_ = -1;
  bool outlives_ = false;
  Shared* shared_ = nullptr;
  uint64_t taken_ = 0;
};

}  // namespace cudaguard::launcher
