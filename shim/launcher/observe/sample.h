// SPDX-License-Identifier: Apache-2.0
// Tells the guarded processes of the tree from the others. A process is guarded if its program has
// sent a start beacon, or if it was forked from such a process and has not called execve. Samples
// of /proc find the others, and why the guard is not in them. They miss short-lived processes.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// Seconds since 1970-01-01 UTC.
double seconds_now();

class Watch {
 public:
  /// Construct it before the program starts. `on_look` is called for each process that is looked
  /// at, after its program is known and before it is judged.
  explicit Watch(std::function<void()> on_look);

  /// Takes a sample if one is due. Returns the time until the next. Never throws: a program runs.
  std::chrono::milliseconds sample() noexcept;

  /// The process waits in an ioctl that the fence caught. Examines it unless that was done before.
  void note_request(pid_t pid) noexcept;

  /// The process's guard has sent the start beacon and waits for the answer. `off`: its policy is
  /// OFF, so the process counts as unguarded.
  void note_start(const Identity& who, bool off) noexcept;

  /// Call this at the end with the started program, which may have ended before a look could tell
  /// whether it is guarded. `unguarded` says why it is not; empty if it is.
  void note_program(pid_t pid, const std::string& path, const std::string& unguarded);

  /// Call this after the last process has ended.
  TreeTruth finish(const Findings& findings);

 private:
  /// Identifies a program that runs: its Image, and the device and inode of its executable, because
  /// without ASLR two programs can have the same Image. A forked child shares it with its parent.
  using ProgramId = std::pair<Image, std::array<uint64_t, 2>>;
  static ProgramId program_of(const Image& image, const FileId& file);
  struct Process;
  static bool runs_another(const Process& process);
  struct Process {
    TreeTruth::Seen seen;  ///< `guarded` and `heard` are of the program below
    ProgramId program;
    uint64_t code = 0;            ///< code_pages() of that program
    bool hidden = false;          ///< another program since, whose memory is unreadable
    size_t listed = SIZE_MAX;     ///< its place in listed_, if the program was not heard
    bool in_loader = false;       ///< it was seen while ld.so was at work
    bool may_be_refused = false;  ///< a seccomp filter of its own may refuse the beacon
    std::optional<uint64_t> cpu;  ///< the CPU time at the first look that could not tell this
  };
  struct Listed {
    TreeTruth::Unguarded entry;
    Cause cause;
    bool heard = false;  ///< its beacon came later
  };
  using Key = std::pair<uint64_t, pid_t>;  ///< start time and process id

  template <typename Look>
  void try_to(Look look) noexcept;
  void look_at_all(double now);
  void note_hidden(pid_t pid);
  void look_at_thread(pid_t pid, const Stat& ended, double now);
  void look_at(pid_t pid, const Stat& stat, double now, bool runs_code);
  Cause cause_of(pid_t pid, bool is_sure);
  void list(Process& process, const Cause& cause);
  Process& process_of(pid_t pid, const Stat& stat, double now);
  void begin_program(Process& process, const Stat& stat, const ProgramId& program);
  bool has_begun(Process& process, const Stat& stat) const;
  bool may_be_refused(pid_t pid) const;
  bool forked_from_heard(const Stat& stat, const ProgramId& program) const;
  std::string silent() const;
  std::string unseen() const;

  const std::optional<uint64_t> filters_ = filters_of(getpid());
  Causes causes_;
  std::function<void()> on_look_;
  std::set<pid_t> others_;  ///< children that this process had before it started the program
  std::map<Key, Process> processes_;
  std::set<ProgramId> heard_;
  std::set<ProgramId> off_;           ///< those whose policy is OFF
  std::vector<std::string> refused_;  ///< programs that ended in ld.so under a filter of their own
  std::vector<Listed> listed_;
  std::set<pid_t> hidden_;  ///< processes that /proc does not show
  std::chrono::steady_clock::time_point next_;
  std::string blind_;  ///< why no process can be examined
};

}  // namespace cudaguard::launcher
