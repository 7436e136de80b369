// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/sample.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPeriod{20};
/// Sampling thousands of processes takes long, so at most this share of the time is used for it.
constexpr int kShare = 8;
/// If it is not known whether a program has left ld.so, it has after this many clock ticks of its
/// own CPU time (20 ms).
constexpr uint64_t kLongestInLoader = 2;
/// Within execve, the memory of a process is closed for a moment. It stays closed if it is so for
/// this many looks, one each millisecond.
constexpr int kMostClosedLooks = 20;

/// CPU time of this process. Wall time would make it sample less often on a busy machine.
std::chrono::nanoseconds time_used() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

Cause known(const std::string& reason) { return {Cause::Is::kKnown, reason}; }

Cause policy_is_off() { return known("CUDAGUARD_POLICY is OFF"); }

/// Keeps the driver that a process had once, even if the process has closed it since.
void note_driver(TreeTruth::Unguarded& entry, Driver driver) {
  if (driver == Driver::kNone) return;
  entry.only_nvml = driver == Driver::kNvml && (entry.only_nvml || !entry.has_driver);
  entry.has_driver = true;
}

/// A file that only a /proc of this process's PID namespace has.
std::string own_children() { return "/proc/self/task/" + std::to_string(getpid()) + "/children"; }

/// "python3 (12)"
std::string short_name(const auto& process) {
  return process.command.substr(0, process.command.find(' ')) + " (" + std::to_string(process.pid) +
         ")";
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Watch::Watch(std::function<void()> on_look) : on_look_(std::move(on_look)) {
  const std::vector<pid_t> before = children_of(getpid());
  others_.insert(before.begin(), before.end());
  if (access("/proc/self/stat", R_OK) != 0) {
    blind_ = "there is no /proc";
  } else if (read_stat(getpid()).image.back() == 0 || access(own_children().c_str(), R_OK) != 0) {
    blind_ = "/proc shows too little on this system";
  }
}

/// If memory runs out while a program is running, sampling stops.
template <typename Look>
void Watch::try_to(Look look) noexcept {
  try {
    look();
  } catch (const std::exception& error) {
    blind_ = error.what();
  }
}

milliseconds Watch::sample() noexcept {
  if (!blind_.empty()) return milliseconds::zero();
  if (steady_clock::now() >= next_) {
    const auto begin = time_used();
    try_to([&] { look_at_all(seconds_now()); });
    if (!blind_.empty()) return milliseconds::zero();
    next_ = steady_clock::now() +
            std::max<steady_clock::duration>(kPeriod, kShare * (time_used() - begin));
  }
  return std::chrono::ceil<milliseconds>(next_ - steady_clock::now());
}

void Watch::look_at_all(double now) {
  // Root's program can unmount /proc, or mount something else there.
  if (access(own_children().c_str(), R_OK) != 0) {
    blind_ = "/proc was unmounted while the program ran";
    return;
  }
  std::vector<pid_t> waiting = children_of(getpid());
  std::erase_if(waiting, [&](pid_t pid) { return others_.count(pid) != 0; });
  while (!waiting.empty()) {
    const pid_t pid = waiting.back();
    waiting.pop_back();
    const Stat stat = read_stat(pid);
    if (stat.runs()) {
      look_at(pid, stat, now, false);
    } else if (stat.started == 0) {
      note_hidden(pid);
    } else {
      look_at_thread(pid, stat, now);
    }
    const std::vector<pid_t> children = children_of(pid);
    waiting.insert(waiting.end(), children.begin(), children.end());
  }
}

/// With the mount option hidepid, /proc does not show a process whose memory may not be read, or
/// nothing of it. So it is not known which program that is.
void Watch::note_hidden(pid_t pid) {
  const bool exists = kill(pid, 0) == 0 || errno == EPERM;
  // It may be a process that has just begun.
  if (exists && read_stat(pid).started == 0) hidden_.insert(pid);
}

/// Other threads of a process may go on, and have children, after its first one has ended. /proc
/// shows the process's files only below the id of a thread that runs.
void Watch::look_at_thread(pid_t pid, const Stat& ended, double now) {
  const pid_t thread = running_thread(pid);
  if (thread == 0) return;
  const Stat stat = read_stat(thread);
  if (!stat.runs()) return;
  const auto known = processes_.find({ended.started, pid});
  if (known != processes_.end() && known->second.listed != SIZE_MAX) {
    note_driver(listed_[known->second.listed].entry, driver_of(thread));
  } else if (!forked_from_heard(stat, program_of(stat.image, executable_id(thread)))) {
    look_at(thread, stat, now, false);
  }
}

Watch::Process& Watch::process_of(pid_t pid, const Stat& stat, double now) {
  const auto [place, is_new] = processes_.try_emplace({stat.started, pid});
  TreeTruth::Seen& seen = place->second.seen;
  if (is_new) {
    seen.pid = static_cast<uint32_t>(pid);
    seen.ppid = static_cast<uint32_t>(stat.parent);
    seen.since = stat.started;
    seen.first = now;
  }
  seen.last = now;
  return place->second;
}

void Watch::look_at(pid_t pid, const Stat& stat, double now, bool runs_code) {
  if (on_look_) on_look_();
  Process& process = process_of(pid, stat, now);
  const ProgramId program = program_of(stat.image, executable_id(pid));
  const bool is_known = process.seen.guarded || process.listed != SIZE_MAX;
  if (is_known && process.program == program) {
    process.hidden = program.first.back() == 0 && runs_another(process);
    if (!process.seen.guarded) note_driver(listed_[process.listed].entry, driver_of(pid));
    return;
  }
  const bool is_heard = forked_from_heard(stat, program);
  const bool is_off = stat.forked && off_.contains(program);
  // A process that runs code is not within execve, and its ioctl waits for this answer.
  const bool is_sure = is_known || runs_code;
  const Cause cause = is_heard ? Cause{} : is_off ? policy_is_off() : cause_of(pid, is_sure);
  const std::string command = command_of(pid);
  const bool refused = may_be_refused(pid);
  const Driver driver = is_heard ? Driver::kNone : driver_of(pid);
  // The facts above count only if the process still runs the same program.
  const Stat after = read_stat(pid);
  if (program_of(after.image, executable_id(pid)) != program || after.started != stat.started)
    return;
  using Is = Cause::Is;
  if (cause.is == Is::kNone) return;
  // If a process has made its memory unreadable, the earlier verdict about it holds, but not for
  // another program. Within execve this may last longer than all looks, so only the end of the
  // process or the next look says more.
  if (cause.is == Is::kClosed && is_known) {
    process.hidden = runs_another(process);
    if (process.hidden) process.seen.command = command;
    return;
  }
  // This is a child of the launcher that has not called execve yet.
  if (cause.is == Is::kLauncher && stat.forked) return;
  const bool inside_execve = stat.image.back() == 0;
  if (inside_execve && !is_heard && cause.is != Is::kForeign && cause.is != Is::kClosed) return;
  begin_program(process, stat, program);
  process.seen.command = command;
  process.seen.guarded = is_heard || cause.is == Is::kLauncher;
  process.seen.heard = process.seen.guarded || is_off;
  if (process.seen.guarded) return;
  if (cause.is == Is::kUnknown && !runs_code && !has_begun(process, stat)) {
    process.in_loader = true;
    process.may_be_refused = refused;
    return;
  }
  list(process, cause);
  note_driver(listed_.back().entry, driver);
}

/// Within execve, the memory of a process is closed for a moment.
Cause Watch::cause_of(pid_t pid, bool is_sure) {
  Cause cause = causes_.of(pid);
  for (int i = 1; i < kMostClosedLooks && cause.is == Cause::Is::kClosed && !is_sure; ++i) {
    usleep(1000);
    cause = causes_.of(pid);
  }
  return cause;
}

/// A program that has the guard had the occasion to send a start beacon once ld.so has ended.
bool Watch::has_begun(Process& process, const Stat& stat) const {
  if (const std::optional<bool> inside = is_in_loader(static_cast<pid_t>(process.seen.pid), stat)) {
    return !*inside;
  }
  if (!process.cpu) process.cpu = stat.cpu;
  return stat.cpu - *process.cpu >= kLongestInLoader;
}

void Watch::note_request(pid_t pid) noexcept {
  if (!blind_.empty()) return;
  try_to([&] {
    const Stat stat = read_stat(pid);
    if (stat.runs()) look_at(pid, stat, seconds_now(), true);
  });
}

void Watch::note_start(const Identity& who, bool off) noexcept {
  try_to([&] {
    Process& process = process_of(who.pid, who.stat, seconds_now());
    const FileId file = who.program == FileId() ? executable_id(who.pid) : who.program;
    begin_program(process, who.stat, program_of(who.stat.image, file));
    (off ? off_ : heard_).insert(process.program);
    process.seen.guarded = !off;
    process.seen.heard = true;
    if (process.listed != SIZE_MAX) listed_[process.listed].heard = true;
    process.listed = SIZE_MAX;
    if (!off) return;
    process.seen.command = command_of(who.pid);
    list(process, policy_is_off());
  });
}

void Watch::note_program(pid_t pid, const std::string& path, const std::string& unguarded) {
  const auto seen = std::find_if(processes_.begin(), processes_.end(),
                                 [&](const auto& one) { return one.first.second == pid; });
  const bool is_new = seen == processes_.end();
  if (!is_new && unguarded.empty()) return;
  const Stat stat = {.state = 'Z', .parent = getpid()};
  Process& process = is_new ? process_of(pid, stat, seconds_now()) : seen->second;
  if (process.seen.guarded || process.listed != SIZE_MAX) return;
  if (process.seen.command.empty()) process.seen.command = base_name(path);
  const Cause cause = unguarded.empty() ? causes_.of_file(path) : known(unguarded);
  process.seen.guarded = process.seen.heard = cause.is == Cause::Is::kLauncher;
  if (!process.seen.guarded) list(process, cause);
}

Watch::ProgramId Watch::program_of(const Image& image, const FileId& file) {
  return {image, {file[0], file[1]}};
}

/// Call this before anything of the new program is stored in `process`.
void Watch::begin_program(Process& process, const Stat& stat, const ProgramId& program) {
  process.hidden = false;
  process.code = stat.code != 0 ? stat.code : code_pages(static_cast<pid_t>(process.seen.pid));
  if (process.program == program) return;
  if (process.in_loader && process.may_be_refused) refused_.push_back(short_name(process.seen));
  process.program = program;
  process.seen.guarded = process.seen.heard = process.in_loader = false;
  process.listed = SIZE_MAX;
  process.cpu.reset();
}

/// True if the size of the code has changed. It is 0 while the process ends.
bool Watch::runs_another(const Process& process) {
  const uint64_t code = code_pages(static_cast<pid_t>(process.seen.pid));
  return code != 0 && code != process.code;
}

bool Watch::may_be_refused(pid_t pid) const {
  return !filters_ || filters_of(pid).value_or(*filters_) != *filters_;
}

/// The parent of a forked process may have ended, so that a later one has its id.
bool Watch::forked_from_heard(const Stat& stat, const ProgramId& program) const {
  if (!stat.forked) return false;
  const bool is_readable = program.first.back() != 0;
  if (is_readable) return heard_.contains(program);
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) {
    return one.first.second == stat.parent && one.second.seen.heard;
  });
}

void Watch::list(Process& process, const Cause& cause) {
  const TreeTruth::Seen& seen = process.seen;
  process.listed = listed_.size();
  listed_.push_back({{.pid = seen.pid,
                      .command = seen.command,
                      .reason = cause.reason.empty() ? "it sent no start beacon" : cause.reason,
                      .seen = seen.last,
                      .since = seen.since},
                     cause});
}

/// Names the programs that have the guard and sent no start beacon, as a clause; empty if there are
/// none. A process that executes its program again, or was seen within execve, counts once.
std::string Watch::silent() const {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : refused_) add(name);
  for (const auto& [key, process] : processes_) {
    if (process.in_loader && process.may_be_refused) add(short_name(process.seen));
  }
  for (const Listed& listed : listed_) {
    if (listed.cause.is == Cause::Is::kUnknown && !listed.heard) add(short_name(listed.entry));
  }
  if (names.empty()) return {};
  return names.front() +
         (names.size() == 1 ? "" : " and " + std::to_string(names.size() - 1) + " more") +
         " sent no start beacon, or ended before it could";
}

/// Names the processes that /proc did not show, as a clause; empty if there are none. The children
/// of such a process are not known either, so it counts although it may be guarded.
std::string Watch::unseen() const {
  if (hidden_.empty()) return {};
  const std::string more =
      hidden_.size() == 1 ? "" : " and " + std::to_string(hidden_.size() - 1) + " more";
  return "/proc does not show process " + std::to_string(*hidden_.begin()) + more;
}

TreeTruth Watch::finish(const Findings& findings) {
  TreeTruth truth;
  std::map<Key, const std::string*> commands;
  const auto add = [&truth](TreeTruth::Unguarded process, bool hides) {
    if (hides) {
      truth.doubts.push_back(process.command + " (" + std::to_string(process.pid) +
                             "): " + process.reason);
    }
    truth.unguarded.push_back(std::move(process));
  };
  for (const ObservedProcess& process : findings.processes) {
    if (process.started == 0) continue;
    ++truth.hello;
    if (process.policy != "OFF" && process.not_loaded.empty()) ++truth.guarded;
    commands[Key(process.since, static_cast<pid_t>(process.pid))] = &process.command;
  }
  for (const Listed& listed : listed_) {
    if (!listed.heard) add(listed.entry, listed.cause.hides);
  }
  for (const auto& [key, process] : processes_) {
    // The process ended while ld.so was loading it, and ran no code of its own.
    const bool ran = process.seen.guarded || process.listed != SIZE_MAX;
    if (!ran && !(process.in_loader && process.may_be_refused)) continue;
    truth.seen.push_back(process.seen);
    if (const auto found = commands.find(key); process.seen.heard && found != commands.end()) {
      truth.seen.back().command = *found->second;
    }
    if (!process.hidden) continue;
    truth.seen.back().guarded = truth.seen.back().heard = false;
    add({.pid = process.seen.pid,
         .command = process.seen.command,
         .reason = kHidesMemory,
         .seen = process.seen.last,
         .since = process.seen.since},
        true);
  }
  // musl's ld.so loads the guard, which reports its start, but cannot load a null driver there.
  for (const ObservedProcess& process : findings.processes) {
    if (process.not_loaded.empty()) continue;
    const Cause cause = causes_.of_file(process.exe);
    const bool is_listed = std::ranges::any_of(truth.unguarded, [&](const auto& one) {
      return one.pid == process.pid && one.since == process.since;
    });
    if (cause.is != Cause::Is::kKnown || is_listed) continue;
    add({.pid = process.pid,
         .command = process.command,
         .reason = cause.reason,
         .seen = process.last,
         .since = process.since},
        false);
  }
  std::stable_sort(truth.seen.begin(), truth.seen.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!blind_.empty()) truth.doubts.push_back("unguarded processes were not looked for: " + blind_);
  for (const std::string& text : {silent(), unseen()}) {
    if (!text.empty()) truth.doubts.push_back(text);
  }
  return truth;
}

}  // namespace cudaguard::launcher
