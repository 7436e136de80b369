// SPDX-License-Identifier: Apache-2.0
// A process that answers the calls of the seccomp filter when the launcher does not. A filter
// cannot be removed, and without an answer no program below it could start.
#pragma once

#include <sys/types.h>

#include <cstdint>

struct seccomp_notif;

namespace cudaguard::launcher {

/// The process answers before the launcher listens, and after its end. It also answers while the
/// launcher is stopped, or has done nothing for ten seconds, and counts these calls, because the
/// account lacks them.
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

  /// From here on, this process receives each call. Call it before the program starts.
  void listen();
  /// Receives a call that waits, or one that the process had received when it was killed. Returns 0
  /// or errno; EAGAIN if there is none. Call this often, and after the end of each child.
  int receive(int listener, seccomp_notif& to);
  /// How many calls the process has answered since listen().
  uint64_t answered() const;

  /// This process does not listen any more, and the other one answers all calls. With `left`,
  /// processes with the filter are left, and it lives as long as they (Linux 5.9).
  void end(bool left);

 private:
  struct Shared;

  pid_t pid_ = -1;
  int process_ = -1;  ///< its socket; closed after end()
  bool outlives_ = false;
  Shared* shared_ = nullptr;  ///< with the process
};

}  // namespace cudaguard::launcher
