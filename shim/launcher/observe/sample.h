// SPDX-License-Identifier: Apache-2.0
// Samples the descendants of this process and checks whether the guard is in them. Sampling misses
// short-lived processes; --trace (trace.h) reports every execve.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// Seconds since 1970-01-01 UTC.
double seconds_now();

class Watch {
 public:
  /// Construct it before the program starts. `report` is the program's CUDAGUARD_REPORT, or empty
  /// if the guards send beacons. `on_look` is called for each process
  /// that is looked at, after its program is known and before it is judged.
  Watch(const std::string& report, std::function<void()> on_look);

  /// Takes a sample if one is due. Returns the time until the next. Never throws: a program runs.
  std::chrono::milliseconds sample() noexcept;

  /// The tracer calls this while the process is at the end of execve.
  void note_exec(pid_t pid) noexcept;

  /// The process waits in an ioctl that the fence caught. Examines it unless that was done before.
  void note_request(pid_t pid) noexcept;

  /// The process's guard has sent the start beacon and waits for the answer.
  void note_start(const Identity& who) noexcept;

  /// Call this at the end with the started program, which may have ended before the first look.
  void note_program(pid_t pid, const std::string& path);

  /// Call this after the last process has ended.
  TreeTruth finish(const Findings& findings) const;

 private:
  struct Listed {
    TreeTruth::Unguarded entry;
    Answer::Is is;
    Writer writer;
    bool forked;
    bool hides;  ///< as in Answer
  };
  struct Process {
    TreeTruth::Seen seen;
    Image image;  ///< of the program at the last judge()
    FileId file;  ///< likewise; without ASLR two programs can have the same Image
    bool judged = false;
    bool loaded = false;          ///< the guard was seen in it, and not only foreseen
    bool heard = false;           ///< the process has sent a start beacon
    bool inherits = false;        ///< forked from one that was heard; no execve since
    std::string due;              ///< the process's name, if it must send a start beacon
    bool has_begun = false;       ///< ld.so has ended in this program
    std::optional<uint64_t> cpu;  ///< the CPU time at the first look that could not tell this
    bool may_be_refused = false;  ///< a seccomp filter of its own may refuse the beacon
    size_t listed = SIZE_MAX;     ///< its place in listed_
  };
  /// A guarded process that must have written a start record.
  struct Expected {
    std::string name;  ///< "python3 (12)"
    bool forked;
  };
  using Key = std::pair<uint64_t, pid_t>;  ///< start time and process id

  template <typename Look>
  void try_to(Look look) noexcept;
  void look_at_all(double now);
  void look_at(pid_t pid, const Stat& stat, double now);
  Process& process_of(pid_t pid, const Stat& stat, double now);
  void judge(Process& process, const Stat& stat, const Answer& answer, bool loaded);
  void list(Process& process, const Answer& answer, const Writer& writer, bool forked);
  void note_loader(Process& process, const Stat& stat);
  void begin_program(Process& process, const Image& image, const FileId& file);
  bool may_be_refused(pid_t pid) const;
  bool was_heard(const Process& process) const;
  bool parent_was_heard(const Stat& stat) const;
  std::string missing(const std::set<Writer>& started) const;

  const bool listens_;  ///< the guards send beacons
  const std::optional<uint64_t> filters_ = filters_of(getpid());
  Examiner examiner_;
  std::function<void()> on_look_;
  std::set<pid_t> others_;  ///< children that this process had before it started the program
  std::map<Key, Process> processes_;
  std::map<Writer, Expected> expected_;  ///< the processes that must write to the report
  std::vector<std::string> unheard_;     ///< names of programs whose start beacon never came
  std::vector<Listed> listed_;
  std::chrono::steady_clock::time_point next_;
  bool traced_ = false;
  bool some_untraced_ = false;
  std::string blind_;  ///< why no process can be examined
};

}  // namespace cudaguard::launcher
