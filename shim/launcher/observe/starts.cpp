// SPDX-License-Identifier: Apache-2.0
// Without a start beacon, /proc shows later whether execve has succeeded: the addresses of the
// program's image differ then. If the process has ended meanwhile, the file decides. A program that
// should be guarded and ends without its beacon makes the result INCOMPLETE, unless ld.so was still
// at work at the last look: its first return address is then just below the program's arguments.
#include "shim/launcher/observe/starts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <iterator>

#include "policy/program.h"
#include "policy/text.h"
#include "shim/launcher/fence/filter.h"
#include "shim/launcher/fence/notification.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

using std::chrono::milliseconds;

/// A start beacon usually comes within this time, and then no look is needed.
constexpr milliseconds kFirstLook{3};
constexpr milliseconds kLongestWait{100};
/// The most looks without a glance at the listener.
constexpr int kMostLooks = 8;

constexpr const char* kIsOff = "its policy is OFF";

bool is_hidden(const Stat& stat) { return stat.image.back() == 0; }

/// True if the thread waits in a system call other than execve.
bool has_returned(pid_t thread) {
  const std::optional<long> number = system_call_of(thread);
  seccomp_data call = {};
  call.arch = kThisArchitecture.architecture;
  call.nr = static_cast<int>(number.value_or(0));
  return number && *number >= 0 && !is_exec(call);
}

/// Whether the process was killed by a signal, or has ended as one that ld.so cannot start. Nothing
/// before Linux 6.15.
std::optional<bool> has_failed(const Descriptor& process) {
  constexpr int kNotStarted = 127;  // the exit code of ld.so
  const std::optional<int> end = end_of(process);
  if (!end) return {};
  return WIFSIGNALED(*end) || WEXITSTATUS(*end) == kNotStarted;
}

/// What the process has open, or a process that it has forked, which runs the same program.
Driver driver_below(pid_t pid, int depth = 0) {
  constexpr int kDeepest = 8;
  Driver found = driver_of(pid);
  if (found == Driver::kAny || depth == kDeepest) return found;
  for (const pid_t child : children_of(pid)) {
    if (read_stat(child).forked) found = std::max(found, driver_below(child, depth + 1));
  }
  return found;
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The last process that had this id, or null.
const Starts::Process* Starts::last_with(pid_t pid) const {
  const auto next = processes_.lower_bound({pid + 1, 0});
  if (next == processes_.begin()) return nullptr;
  const Process& last = std::prev(next)->second;
  return last.pid == pid ? &last : nullptr;
}

Starts::Process& Starts::process_of(const Identity& who) {
  // If /proc hides the process, it is the last one that had this id.
  const Process* const last = who.stat.started == 0 ? last_with(who.pid) : nullptr;
  const Key key{who.pid, last == nullptr ? who.stat.started : last->seen.since};
  const auto [place, is_new] = processes_.try_emplace(key);
  TreeTruth::Seen& seen = place->second.seen;
  seen.last = seconds_now();
  if (is_new) {
    place->second.pid = who.pid;
    seen.pid = static_cast<uint32_t>(who.pid);
    seen.ppid = static_cast<uint32_t>(who.stat.parent);
    seen.since = who.stat.started;
    seen.first = seen.last;
  }
  return place->second;
}

/// Whether the process's last execve has succeeded. Nothing if its end hides that.
std::optional<bool> Starts::has_become(const Process& process, const Stat& now) {
  const Program& called = *process.called;
  const Stat& before = called.before;
  if (now.started == 0 && before.started != 0) return {};  // it was killed meanwhile
  if (before.forked) return !now.forked;
  if (!now.runs()) return before.name != now.name ? std::optional(true) : std::nullopt;
  if (is_hidden(before) || is_hidden(now)) {
    return before.name != now.name || is_hidden(before) != is_hidden(now);
  }
  if (before.image != now.image) return true;
  // Without ASLR, two programs can have the same addresses. A file that was not found has no id, as
  // the program of a process that has ended meanwhile.
  return process.runs && called.start.file != FileId() &&
         process.runs->start.file != called.start.file &&
         executable_id(process.pid) == called.start.file;
}

const Starts::Program* Starts::running_in(pid_t pid) const {
  const Process* const last = last_with(pid);
  return last == nullptr || !last->runs ? nullptr : &*last->runs;
}

std::string Starts::started_by(pid_t pid) const {
  const Program* program = running_in(pid);
  return program == nullptr ? "" : program->start.started_by;
}

/// The arguments of the process's program. A forked process still has its parent's, even if the
/// parent has ended.
std::string Starts::arguments_of(const Identity& who) const {
  const Program* program = running_in(who.stat.forked ? who.stat.parent : who.pid);
  const bool is_known = program != nullptr && !program->start.arguments.empty() &&
                        program->image == who.stat.image && !is_hidden(who.stat);
  if (is_known) return program->start.arguments;
  return has_own_numbers() ? launcher::arguments_of(who.pid) : "";
}

Start Starts::read(const Identity& who, const seccomp_data& call) {
  Process& process = process_of(who);
  if (process.called && has_become(process, who.stat).value_or(false)) begin(process);
  Start start = reader_.read(who.thread, call);
  if (process.runs && process.runs->start.kind == Start::Kind::kGuarded && !process.runs->heard) {
    look_inside(who.pid, who.stat, *process.runs);
  }
  if (start.kind == Start::Kind::kGuarded && start.own_guard && start.process.number() < 0) {
    start.process = open_process(who.pid);  // another thread calls
  }
  const std::string arguments = arguments_of(who);
  const Starter starter = starter_of(arguments);
  if (starter == Starter::kFurtherOut || starter == Starter::kCode) {
    start.started_by = started_by(running_in(who.pid) != nullptr ? who.pid : who.stat.parent);
  }
  const bool is_nobody_further_out = starter == Starter::kCode && start.started_by.empty();
  if (starter == Starter::kNamed || is_nobody_further_out) {
    start.started_by = text_of([&](Text& out) { put_program(out, arguments, {}); });
  }
  return start;
}

void Starts::note_call(const Identity& who, Start start) {
  Process& process = process_of(who);
  if (std::exchange(is_first_, false) && !unguarded_.empty() &&
      start.kind == Start::Kind::kGuarded) {
    start.kind = Start::Kind::kUnguarded;
    start.reason = unguarded_;
  }
  if (start.command.text.empty()) start.command.text = who.stat.name;
  process.called = Program{std::move(start), who.thread, who.stat, process.seen.last};
  process.wait = kFirstLook;
  look_later(process);
}

std::string Starts::note_beacon(const Identity& who, bool off) {
  Process& process = process_of(who);
  // A guard sends one beacon, as soon as its program begins.
  const bool again = process.runs && process.runs->heard;
  if (process.called &&
      (again || is_hidden(who.stat) || has_become(process, who.stat).value_or(false))) {
    begin(process);
  }
  const bool is_new =
      !process.runs || (process.runs->heard && process.runs->image != who.stat.image);
  if (is_new && who.stat.forked && !is_hidden(who.stat)) return {};  // no guard has sent it
  if (is_new) {
    end(process);  // the kernel did not tell of this execve
    process.runs = Program{};
    process.runs->at = process.seen.last;
    process.runs->start.command = {who.stat.name};
  }
  Program& program = *process.runs;
  program.heard = true;
  program.start.process = Descriptor();
  program.off = off;
  program.image = who.stat.image;
  if (off) {
    program.start.names_nvidia = reader_.names_nvidia(who.pid, program.start);
  }
  process.seen.guarded = !off && !program.start.is_final;
  process.seen.heard = !program.start.is_final;
  process.wait = kLongestWait;
  look_later(process);
  const bool is_whole = program.start.arguments.size() < kMostCommand;
  return is_whole ? program.start.arguments : "";
}

/// execve has succeeded.
void Starts::begin(Process& process) {
  end(process);
  process.runs = std::move(process.called);
  process.called.reset();
  Start& start = process.runs->start;
  if (start.kind == Start::Kind::kFails) {
    start.kind = Start::Kind::kUnknown;
    if (start.reason.empty()) start.reason = "its file was not found";
  }
  process.seen.command = start.command;
  process.seen.guarded = process.seen.heard = start.kind == Start::Kind::kLauncher;
}

/// The program of the process has ended.
void Starts::end(Process& process) {
  if (!process.runs) return;
  const Program program = std::move(*process.runs);
  process.runs.reset();
  const Start& start = program.start;
  using Kind = Start::Kind;
  const bool confirmed = (program.heard && !start.is_final) || start.kind == Kind::kLauncher;
  // If it has ended while ld.so was at work, no code of the program has run. Before Linux 6.15, one
  // that has ended before a look is taken for such a program.
  const bool is_clear = program.inside && (!*program.inside || !program.filtered);
  const bool ended_early =
      start.kind == Kind::kGuarded && start.own_guard &&
      (is_clear ? *program.inside : has_failed(start.process).value_or(!program.filtered));
  if (!program.heard && (ended_early || start.kind == Kind::kLists)) return;
  process.counts = true;
  if (confirmed && !program.off) {
    ++truth_.guarded;
    return;
  }
  const bool known = program.off || start.kind == Kind::kUnguarded;
  auto& list = known ? truth_.unguarded : truth_.unknown;
  const bool has_command = !process.seen.command.text.empty();
  list.push_back({.pid = process.seen.pid,
                  .command = has_command ? process.seen.command : start.command,
                  .reason = program.off                    ? kIsOff
                            : start.kind == Kind::kGuarded ? "it sent no start beacon"
                                                           : start.reason,
                  .has_driver = program.driver,
                  .seen = program.at,
                  .only_nvml = program.only_nvml,
                  .since = process.seen.since,
                  .names_nvidia = start.names_nvidia,
                  .program = start.program});
}

void Starts::look_later(Process& process) {
  if (process.due) due_.erase(*process.due);
  Clock::time_point at = Clock::now() + process.wait;
  // One wake-up serves all processes that need no early look.
  if (process.wait == kLongestWait)
    at = std::chrono::ceil<std::chrono::duration<int64_t, std::deci>>(at);
  process.due = due_.emplace(at, &process);
}

milliseconds Starts::look() noexcept {
  try {
    for (int i = 0; i < kMostLooks && !due_.empty(); ++i) {
      const auto first = due_.begin();
      if (first->first > Clock::now()) break;
      Process& process = *first->second;
      process.due.reset();
      due_.erase(first);
      look_at(process);
    }
    if (due_.empty()) return milliseconds::zero();
    const auto left = std::chrono::ceil<milliseconds>(due_.begin()->first - Clock::now());
    return std::max(left, milliseconds{1});
  } catch (const std::exception& error) {
    blind_ = error.what();  // memory has run out
    return milliseconds::zero();
  }
}

void Starts::look_at(Process& process) {
  const pid_t pid = process.pid;
  const bool is_guarded = !process.called && process.seen.guarded;
  if (is_guarded) {  // only its end is of interest
    if (kill(pid, 0) != 0 && errno == ESRCH) return;
  } else {
    const bool returned = process.called && has_returned(process.called->thread);
    const Stat stat = read_stat(pid);
    if (stat.started != process.seen.since) return;
    if (process.called && has_become(process, stat).value_or(false)) {
      begin(process);
    } else if (returned) {
      process.called.reset();
    }
    // Other threads may go on after the first one has ended.
    const pid_t thread = stat.runs() ? pid : running_thread(pid);
    if (thread == 0) return;
    if (process.runs) look_inside(thread, stat, *process.runs);
  }
  process.seen.last = seconds_now();
  process.wait = std::min(2 * process.wait, kLongestWait);
  look_later(process);
}

/// Call this only for a program that is not known to be guarded.
void Starts::look_inside(pid_t thread, const Stat& stat, Program& program) const {
  if (program.start.kind == Start::Kind::kGuarded && !program.heard) {
    if (program.inside == false) return;  // it has left ld.so for good
    program.inside = is_in_loader(thread, stat);
    // A filter of its own may refuse the beacon. Nothing is known of a process that has ended.
    const std::vector<uint64_t> filters = status_of(thread, "Seccomp_filters");
    program.filtered |= !filters.empty() && filters != filters_;
    return;
  }
  const Driver driver = driver_below(thread);
  if (driver == Driver::kNone) return;
  program.only_nvml = driver == Driver::kNvml && (program.only_nvml || !program.driver);
  program.driver = true;
}

TreeTruth Starts::finish(const Findings& findings) {
  std::map<Key, const Command*> commands;
  for (const ObservedProcess& process : findings.processes) {
    if (process.started == 0) continue;
    commands[Key(static_cast<pid_t>(process.pid), process.since)] = &process.command;
  }
  for (auto& [key, process] : processes_) {
    if (process.called) {
      const Stat stat = read_stat(process.pid);
      const bool exists = stat.started == process.seen.since && stat.state != 'X';
      const bool fails = process.called->start.kind == Start::Kind::kFails;
      const std::optional<bool> became = exists ? has_become(process, stat) : std::nullopt;
      if (became.value_or(!fails)) begin(process);
    }
    TreeTruth::Seen seen = process.seen;
    end(process);
    if (!process.counts) continue;
    if (const auto found = commands.find(key); seen.heard && found != commands.end()) {
      seen.command = *found->second;
    }
    truth_.seen.push_back(std::move(seen));
  }
  std::stable_sort(truth_.seen.begin(), truth_.seen.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!blind_.empty())
    truth_.doubts.push_back("unguarded processes were not looked for: " + blind_);
  return std::move(truth_);
}

}  // namespace cudaguard::launcher
