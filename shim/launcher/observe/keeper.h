// SPDX-License-Identifier: Apache-2.0
// A process that answers the calls of the seccomp filter when the launcher does not. A filter
// cannot be removed, and without an answer no program below it could start.
#pragma once

#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace cudaguard::launcher {

/// The process answers before the launcher listens, and after its end. While the launcher is
/// stopped, or has done nothing for ten seconds, it answers the starts of programs, which are then
/// missing in the account, and leaves the other calls, which decide the verdict, to the launcher.
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

  /// This process must keep it: the other one takes over when it is closed.
  int descriptor() const { return process_; }

  /// From here on, this process receives each call.
  void listen();
  /// Call this often.
  void note_progress() { shared_->progress.fetch_add(1, std::memory_order_relaxed); }
  /// How many calls the process has answered since then.
  uint64_t answered() const { return shared_->answered; }
  /// The next call that the process has received for this one, or had not answered when it was
  /// killed.
  std::optional<seccomp_notif> take();

  /// This process does not listen any more. The other one answers all calls.
  void end();
  /// If processes with the filter are left, the other process lives as long as they (Linux 5.9).
  void outlive(bool left) { outlives_ = left; }

  /// What both processes use.
  struct Shared {
    std::atomic<uint64_t> progress{0};  ///< of the launcher
    std::atomic<uint64_t> answered{0};  ///< calls, by the process
    std::atomic<bool> over{false};      ///< no process with the filter is left
    pthread_mutex_t receiving = {};     ///< held by the one that receives a call
    seccomp_notif last = {};            ///< the launcher's, which it may not have answered
    seccomp_notif held = {};            ///< the process's, likewise; its id is 0 if there is none
    std::array<seccomp_notif, 64> left = {};  ///< a ring of calls for the launcher
    std::atomic<uint64_t> put{0};             ///< how many the process has put into it
    std::atomic<uint64_t> taken{0};           ///< how many the launcher has taken
  };
  /// Receives a call that waits, and blocks for none. Returns 0 or errno; EAGAIN if no call waits,
  /// or if the other process receives it. `progress`: only if the launcher has made no more.
  static int receive(Shared& shared, int listener, seccomp_notif& to,
                     std::optional<uint64_t> progress = {});
  int receive(int listener) { return receive(*shared_, listener, shared_->last); }
  const seccomp_notif& received() const { return shared_->last; }

 private:
  pid_t pid_ = -1;    ///< 0: it is not our child
  int process_ = -1;  ///< its socket; closed after end()
  bool outlives_ = false;
  Shared* shared_ = nullptr;
};

}  // namespace cudaguard::launcher
