// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/sample.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "policy/rules.h"
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

/// Keeps the driver that a process had once, even if the process has closed it since.
void note_driver(TreeTruth::Unguarded& entry, Driver driver) {
  if (driver == Driver::kNone) return;
  entry.only_nvml = driver == Driver::kNvml && (entry.only_nvml || !entry.has_driver);
  entry.has_driver = true;
}

/// True if the process has written its start record. A forked child writes none, so any start
/// record of the same executable counts.
bool has_written(const Writer& writer, bool forked, const std::set<Writer>& started) {
  // Without /proc a process does not know its executable.
  return started.contains(writer) || started.contains({writer.first, ""}) ||
         (forked && std::any_of(started.begin(), started.end(),
                                [&](const Writer& one) { return one.second == writer.second; }));
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Watch::Watch(const std::string& report, std::function<void()> on_look)
    : listens_(report.empty()), examiner_(report), on_look_(std::move(on_look)) {
  const std::vector<pid_t> before = children_of(getpid());
  others_.insert(before.begin(), before.end());
  const std::string threads = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  if (access("/proc/self/stat", R_OK) != 0) {
    blind_ = "there is no /proc";
  } else if (read_stat(getpid()).image.back() == 0 || access(threads.c_str(), R_OK) != 0) {
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
  std::vector<pid_t> waiting = children_of(getpid());
  std::erase_if(waiting, [&](pid_t pid) { return others_.count(pid) != 0; });
  while (!waiting.empty()) {
    const pid_t pid = waiting.back();
    waiting.pop_back();
    const Stat stat = read_stat(pid);
    if (!stat.runs()) continue;
    look_at(pid, stat, now);
    const std::vector<pid_t> children = children_of(pid);
    waiting.insert(waiting.end(), children.begin(), children.end());
  }
}

Watch::Process& Watch::process_of(pid_t pid, const Stat& stat, double now) {
  const auto [place, is_new] = processes_.try_emplace({stat.started, pid});
  TreeTruth::Seen& seen = place->second.seen;
  if (is_new) {
    seen.pid = static_cast<uint32_t>(pid);
    seen.ppid = static_cast<uint32_t>(stat.parent);
    seen.since = stat.started;
    some_untraced_ |= traced_ && !is_traced(pid) && read_stat(pid).runs();
    seen.first = now;
  }
  seen.last = now;
  return place->second;
}

void Watch::look_at(pid_t pid, const Stat& stat, double now) {
  using Is = Answer::Is;
  if (on_look_) on_look_();
  Process& process = process_of(pid, stat, now);
  const FileId file = executable_id(pid);
  if (process.judged && process.image == stat.image && process.file == file) {
    if (process.listed != SIZE_MAX) {
      note_driver(listed_[process.listed].entry, driver_of(pid));
      return;
    }
    if (process.loaded) return note_loader(process, stat);
  }
  if (!process.judged) process.inherits = parent_was_heard(stat);
  // If a process has made its memory unreadable, the earlier verdict about it or its parent holds.
  const bool known = process.judged || parent_was_heard(stat);
  Answer answer = examiner_.ask(pid, false, stat.forked);
  for (int i = 1; i < kMostClosedLooks && answer.is == Is::kClosed && !known; ++i) {
    usleep(1000);
    answer = examiner_.ask(pid, false, stat.forked);
  }
  if (answer.is == Is::kStarting) {
    if (!process.judged) process.may_be_refused = may_be_refused(pid);
    return;
  }
  // This is a child of the launcher that has not called execve yet.
  if (answer.is == Is::kLauncher && stat.forked) return;
  if (answer.is == Is::kClosed && known) return;
  const bool inside_execve = stat.image.back() == 0;
  if (inside_execve && answer.is != Is::kForeign && answer.is != Is::kClosed) return;
  judge(process, stat, answer, true);
}

/// A program that must send a start beacon has had the occasion once ld.so has ended.
void Watch::note_loader(Process& process, const Stat& stat) {
  if (!listens_ || process.due.empty() || process.heard || process.has_begun) return;
  const std::optional<bool> inside = is_in_loader(static_cast<pid_t>(process.seen.pid), stat);
  if (inside) {
    process.has_begun = !*inside;
  } else if (!process.cpu) {
    process.cpu = stat.cpu;
  } else {
    process.has_begun = stat.cpu - *process.cpu >= kLongestInLoader;
  }
}

void Watch::note_exec(pid_t pid) noexcept {
  traced_ = true;
  if (!blind_.empty()) return;
  try_to([&] {
    const Stat stat = read_stat(pid);
    if (!stat.runs()) return;
    judge(process_of(pid, stat, seconds_now()), stat, examiner_.ask(pid, true, stat.forked), false);
  });
}

void Watch::note_request(pid_t pid) noexcept {
  if (!blind_.empty()) return;
  try_to([&] {
    const Stat stat = read_stat(pid);
    if (stat.runs()) look_at(pid, stat, seconds_now());
  });
}

void Watch::note_start(const Identity& who) noexcept {
  try_to([&] {
    Process& process = process_of(who.pid, who.stat, seconds_now());
    begin_program(process, who.stat.image,
                  who.program == FileId() ? executable_id(who.pid) : who.program);
    process.judged = process.loaded = process.heard = true;
    process.seen.guarded = true;
    if (process.listed != SIZE_MAX) listed_[process.listed].is = Answer::Is::kGuarded;
    process.listed = SIZE_MAX;
  });
}

void Watch::note_program(pid_t pid, const std::string& path) {
  if (std::any_of(processes_.begin(), processes_.end(),
                  [&](const auto& one) { return one.first.second == pid; })) {
    return;
  }
  const Stat stat = {.state = 'Z', .parent = getpid()};
  Process& process = process_of(pid, stat, seconds_now());
  process.seen.command = base_name(path);
  const Answer answer = examiner_.of_file(path);
  if (answer.is == Answer::Is::kNot) {
    list(process, answer, {}, false);
  } else if (answer.starts && listens_) {
    process.due = process.seen.command + " (" + std::to_string(pid) + ")";
    process.may_be_refused = true;
  }
}

/// Call this before anything of the new program is stored in `process`.
void Watch::begin_program(Process& process, const Image& image, const FileId& file) {
  if (process.image == image && process.file == file) return;
  const bool could_send = process.has_begun || process.may_be_refused;
  if (!process.due.empty() && !process.heard && could_send) unheard_.push_back(process.due);
  process.image = image;
  process.file = file;
  process.heard = process.inherits = false;
  process.has_begun = false;
  process.cpu.reset();
  process.due.clear();
}

bool Watch::may_be_refused(pid_t pid) const {
  return !filters_ || filters_of(pid).value_or(*filters_) != *filters_;
}

bool Watch::was_heard(const Process& process) const {
  const bool forked = process.seen.guarded && process.due.empty();
  return listens_ && (process.heard || process.inherits || forked);
}

bool Watch::parent_was_heard(const Stat& stat) const {
  return stat.forked && std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) {
           return one.first.second == stat.parent && was_heard(one.second);
         });
}

void Watch::list(Process& process, const Answer& answer, const Writer& writer, bool forked) {
  const TreeTruth::Seen& seen = process.seen;
  process.listed = listed_.size();
  listed_.push_back({{.pid = seen.pid,
                      .command = seen.command,
                      .reason = answer.reason,
                      .seen = seen.last,
                      .since = seen.since},
                     answer.is,
                     writer,
                     forked,
                     answer.hides});
}

void Watch::judge(Process& process, const Stat& stat, const Answer& answer, bool loaded) {
  const auto pid = static_cast<pid_t>(process.seen.pid);
  const std::string command = command_of(pid);
  const bool refused = may_be_refused(pid);
  const Writer writer = writer_of(pid);
  const Driver driver = loaded && !answer.is_guarded() ? driver_of(pid) : Driver::kNone;
  // The facts above count only if the process still runs the same program.
  const Stat after = read_stat(pid);
  const FileId file = executable_id(pid);
  if (after.image != stat.image || after.started != stat.started) return;
  // A sample may have judged this program before the tracer reported the end of its execve.
  if (process.judged && process.image == stat.image && process.file == file &&
      process.listed != SIZE_MAX) {
    return;
  }
  TreeTruth::Seen& seen = process.seen;
  seen.command = command;
  seen.guarded = answer.is_guarded();
  begin_program(process, stat.image, file);
  process.judged = true;
  process.loaded = loaded;
  process.may_be_refused = refused;
  process.listed = SIZE_MAX;
  if (!seen.guarded) {
    list(process, answer, writer, stat.forked);
    note_driver(listed_.back().entry, driver);
  }
  if (seen.guarded && answer.starts && stat.image.back() != 0) {
    const std::string name =
        command.substr(0, command.find(' ')) + " (" + std::to_string(seen.pid) + ")";
    if (!listens_) expected_.try_emplace(writer, Expected{name, stat.forked});
    if (listens_ && !stat.forked) process.due = name;
    if (loaded) note_loader(process, stat);
  }
}

/// Names the guarded processes without a start record, as a clause; empty if there are none.
std::string Watch::missing(const std::set<Writer>& started) const {
  std::vector<std::string> names = unheard_;
  for (const auto& [key, process] : processes_) {
    // It was killed in ld.so, or has ended in a constructor or for want of a library.
    if (listens_ && !process.has_begun && !process.may_be_refused) continue;
    if (!process.due.empty() && !was_heard(process)) names.push_back(process.due);
  }
  for (const auto& [writer, expected] : expected_) {
    if (!has_written(writer, expected.forked, started)) names.push_back(expected.name);
  }
  if (names.empty()) return {};
  return names.front() +
         (names.size() == 1 ? "" : " and " + std::to_string(names.size() - 1) + " more") +
         (listens_ ? " sent no start beacon, or ended before it could"
                   : " could not write to the report, or ended before that");
}

TreeTruth Watch::finish(const Findings& findings) const {
  TreeTruth truth;
  truth.traced = traced_;
  truth.some_untraced = some_untraced_;
  std::set<Writer> started;
  std::map<Key, const std::string*> commands;
  std::set<Key> off;
  for (const ObservedProcess& process : findings.processes) {
    if (process.started == 0) continue;
    ++truth.hello;
    const Key key(process.since, static_cast<pid_t>(process.pid));
    commands[key] = &process.command;
    started.insert({process.pid, std::string(base_name(process.exe))});
    if (!listens_ || process.policy != name_of(Policy::kOff)) continue;
    off.insert(key);
    truth.unguarded.push_back({.pid = process.pid,
                               .command = process.command,
                               .reason = "CUDAGUARD_POLICY is OFF",
                               .seen = process.started,
                               .since = process.since});
  }
  for (const Listed& listed : listed_) {
    if (listed.is == Answer::Is::kGuarded) continue;
    // A program may overwrite its environment, but its record shows which report it writes to.
    if (listed.is == Answer::Is::kElsewhere && has_written(listed.writer, listed.forked, started)) {
      continue;
    }
    truth.unguarded.push_back(listed.entry);
    if (listed.hides) {
      truth.doubts.push_back(listed.entry.command + " (" + std::to_string(listed.entry.pid) +
                             "): " + listed.entry.reason);
    }
  }
  for (const auto& [key, process] : processes_) {
    // The process ended while ld.so was loading it, and ran no code of its own.
    if (listens_ && !process.judged && !was_heard(process) && process.due.empty()) continue;
    truth.seen.push_back(process.seen);
    if (const auto found = commands.find(key); process.heard && found != commands.end()) {
      truth.seen.back().command = *found->second;
    }
    if (off.contains(key)) truth.seen.back().guarded = false;
    truth.seen.back().heard = was_heard(process);
  }
  std::stable_sort(truth.seen.begin(), truth.seen.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!blind_.empty()) truth.doubts.push_back("unguarded processes were not looked for: " + blind_);
  if (const std::string text = missing(started); !text.empty()) truth.doubts.push_back(text);
  return truth;
}

}  // namespace cudaguard::launcher
