// SPDX-License-Identifier: Apache-2.0
// Reads what /proc has about one process.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/guard/text/attempt.h"
#include "shim/launcher/unwind/call_frame.h"

namespace cudaguard::launcher {

/// A descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }
  /// By which this process can open the file again.
  std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_ = -1;
};

/// Changes when a process calls execve: the addresses at which its code, stack and environment
/// begin, and where its environment ends. execve chooses them at random. The last one is 0 inside
/// execve, and if the process may not be examined.
using Image = std::array<uint64_t, 4>;

/// Identifies an executable: device, inode, size and ctime (seconds, nanoseconds), because the
/// inode of a removed file is reused. All zero if the file cannot be examined.
using FileId = std::array<uint64_t, 5>;
FileId id_of(const struct stat& status);
FileId id_of(const std::string& path);
FileId executable_id(pid_t pid);

/// /proc/PID/stat
struct Stat {
  std::string name = {};
  char state = 'X';
  pid_t parent = 0;
  uint64_t threads = 0;
  uint64_t started = 0;  ///< clock ticks since boot; unique together with the id
  Image image = {};
  bool forked = false;  ///< it has not called execve since the fork
  bool ends = false;    ///< its memory may be gone already, so `image` may be zeros
  bool runs() const { return state != 'X' && state != 'Z' && !ends; }
};

/// Returns state 'X' if there is no such process. The id of a thread gives that thread's values.
Stat read_stat(pid_t pid);

/// What a link of /proc/PID names: "exe", "cwd". Empty if it cannot be read.
std::string link_of(pid_t pid, const std::string& name);

/// /proc/PID/status
std::string status_of(pid_t pid);
/// The numbers after `name` in it.
std::vector<uint64_t> numbers_in(std::string_view status, std::string_view name);
std::vector<uint64_t> status_of(pid_t pid, std::string_view name);

/// The process of a thread. Unknown values are 0.
struct Identity {
  pid_t pid = 0;
  pid_t thread = 0;
  Stat stat = {};
};
/// If the thread is gone, or without our own /proc, `pid` is the thread's id.
Identity identify(pid_t thread);

/// True if /proc shows the process ids of this process's PID namespace. /proc may be missing, or
/// may belong to another PID namespace, in which the same ids mean other processes.
bool has_own_numbers();

/// True if ld.so is still at work in the process: it loads libraries, or calls their constructors.
/// Also true of a program whose own _start does not push what glibc's does (Go's). Nothing if it is
/// not known. `stat` is that of the process.
std::optional<bool> is_in_loader(pid_t pid, const Stat& stat);

/// The stack pointer and the program counter of a thread that waits in a system call, or will do so
/// within 0.1 s.
std::optional<Registers> waiting_at(pid_t thread);

/// A record of a call that the seccomp listener saw, in place of the guard's own record. `why` is
/// the reason why the record has no stack; null leaves the stack out. Unless `look`, or without our
/// own /proc, the record has no other facts about the process than its ids and the arguments in
/// `attempt`. It has no newline. A start record, for which the process must wait, has neither the
/// host nor the cgroup, and its user also without /proc (Linux 6.13).
std::string kernel_record(const Identity& who, Attempt attempt, const char* why, bool look = true);

/// Names a process even after its end (Linux 5.3).
Descriptor open_process(pid_t pid);
/// The ids of a process that decide about its rights.
struct Credentials {
  uint64_t user = 0;  ///< the real one
  uint64_t effective_user = 0;
  uint64_t files_user = 0;  ///< for access to files
  uint64_t group = 0;
  uint64_t effective_group = 0;
  uint64_t files_group = 0;
};
/// Nothing before Linux 6.13.
std::optional<Credentials> credentials_of(const Descriptor& process);
/// How the process has ended, as from waitpid. Nothing before Linux 6.15.
std::optional<int> end_of(const Descriptor& process);

/// The system call in which the thread waits. Nothing if it runs, or if that cannot be read.
std::optional<long> system_call_of(pid_t thread);

/// The children that /proc lists; empty if it lists none.
std::vector<pid_t> children_of(pid_t pid);

/// A thread of the process that has not ended; 0 if there is none.
pid_t running_thread(pid_t pid);

/// The processes that /proc lists; empty without /proc.
std::set<pid_t> all_processes();

/// Also if the kernel does not list children. Empty without /proc.
std::set<pid_t> children_of_this_process();

/// True if `pid` is this process or its descendant. False if that is unknown.
bool descends_from_this_process(pid_t pid);

/// "sleep (12), cat (13)"; a long list is cut.
std::string names_of(const std::set<pid_t>& processes);

/// The most bytes of a process's arguments that are kept.
inline constexpr size_t kMostCommand = 1024;
/// The process's arguments, as /proc/PID/cmdline has them.
std::string arguments_of(pid_t pid);

/// What the process has open. Meaningful only if the process is unguarded.
enum class Driver : uint8_t { kNone, kNvml, kAny };  ///< kNvml: NVML and not libcuda
Driver driver_of(pid_t pid);

}  // namespace cudaguard::launcher
