// SPDX-License-Identifier: Apache-2.0
// The program as a child, and everything that it starts: waits for all of it. What comes to this
// process as a signal was meant for the program.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace cudaguard::launcher {

class Trace;

class Tree {
 public:
  /// From here on no signal ends or stops this process. Those that it was started with blocked or
  /// ignored are so in the program.
  Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  /// Before start(). `serve` is called while wait() waits, and the descriptor can be read; false:
  /// never again. Throws Refusal.
  void serve(int descriptor, std::function<bool()> serve);

  /// `become` is called in the child, replaces it by the program, and returns errno if it cannot.
  /// Throws Refusal where there can be no child. Gives up all descriptors but the standard error,
  /// the one that is served, and `kept`.
  /// `trace`: follows it; may be null.
  void start(const std::function<int()>& become, Trace* trace = nullptr,
             std::vector<int> kept = {});

  /// Until every process of the tree has ended, or somebody does not want to wait for those that
  /// the program has left behind. Calls `now_and_then`, which says after how long at the latest it
  /// wants to be called again (zero: it does not matter), and once more at the end.
  void wait(const std::function<std::chrono::milliseconds()>& now_and_then);

  pid_t pid() const { return pid_; }  ///< the program's
  /// Of execve; 0: the program was started.
  int start_error() const { return *start_error_; }
  /// As waitpid gives it.
  int status() const { return status_; }
  /// Processes that were not waited for: "sleep (12), cat (13)". Empty: all have ended.
  const std::string& left() const { return left_; }

 private:
  enum class Program { kRuns, kEnds, kHasEnded };

  void reap();
  void note_program(int status);
  void take_signals();
  void handle(const siginfo_t& signal);
  bool is_refused(int number) const;
  bool has_it_already(const siginfo_t& signal) const;
  void stop_or_go_on();
  bool is_over();
  int next_signal(std::chrono::milliseconds patience, siginfo_t& signal);
  bool wait_for_signal(std::chrono::milliseconds patience, siginfo_t& signal);
  std::set<pid_t> left_behind() const;

  sigset_t all_ = {};
  sigset_t mask_ = {};              ///< as this process was started
  struct sigaction on_child_ = {};  ///< likewise
  int* start_error_ = nullptr;      ///< shared with the child
  std::set<pid_t> others_;          ///< children that this process had before
  Trace* trace_ = nullptr;
  int served_ = -1;
  int signals_ = -1;  ///< signalfd(2): to wait for both
  std::function<bool()> serve_;
  pid_t pid_ = -1;
  Program program_ = Program::kRuns;
  int status_ = 0;
  int stopped_by_ = 0;
  bool continued_ = false;    ///< it has gone on by itself
  bool to_continue_ = false;  ///< somebody has told us to
  timespec ended_at_ = {};
  bool none_left_ = false;
  bool no_longer_ = false;
  bool said_ = false;
  std::string left_;
};

/// Ends as a child with this status has ended, without a core file of its own.
[[noreturn]] void end_as(int status);

}  // namespace cudaguard::launcher
