// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/processes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/format.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/observe/start.h"
#include "shim/launcher/system/guard_file.h"
#include "shim/launcher/system/preload_file.h"
#include "shim/launcher/unwind/process.h"

namespace cudaguard::launcher {

namespace {

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double now(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return seconds_of(time);
}

/// A pause between the two readings makes the result earlier, so the latest of some is the best.
double boot_time() {
  double latest = 0;
  for (int i = 0; i < 10; ++i) {
    const double time = now(CLOCK_REALTIME);
    latest = std::max(latest, time - now(CLOCK_BOOTTIME));
  }
  return latest;
}

/// The beginning of the kernel's tick (10 ms) in which the process started.
double start_of(const Stat& stat) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return boot_time() + static_cast<double>(stat.started) / ticks;
}

/// Returns the text of the file, or nothing. Another user may have put a pipe or an endless file in
/// its place, in a mount namespace of a process.
std::string text_of(const std::string& path) {
  constexpr uint64_t kMost = uint64_t{1} << 20;
  const FileBytes file(path);
  std::string text(static_cast<size_t>(std::min(file.size(), kMost)), '\0');
  return file.read(0, text.data(), text.size()) ? text : "";
}

/// The guard that a process has loaded.
struct LoadedGuard {
  int error = 0;              ///< why the process cannot be examined (errno)
  bool runs_program = false;  ///< false for kernel threads and zombies
  std::string path;           ///< of the file when it was loaded; empty: none is loaded
  bool removed = false;       ///< and another one may have its name now
  std::string file;           ///< a path in /proc, by which only root can read it
};

LoadedGuard loaded_guard(pid_t pid) {
  LoadedGuard guard;
  std::string maps;
  guard.error = read_file("/proc/" + std::to_string(pid) + "/maps", maps, SIZE_MAX);
  const ProcessImage image(std::move(maps));
  for (const ProcessImage::Mapping& mapping : image.mappings()) {
    std::string_view path = mapping.file;
    guard.runs_program |= path.starts_with('/');
    constexpr std::string_view kDeleted = " (deleted)";
    const bool removed = path.ends_with(kDeleted);
    if (removed) path.remove_suffix(kDeleted.size());
    if (!mapping.executable || base_name(path) != "libcudaguard.so") continue;
    char range[64];
    snprintf(range, sizeof range, "%" PRIx64 "-%" PRIx64, mapping.from, mapping.to);
    guard.path = path;
    guard.removed = removed;
    guard.file = "/proc/" + std::to_string(pid) + "/map_files/" + range;
    break;
  }
  return guard;
}

class Look {
 public:
  explicit Look(const std::vector<std::string>& named) : named_(named) {}

  /// Adds the process to its group. Kernel threads and processes that end meanwhile have none.
  void at(pid_t pid) {
    const LoadedGuard guard = loaded_guard(pid);
    const Stat stat = read_stat(pid);  // if it has no guard, of the same program
    const std::string name = printable(stat.name) + " (" + std::to_string(pid) + ")";
    if (guard.error == EACCES || guard.error == EPERM) {
      return add(std::string("not known: ") + strerror(guard.error), false, name);
    }
    if (guard.error != 0 || !guard.runs_program) return;
    if (guard.path.empty()) {
      bool due = false;
      const std::string why = why_not(pid, stat, due);
      return add("not guarded: " + why, due, name);
    }
    std::string version = version_of(FileBytes(guard.file));
    if (version.empty() && !guard.removed) version = version_of(FileBytes(guard.path));
    version = version.empty() ? "an unknown version" : "version " + printable(version);
    const bool current = std::ranges::any_of(
        named_, [&](const std::string& entry) { return means_file(entry, guard.path); });
    add("guarded by " + version +
            (guard.removed ? ", whose file was replaced or removed"
             : current     ? ""
                           : ", " + printable(guard.path) + ", which the file does not name"),
        guard.removed || !current, name);
  }
  std::vector<ProcessGroup> groups() { return std::move(groups_); }

 private:
  /// A clause.
  std::string why_not(pid_t pid, const Stat& stat, bool& due) {
    const std::string its_directory = "/proc/" + std::to_string(pid) + "/root";
    const std::vector<std::string> entries = preloads_of(text_of(its_directory + kPreloadFile));
    if (std::ranges::none_of(entries, is_guard)) {
      return std::string("its ") + kPreloadFile + " names no guard";
    }
    const FileFacts& facts = executables_.of("/proc/" + std::to_string(pid) + "/exe");
    if (facts.kind == FileFacts::Kind::kUnguarded) return facts.why;
    if (facts.kind == FileFacts::Kind::kLauncher) return "it is a cudaguard command";
    struct stat status = {};
    // A forked process that has called no execve has its parent's program, which is older.
    due = stat.forked || (::stat((its_directory + kPreloadFile).c_str(), &status) == 0 &&
                          start_of(stat) <= seconds_of(status.st_ctim));
    if (due) return "it was started before the file named the guard";
    return "its ld.so has not loaded it, or not yet";
  }

  void add(const std::string& what, bool due, const std::string& process) {
    auto group = std::ranges::find(groups_, what, &ProcessGroup::what);
    if (group == groups_.end()) {
      groups_.push_back({what, due, {}});
      group = groups_.end() - 1;
    }
    group->processes.push_back(process);
  }

  const std::vector<std::string>& named_;
  Executables executables_;
  std::vector<ProcessGroup> groups_;
};

}  // namespace

std::vector<ProcessGroup> look_at_processes(const std::vector<std::string>& named) {
  Look look(named);
  for (const pid_t pid : all_processes()) {
    if (pid != getpid()) look.at(pid);
  }
  return look.groups();
}

}  // namespace cudaguard::launcher
