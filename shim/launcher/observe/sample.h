// SPDX-License-Identifier: Apache-2.0
// Looks at this process's descendants from time to time: is the guard in them? What lives shorter
// than that is not seen; --trace (trace.h) tells of every execve.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/observe/process.h"
#include "shim/launcher/report/model.h"

namespace cudaguard::launcher {

class Watch {
 public:
  /// Before the program is started. `report`: what CUDAGUARD_REPORT names for it.
  explicit Watch(const std::string& report);

  /// Looks, if it is time. Returns when that will be again. Throws nothing: a program is running.
  std::chrono::milliseconds sample() noexcept;

  /// Of a tracer: it stands at the end of execve.
  void note_exec(pid_t pid) noexcept;

  /// It has run into the fence, and waits: it is looked at now, if it was not before.
  void note_request(pid_t pid) noexcept;

  /// After the last process has ended. `left`: those that have not; `doubt`: why records may be
  /// missing; both may be empty.
  TreeTruth finish(const Findings& findings, const std::string& left, const std::string& doubt);

 private:
  /// What the processes are in that share an image.
  struct Program {
    Answer answer;
    bool loaded = false;  ///< that is so, and not only foreseen
    std::set<Writer> writers;
    bool only_forks = true;  ///< who was started as it was not seen
    std::string name;        ///< "python3 (12)"
  };
  struct Found {
    Answer answer;
    std::string command;
    Writer writer;
    Driver driver = Driver::kNone;
  };
  struct Listed {
    TreeTruth::Unguarded entry;
    Answer::Is is;
    Image image;
  };
  struct Process {
    TreeTruth::Seen seen;
    Image image;
    bool forked = false;
    bool judged = false;
    size_t listed = SIZE_MAX;  ///< its place there
  };
  using Key = std::pair<uint64_t, pid_t>;  ///< since when, and its number

  void look_at_all(double now);
  void look_at(pid_t pid, const Stat& stat, double now);
  Process& process_of(pid_t pid, const Stat& stat, double now);
  Found look(pid_t pid, const Answer* known, bool at_exec);
  void judge(Process& process, const Image& image, const Found& found, bool loaded);
  static bool has_written(const Program& program, const std::set<Writer>& started);
  std::string missing(const std::set<Writer>& started) const;

  Examiner examiner_;
  Image own_;               ///< before execve a child has it
  std::set<pid_t> others_;  ///< children that this process had before
  std::map<Key, Process> processes_;
  std::map<Image, Program> programs_;
  std::vector<Listed> listed_;
  std::chrono::steady_clock::time_point next_;
  bool traced_ = false;
  std::string blind_;  ///< why nothing can be looked at
};

}  // namespace cudaguard::launcher
