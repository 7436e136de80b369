// SPDX-License-Identifier: Apache-2.0
// The account of the programs that the processes of the tree start. The kernel tells of each call
// of execve, and a start beacon confirms a guarded program. Whether the call has succeeded follows
// from what the process is afterwards; if it has ended meanwhile, from the file alone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/observe/start.h"

namespace cudaguard::launcher {

/// Seconds since 1970-01-01 UTC.
double seconds_now();

class Starts {
 public:
  /// `guard` is as for StartReader. `unguarded` says why the first program is not guarded; empty if
  /// it is.
  Starts(const std::string& guard, std::string unguarded)
      : reader_(guard), unguarded_(std::move(unguarded)) {}

  /// See StartReader. Sets Start::started_by and Start::process, too.
  Start read(const Identity& who, const seccomp_data& call);

  /// The process has called execve, which goes on.
  void note_call(const Identity& who, Start start);
  /// The process's guard has sent the start beacon. `off`: its policy is OFF, so the process counts
  /// as unguarded. Returns the program's arguments; empty if they are not known.
  std::string note_beacon(const Identity& who, bool off);
  /// What has started the process's program, as in Start.
  std::string started_by(pid_t pid) const;

  /// Looks at processes that are due. Returns the time until the next is, zero for none. Never
  /// throws: a program runs.
  std::chrono::milliseconds look() noexcept;

  /// Call this after the last process has ended.
  TreeTruth finish(const Findings& findings);

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<pid_t, uint64_t>;  ///< process id and start time
  struct Process;
  using Due = std::multimap<Clock::time_point, Process*>;

  /// One that a process runs, or will run if execve succeeds.
  struct Program {
    Start start;
    pid_t thread = 0;  ///< that called execve
    Stat before = {};  ///< of the process, when it made the call
    double at = 0;
    Image image = {};                 ///< as the start beacon has shown it
    bool heard = false;               ///< its start beacon has come
    bool off = false;                 ///< which says OFF
    std::optional<bool> inside = {};  ///< ld.so was at work at the last look that could tell
    bool filtered = false;            ///< a seccomp filter of its own may have refused the beacon
    bool driver = false;              ///< as in TreeTruth::Unguarded, with the next one
    bool only_nvml = false;
  };
  struct Process {
    pid_t pid = 0;
    TreeTruth::Seen seen;
    bool counts = false;               ///< a program of it is in the account
    std::optional<Program> runs;       ///< nothing for a forked process
    std::optional<Program> called;     ///< whether this execve has succeeded is not known yet
    std::chrono::milliseconds wait{};  ///< from the last look to the next
    std::optional<Due::iterator> due;
  };

  Process& process_of(const Identity& who);
  const Process* last_with(pid_t pid) const;
  const Program* running_in(pid_t pid) const;
  std::string arguments_of(const Identity& who) const;
  static std::optional<bool> has_become(const Process& process, const Stat& now);
  void begin(Process& process);
  void end(Process& process);
  void look_at(Process& process);
  void look_inside(pid_t thread, const Stat& stat, Program& program) const;
  void look_later(Process& process);

  const std::vector<uint64_t> filters_ = status_of(getpid(), "Seccomp_filters");
  StartReader reader_;
  std::string unguarded_;
  bool is_first_ = true;
  std::map<Key, Process> processes_;
  Due due_;
  TreeTruth truth_;
  std::string blind_;  ///< why no process can be looked at
};

}  // namespace cudaguard::launcher
