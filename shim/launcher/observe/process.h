// SPDX-License-Identifier: Apache-2.0
// What /proc says of one process, and whether the guard is in it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cudaguard::launcher {

/// Tells whether one process has called execve since the last look: where its code, its stack and
/// its environment begin, and where that ends. execve chooses these addresses at random. The last
/// one is 0 inside execve, and of a process that may not be looked at.
using Image = std::array<uint64_t, 4>;

/// Identifies an executable: device, inode, size and ctime (seconds, nanoseconds), because the
/// inode of a removed file is reused. All zero if the file cannot be examined.
using FileId = std::array<uint64_t, 5>;
FileId executable_id(pid_t pid);

/// /proc/PID/stat
struct Stat {
  std::string name;
  char state = 'X';
  pid_t parent = -1;
  uint64_t started = 0;  ///< in ticks since the machine's start; with the number it is unique
  Image image;
  bool forked = false;  ///< and has not called execve
  bool runs() const { return state != 'X' && state != 'Z'; }
};

/// Of no process: state 'X'. A thread's number: of that thread.
Stat read_stat(pid_t pid);

/// The process of a thread. Unknown values are 0.
struct Identity {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t thread = 0;
  uint64_t started = 0;  ///< as Stat's
  Image image = {};
};
/// If the thread is gone, `pid` is the thread's id. The time does not depend on the number of
/// threads.
Identity identify(pid_t thread);

/// Are the numbers in /proc those that this process is told? It may be that of another PID
/// namespace, where they mean others; or there is none.
bool has_own_numbers();

/// Where a thread is that waits in a system call.
struct WaitingAt {
  uint64_t stack;
  uint64_t code;
};
std::optional<WaitingAt> waiting_at(pid_t thread);

/// What a record has of a process.
struct Owner {
  pid_t pid = 0;
  uint32_t uid = 0;  ///< the effective one; without /proc our own
  std::string exe;
  std::string arguments;  ///< each ends in a zero byte
  std::string cgroup;     ///< the lines of /proc/PID/cgroup
};
Owner owner_of(pid_t pid);
/// For a process that has ended, or without /proc.
Owner unknown_owner(pid_t pid);

/// How many seccomp filters it has. Unknown before Linux 5.9, and if the process is gone.
std::optional<uint64_t> filters_of(pid_t pid);

/// True if the calling process traces `pid`.
bool is_traced(pid_t pid);

/// As far as there are any, and /proc tells.
std::vector<pid_t> children_of(pid_t pid);

/// This process's. Unlike children_of(), from all of /proc: not every kernel lists children. None
/// where there is no /proc.
std::set<pid_t> children_of_this_process();

/// Is it a child of this process, or one's child? False where nobody can tell (any more).
bool descends_from_this_process(pid_t pid);

/// "sleep (12), cat (13)"; of many the first few.
std::string names_of(const std::set<pid_t>& processes);

/// Its words, the first without its directories.
std::string command_of(pid_t pid);

/// Who wrote a record: the number that a process has for itself (in a container another one), and
/// its executable without the directories.
using Writer = std::pair<uint32_t, std::string>;
Writer writer_of(pid_t pid);

/// Has it the driver or a device? Only of one that is not guarded this says anything.
enum class Driver : uint8_t { kNone, kNvml, kAny };  ///< NVML and not libcuda
Driver driver_of(pid_t pid);

/// Is the guard in a process?
struct Answer {
  enum class Is : uint8_t {
    kGuarded,
    kNot,        ///< with the reason, as the three that follow
    kElsewhere,  ///< guarded, but it does not write to our file
    kForeign,    ///< another user's, or has become one's
    kClosed,     ///< ours, and its memory may not be looked at
    kStarting,   ///< ld.so has not loaded anything yet; or it has ended
    kLauncher,   ///< a cudaguard command, which is none of the programs
  };
  Is is = Is::kStarting;
  std::string reason;   ///< a clause
  bool starts = false;  ///< guarded or kStarting, and a start record is due
  bool hides = false;   ///< whether it is guarded cannot be found out
  bool is_guarded() const { return is == Is::kGuarded || is == Is::kLauncher; }
};

class Examiner {
 public:
  /// `report`: what CUDAGUARD_REPORT must name; empty: it does not matter.
  explicit Examiner(std::string report) : report_(std::move(report)) {}
  /// `at_exec`: it stands at the end of execve, where nothing is loaded: will the guard be?
  /// `forked`: it has not called execve.
  Answer ask(pid_t pid, bool at_exec, bool forked);
  /// The same of an executable alone. kGuarded: nothing speaks against it.
  Answer of_file(const std::string& path);

 private:
  Answer of_environment(pid_t pid, bool loaded, bool forked) const;
  std::string report_;
  std::map<FileId, Answer> files_;
};

}  // namespace cudaguard::launcher
