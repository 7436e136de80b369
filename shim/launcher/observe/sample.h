// SPDX-License-Identifier: Apache-2.0
// Looks at this process's descendants from time to time: is the guard in them? What lives shorter
// than that is not seen; --trace (trace.h) tells of every execve.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// Since 1970-01-01 UTC.
double seconds_now();

class Watch {
 public:
  /// Construct it before the program starts. `report` is the program's CUDAGUARD_REPORT, or empty
  /// if the guards send beacons.
  explicit Watch(const std::string& report);

  /// Looks, if it is time. Returns when that will be again. Throws nothing: a program is running.
  std::chrono::milliseconds sample() noexcept;

  /// Of a tracer: it stands at the end of execve.
  void note_exec(pid_t pid) noexcept;

  /// It has run into the fence, and waits: it is looked at now, if it was not before.
  void note_request(pid_t pid) noexcept;

  /// Its guard has sent the start beacon, and waits for the answer.
  void note_start(const Identity& who) noexcept;

  /// Call this at the end with the started program, which may have ended before the first look.
  void note_program(pid_t pid, const std::string& path);

  /// After the last process has ended.
  TreeTruth finish(const Findings& findings) const;

 private:
  struct Listed {
    TreeTruth::Unguarded entry;
    Answer::Is is;
    Writer writer;
    bool forked;
    bool hides;  ///< as Answer's
  };
  struct Process {
    TreeTruth::Seen seen;
    Image image;  ///< of the program at the last judge()
    FileId file;  ///< likewise; without ASLR two programs can have the same Image
    bool judged = false;
    bool loaded = false;          ///< the guard was seen in it, and not only foreseen
    bool heard = false;           ///< it has sent a start beacon
    bool inherits = false;        ///< forked from one that was heard, and has not called execve
    std::string due;              ///< its name, if it must send a start beacon
    int looks = 0;                ///< at this program, after the first one
    bool may_be_refused = false;  ///< a seccomp filter of its own may refuse the beacon
    size_t listed = SIZE_MAX;     ///< its place in listed_
  };
  /// A guarded process that must have written a start record.
  struct Expected {
    std::string name;  ///< "python3 (12)"
    bool forked;
  };
  using Key = std::pair<uint64_t, pid_t>;  ///< since when, and its number

  template <typename Look>
  void try_to(Look look) noexcept;
  void look_at_all(double now);
  void look_at(pid_t pid, const Stat& stat, double now);
  Process& process_of(pid_t pid, const Stat& stat, double now);
  void judge(Process& process, const Stat& stat, const Answer& answer, bool loaded);
  void list(Process& process, const Answer& answer, const Writer& writer, bool forked);
  void begin_program(Process& process, const Image& image, const FileId& file);
  bool may_be_refused(pid_t pid) const;
  bool was_heard(const Process& process) const;
  bool parent_was_heard(const Stat& stat) const;
  std::string missing(const std::set<Writer>& started) const;

  const bool listens_;  ///< the guards send beacons
  const std::optional<uint64_t> filters_ = filters_of(getpid());
  Examiner examiner_;
  std::set<pid_t> others_;  ///< children that this process had before
  std::map<Key, Process> processes_;
  std::map<Writer, Expected> expected_;  ///< the processes that must write to the report
  std::vector<std::string> unheard_;     ///< names of programs whose start beacon never came
  std::vector<Listed> listed_;
  std::chrono::steady_clock::time_point next_;
  bool traced_ = false;
  bool some_untraced_ = false;
  std::string blind_;  ///< why nothing can be looked at
};

}  // namespace cudaguard::launcher
