// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/ask_driver.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string_view>

#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/child/pipe.h"
#include "shim/launcher/doctor/forbid_changes.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using Outcome = DriverAnswer::Outcome;
using std::chrono::milliseconds;

constexpr milliseconds kStep{10};
/// For a process that was killed to be gone.
constexpr milliseconds kDeath{2000};
constexpr size_t kMostText = size_t{4} << 20;

struct ErrorRow {
  int code;
  const char* name;
  const char* text;
};
constexpr ErrorRow kErrors[] = {
#define CG_ERROR(code, name, text) {code, #name, text},
#include "shim/api/generated/driver_errors.inc"
#undef CG_ERROR
};

struct SignalRow {
  int number;
  const char* name;
};
constexpr SignalRow kSignals[] = {{SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
                                  {SIGILL, "SIGILL"},   {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"},
                                  {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},   {SIGTERM, "SIGTERM"},
                                  {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"}};

std::string signal_name(int number) {
  for (const SignalRow& row : kSignals) {
    if (row.number == number) return row.name;
  }
  return "SIG" + std::to_string(number);
}

/// What the child could not do before it became the probe.
struct Failure {
  bool filter;  ///< else: start
  int error;
};

/// What cannot be killed must not hold other people's pipes open.
void keep_descriptors_here() {
  // close_range(2), of Linux 5.9, with CLOSE_RANGE_CLOEXEC, of 5.11.
  constexpr long kCloseRange = 436;
  if (syscall(kCloseRange, 3U, ~0U, 1U << 2) == 0) return;
  rlimit most = {};
  if (getrlimit(RLIMIT_NOFILE, &most) != 0) most.rlim_cur = 1024;
  const int end = static_cast<int>(std::min<rlim_t>(most.rlim_cur, 1 << 20));
  for (int fd = 3; fd < end; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void become_probe(const std::string& probe, Variables& variables, int output,
                               int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  keep_descriptors_here();
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) close(STDIN_FILENO);
  if (null > STDIN_FILENO) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  Failure why = {true, forbid_changes()};
  if (why.error == 0) {
    std::string word = probe;
    char* const argv[] = {word.data(), nullptr};
    execve(probe.c_str(), argv, variables.pointers().data());
    why = {false, errno};
  }
  [[maybe_unused]] const ssize_t written = write(failure, &why, sizeof why);
  _exit(kRefused);
}

struct Child {
  pid_t pid = -1;
  Pipe output;
  Pipe failure;
};

/// False: errno says why.
bool start(const std::string& probe, Variables& variables, Child& child) {
  if (!child.output.made() || !child.failure.made()) return false;
  signal(SIGCHLD, SIG_DFL);  // ignored, the child's end would not be told
  child.pid = fork();
  if (child.pid < 0) return false;
  if (child.pid == 0) become_probe(probe, variables, child.output.end(1), child.failure.end(1));
  child.output.close_end(1);
  child.failure.close_end(1);
  setpgid(child.pid, child.pid);
  return true;
}

/// Waits up to `step` for more. False: nobody is left who could write.
bool read_some(int from, std::string& text, milliseconds step) {
  pollfd waiting = {from, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(step.count())) <= 0) return true;
  char buffer[4096];
  const ssize_t got = read(from, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR;
  if (got > 0 && text.size() < kMostText) text.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

/// Gathers what the child writes until it has ended. False: it has not, in that time.
bool wait_for(const Child& child, milliseconds patience, std::string& text, int& status) {
  const auto end = Clock::now() + patience;
  bool open = true;
  do {
    if (open) {
      open = read_some(child.output.end(0), text, kStep);
    } else {
      usleep(1000);
    }
    const pid_t ended = waitpid(child.pid, &status, WNOHANG);
    if (ended != child.pid && (ended >= 0 || errno == EINTR)) continue;
    // What it wrote last; a child of its own may still hold the pipe.
    for (size_t before = text.size() + 1; open && before != text.size();) {
      before = text.size();
      open = read_some(child.output.end(0), text, milliseconds{0});
    }
    return true;
  } while (Clock::now() < end);
  return false;
}

/// The next number, and the blank behind it, are taken off.
int take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return error == std::errc() ? static_cast<int>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX))
                              : 0;
}

void read_gpu(std::string_view rest, DriverAnswer& answer) {
  const size_t blank = std::min(rest.find(' '), rest.size());
  Gpu gpu;
  if (rest.substr(0, blank) != "-") gpu.uuid = rest.substr(0, blank);
  rest.remove_prefix(std::min(blank + 1, rest.size()));
  gpu.name = rest;
  answer.gpus->push_back(std::move(gpu));
}

void read_init(std::string_view rest, DriverAnswer& answer) {
  answer.code = take_number(rest);
  answer.milliseconds = take_number(rest) / 1000;
  for (const ErrorRow& row : kErrors) {
    if (row.code != *answer.code) continue;
    answer.name = row.name;
    answer.text = row.text;
  }
}

/// What the probe told; `noise`: the first line of anybody else.
void read_lines(std::string_view text, DriverAnswer& answer, std::string& noise, bool& lacks_init) {
  constexpr std::string_view kMark = "cudaguard-probe ";
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    const bool whole = end < text.size();
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(kMark)) {
      if (noise.empty()) noise = line;
      continue;
    }
    if (!whole) continue;
    line.remove_prefix(kMark.size());
    const std::string_view key = line.substr(0, line.find(' '));
    std::string_view rest = line.substr(std::min(key.size() + 1, line.size()));
    if (key == "no-cuInit") lacks_init = true;
    if (key == "init") read_init(rest, answer);
    if (key == "gpu" && answer.gpus) read_gpu(rest, answer);
    const bool told = (key == "version" || key == "count") && take_number(rest) == 0;
    if (told && key == "version") answer.version = take_number(rest);
    if (told && key == "count") answer.gpus.emplace();
  }
}

std::string place(const DriverAnswer& answer, std::string_view text) {
  if (answer.code) return "behind cuInit";
  return text.find("cudaguard-probe asks\n") == std::string_view::npos ? "before cuInit"
                                                                       : "in cuInit";
}

/// ld.so's words, without its "PROBE: ".
std::string reason_of_failure(const std::string& probe, std::string noise, bool lacks_init) {
  if (lacks_init) return "it has no cuInit";
  if (noise.starts_with(probe + ": ")) noise.erase(0, probe.size() + 2);
  if (noise.empty()) return "the probe ended without an answer";
  std::replace(noise.begin(), noise.end(), '"', '\'');
  return printable(noise);
}

DriverAnswer not_tried(const std::string& reason) {
  DriverAnswer answer;
  answer.reason = reason;
  return answer;
}

/// The driver's answer is asked for: not the guard's, nor that of anything else that is preloaded.
void leave_driver_alone(Variables& variables) {
  unset_loader_questions(variables);
  variables.unset("LD_PRELOAD");
  // A guard in /etc/ld.so.preload stays.
  variables.set("CUDAGUARD_POLICY", "OFF");
  for (const char* name : {"CUDAGUARD_VISIBLE_DEVICES", "CUDAGUARD_CHILDREN", "CUDAGUARD_ROOT",
                           "CUDAGUARD_REPORT", "CUDAGUARD_LOG"}) {
    variables.unset(name);
  }
}

/// How the probe ended.
struct End {
  bool in_time = false;
  bool gone = false;
  int status = 0;
  std::string text;
};

End wait_and_kill(const Child& child, milliseconds limit) {
  End end;
  end.in_time = end.gone = wait_for(child, limit, end.text, end.status);
  kill(-child.pid, SIGKILL);  // with what it may have started
  if (!end.gone) end.gone = wait_for(child, kDeath, end.text, end.status);
  return end;
}

DriverAnswer answer_of(const std::string& probe, const End& end) {
  DriverAnswer answer;
  std::string noise;
  bool lacks_init = false;
  read_lines(end.text, answer, noise, lacks_init);
  if (!end.in_time) {
    answer.outcome = Outcome::kHang;
    answer.where = place(answer, end.text);
  } else if (WIFSIGNALED(end.status)) {
    answer.outcome = Outcome::kSignal;
    answer.signal = signal_name(WTERMSIG(end.status));
    answer.where = place(answer, end.text);
  } else if (answer.code) {
    answer.outcome = Outcome::kAnswer;
  } else {
    answer.outcome = Outcome::kFailed;
    answer.reason = reason_of_failure(probe, noise, lacks_init);
  }
  return answer;
}

}  // namespace

DriverAnswer ask_driver(const std::string& probe, Variables variables, std::chrono::seconds limit) {
  leave_driver_alone(variables);
  Child child;
  if (!start(probe, variables, child)) {
    return not_tried(std::string("no process can be started: ") + strerror(errno));
  }
  const End end = wait_and_kill(child, limit);
  Failure failure = {};
  if (end.in_time &&
      read(child.failure.end(0), &failure, sizeof failure) == ssize_t{sizeof failure}) {
    return not_tried(failure.filter
                         ? "this kernel has no seccomp filter, which keeps the driver "
                           "from making device nodes"
                         : printable(probe) + " cannot be started: " + strerror(failure.error));
  }
  DriverAnswer answer = answer_of(probe, end);
  if (!end.gone) answer.stuck = child.pid;
  if (!end.in_time && !answer.code) {
    answer.milliseconds = static_cast<int>(milliseconds(limit).count());
  }
  return answer;
}

}  // namespace cudaguard::launcher
