// SPDX-License-Identifier: Apache-2.0
// Runs the program as a child and waits for all its descendants. Passes signals that this process
// receives on to the program.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cudaguard::launcher {

class Tree {
 public:
  /// From here on no signal ends or stops this process. The program still inherits the signals that
  /// were blocked or ignored before. wait() returns at the latest `grace` after the program's end.
  /// Throws Refusal.
  explicit Tree(std::optional<std::chrono::milliseconds> grace);
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  /// Call this before start(). wait() does not wait while the descriptor is readable. -1: there is
  /// none any more.
  void wake_by(std::function<int()> descriptor) { waker_ = std::move(descriptor); }

  /// Calls `become` in the child, which replaces the child by the program, or returns errno. Closes
  /// all descriptors but the standard error and `kept`. Throws Refusal if the child
  /// cannot be started.
  void start(const std::function<int()>& become, std::vector<int> kept = {});

  /// Returns when every process of the tree has ended, or when the user ends the wait for processes
  /// that the program left running. Calls `now_and_then`, which returns the longest time until
  /// its next call (zero: no limit), also after each end of a child and once more at the end.
  void wait(const std::function<std::chrono::milliseconds()>& now_and_then);

  pid_t pid() const { return pid_; }  ///< the program's id
  /// The errno value of a failed execve; 0 if the program was started.
  int start_error() const { return *start_error_; }
  /// As waitpid returns it.
  int status() const { return status_; }
  /// Processes that were still running at the end: "sleep (12), cat (13)". Empty if all have ended.
  const std::string& left() const { return left_; }

 private:
  enum class Program { kRuns, kEnds, kHasEnded };

  void reap();
  void note_program(int status);
  void take_signals();
  void handle(const siginfo_t& signal);
  bool is_refused(int number) const;
  bool has_it_already(const siginfo_t& signal) const;
  void handle_stop(const siginfo_t& signal);
  void pass_on(const siginfo_t& signal) const;
  void stop_or_go_on();
  void stop(int number) const;
  bool is_over();
  /// Returns true if a signal waits.
  bool pause(std::chrono::milliseconds patience);
  std::optional<std::set<pid_t>> left_over() const;
  std::chrono::milliseconds since_end() const;

  sigset_t all_ = {};
  sigset_t mask_ = {};              ///< this process's signal mask before the constructor
  struct sigaction on_child_ = {};  ///< the same for the action of SIGCHLD
  int* start_error_ = nullptr;      ///< shared with the child
  std::set<pid_t> others_;          ///< children that this process had before start()
  std::function<int()> waker_;
  int signals_ = -1;  ///< signalfd(2), which is never read: see pause()
  pid_t pid_ = -1;
  Program program_ = Program::kRuns;
  int status_ = 0;
  int stopped_by_ = 0;        ///< the signal, until this process has stopped, too
  bool is_stopped_ = false;   ///< the program
  bool continued_ = false;    ///< the program continued by itself
  bool to_continue_ = false;  ///< this process has received SIGCONT
  std::chrono::steady_clock::time_point ended_at_;
  const std::optional<std::chrono::milliseconds> grace_;
  bool none_left_ = false;
  bool no_longer_ = false;
  bool reported_ = false;
  std::string left_;
};

/// Ends this process with the same status as the child, but without a core file.
[[noreturn]] void end_as(int status);

}  // namespace cudaguard::launcher
