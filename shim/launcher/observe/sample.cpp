// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/sample.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPeriod{20};
/// Of thousands of processes a look takes long: at most this part of the time goes into it.
constexpr int kShare = 8;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// By this process: another one's share of the machine is no reason to look less often.
std::chrono::nanoseconds time_used() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// What it had once counts.
void note_driver(TreeTruth::Unguarded& entry, Driver driver) {
  if (driver == Driver::kNone) return;
  entry.only_nvml = driver == Driver::kNvml && (entry.only_nvml || !entry.has_driver);
  entry.has_driver = true;
}

}  // namespace

Watch::Watch(const std::string& report) : examiner_(report), own_(read_stat(getpid()).image) {
  const std::vector<pid_t> before = children_of(getpid());
  others_.insert(before.begin(), before.end());
  const std::string threads = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  if (access("/proc/self/stat", R_OK) != 0) {
    blind_ = "there is no /proc";
  } else if (own_.back() == 0 || access(threads.c_str(), R_OK) != 0) {
    blind_ = "this system's /proc does not tell enough";
  }
}

milliseconds Watch::sample() noexcept {
  if (!blind_.empty()) return milliseconds::zero();
  if (steady_clock::now() >= next_) {
    const auto begin = time_used();
    try {
      look_at_all(seconds_now());
    } catch (const std::exception& error) {
      blind_ = error.what();
      return milliseconds::zero();
    }
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
    if (stat.image != own_) look_at(pid, stat, now);
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
    seen.first = now;
  }
  seen.last = now;
  place->second.forked = stat.forked;
  return place->second;
}

void Watch::look_at(pid_t pid, const Stat& stat, double now) {
  using Is = Answer::Is;
  Process& process = process_of(pid, stat, now);
  const auto known = programs_.find(stat.image);
  const bool sure = known != programs_.end() && known->second.loaded;
  if (process.judged && process.image == stat.image) {
    if (process.listed != SIZE_MAX) {
      note_driver(listed_[process.listed].entry, driver_of(pid));
      return;
    }
    if (sure) return;
  }
  const Found found = look(pid, sure ? &known->second.answer : nullptr, false);
  const Is is = found.answer.is;
  if (is == Is::kStarting) return;
  // Of one that has closed itself what was known before holds.
  if (is == Is::kClosed && process.judged) return;
  const bool inside_execve = stat.image.back() == 0;
  if (inside_execve && is != Is::kForeign && is != Is::kClosed) return;
  // Was all of that about the same program?
  const Stat after = read_stat(pid);
  if (after.image == stat.image && after.started == stat.started) {
    judge(process, stat.image, found, true);
  }
}

void Watch::note_exec(pid_t pid) noexcept {
  traced_ = true;
  if (!blind_.empty()) return;
  try {
    const Stat stat = read_stat(pid);
    if (!stat.runs()) return;
    judge(process_of(pid, stat, seconds_now()), stat.image, look(pid, nullptr, true), false);
  } catch (const std::exception& error) {
    blind_ = error.what();
  }
}

void Watch::note_request(pid_t pid) noexcept {
  if (!blind_.empty()) return;
  try {
    const Stat stat = read_stat(pid);
    if (stat.runs() && stat.image != own_) look_at(pid, stat, seconds_now());
  } catch (const std::exception& error) {
    blind_ = error.what();
  }
}

Watch::Found Watch::look(pid_t pid, const Answer* known, bool at_exec) {
  Found found;
  found.answer = known == nullptr ? examiner_.ask(pid, at_exec) : *known;
  found.command = command_of(pid);
  found.writer = writer_of(pid);
  if (!at_exec && !found.answer.is_guarded()) found.driver = driver_of(pid);
  return found;
}

void Watch::judge(Process& process, const Image& image, const Found& found, bool loaded) {
  // A look may have come before the end of execve was told.
  if (process.judged && process.image == image && process.listed != SIZE_MAX) return;
  TreeTruth::Seen& seen = process.seen;
  seen.command = found.command;
  seen.guarded = found.answer.is_guarded();
  process.image = image;
  process.judged = true;
  process.listed = SIZE_MAX;
  if (image.back() != 0) {
    Program& program = programs_[image];
    program.answer = found.answer;
    program.loaded = loaded || !seen.guarded;
    program.writers.insert(found.writer);
    program.only_forks &= process.forked;
    program.name =
        found.command.substr(0, found.command.find(' ')) + " (" + std::to_string(seen.pid) + ")";
  }
  if (!seen.guarded) {
    process.listed = listed_.size();
    listed_.push_back({{seen.pid, seen.command, found.answer.reason, false, seen.last, false},
                       found.answer.is,
                       image});
    note_driver(listed_.back().entry, found.driver);
  }
}

/// Has one of its processes written its start record? A fork writes none: of a daemon whose parent
/// has ended unseen, one of its executable will do.
bool Watch::has_written(const Program& program, const std::set<Writer>& started) {
  return std::any_of(program.writers.begin(), program.writers.end(), [&](const Writer& writer) {
    // Without /proc it does not know its executable.
    return started.contains(writer) || started.contains({writer.first, ""}) ||
           (program.only_forks &&
            std::any_of(started.begin(), started.end(),
                        [&](const Writer& one) { return one.second == writer.second; }));
  });
}

/// Guarded, and nobody has heard of them: a clause, or empty.
std::string Watch::missing(const std::set<Writer>& started) const {
  size_t count = 0;
  std::string first;
  for (const auto& [image, program] : programs_) {
    if (!program.answer.starts || has_written(program, started)) continue;
    if (count++ == 0) first = program.name;
  }
  if (count == 0) return {};
  return first + (count == 1 ? "" : " and " + std::to_string(count - 1) + " more") +
         " could not write to the report, or ended before that";
}

TreeTruth Watch::finish(const Findings& findings, const std::string& left,
                        const std::string& doubt) {
  TreeTruth truth;
  truth.traced = traced_;
  truth.left = left;
  std::set<Writer> started;
  for (const ObservedProcess& process : findings.processes) {
    if (process.started == 0) continue;
    ++truth.hello;
    started.insert({process.pid, std::string(base_name(process.exe))});
  }
  for (const Listed& listed : listed_) {
    // A program may write over its environment; its record says where it has written.
    if (listed.is == Answer::Is::kElsewhere && has_written(programs_[listed.image], started)) {
      continue;
    }
    truth.unguarded.push_back(listed.entry);
  }
  for (const auto& [key, process] : processes_) truth.seen.push_back(process.seen);
  std::stable_sort(truth.seen.begin(), truth.seen.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!doubt.empty()) truth.doubts.push_back(doubt);
  if (!blind_.empty()) truth.doubts.push_back("what was not guarded was not looked for: " + blind_);
  if (const std::string text = missing(started); !text.empty()) truth.doubts.push_back(text);
  if (!truth.unguarded.empty()) {
    truth.value = TreeTruth::Value::kUnguarded;
  } else if (traced_ && truth.doubts.empty()) {
    truth.value = TreeTruth::Value::kAllGuarded;
  }
  return truth;
}

}  // namespace cudaguard::launcher
