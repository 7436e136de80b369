// SPDX-License-Identifier: Apache-2.0
// A process that answers the calls of the seccomp filter whenever the launcher does not: before it
// listens, while it is stopped or blocked, and after its end. A filter cannot be removed, and
// without an answer no program below it could start.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

namespace cudaguard::launcher {

/// True for execve and execveat. The kernel carries them out after an answer with kContinue.
bool is_exec(const seccomp_notif& call);
/// Lets execve pass, hears a beacon, refuses an ioctl. Returns false if the thread does not wait,
/// or has its answer.
bool answer_call(int listener, const seccomp_notif& call);
/// Returns false if the thread was killed meanwhile, or has its answer. Its id may then belong to
/// another thread.
bool still_waits(int listener, const seccomp_notif& call);

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
  /// Its end tells the process that this one has ended.
  int descriptor() const { return socket_; }
  /// From here on this process answers the calls.
  void begin();
  /// This process answers no more. If processes with the filter are `left`, the other process lives
  /// as long as they (Linux 5.9).
  void end(bool left);

  /// Receives a call that waits, and blocks for none. Returns 0 or errno; EAGAIN if no call waits,
  /// or if the other process receives it.
  int receive(int listener, seccomp_notif& call);
  /// Call this often: otherwise the other process takes this one for blocked.
  void note_progress();
  /// True if the other process has answered a call instead of this one.
  bool has_missed() const;

  struct Shared;  ///< what both processes use

 private:
  pid_t pid_ = -1;  ///< 0: it is not our child
  int socket_ = -1;
  Shared* shared_ = nullptr;
};

}  // namespace cudaguard::launcher
