// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/health/ask_cuda.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "policy/policies.h"
#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/preload/machine_rules.h"

namespace cudaguard::launcher {

namespace {

constexpr DriverError kErrors[] = {
#define CG_ERROR(code, name, text) {code, #name, text},
#include "shim/api/generated/driver_errors.inc"
#undef CG_ERROR
};

/// One line of the probe: "cudaguard-probe KEY CODE VALUE".
struct Line {
  std::string key;
  int code = 0;
  int64_t value = 0;
};

std::vector<Line> lines_of(std::string_view out) {
  constexpr std::string_view kStart = "\ncudaguard-probe ";
  std::vector<Line> lines;
  for (size_t at = out.find(kStart); at != std::string_view::npos; at = out.find(kStart, at + 1)) {
    const std::string_view rest = out.substr(at + kStart.size());
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    Line line;
    std::istringstream words{std::string(rest.substr(0, end))};
    if (words >> line.key >> line.code >> line.value) lines.push_back(std::move(line));
  }
  return lines;
}

/// The text of ld.so, without its "PROBE: ".
std::string words_of_loader(const std::string& err, const std::string& probe) {
  std::istringstream lines(err);
  std::string words;
  // NVML, which is preloaded, may be missing.
  while (std::getline(lines, words) && words.starts_with("ERROR: ld.so: object")) words.clear();
  if (words.empty()) return "the probe ended without an answer";
  if (words.starts_with(probe + ": ")) words.erase(0, probe.size() + 2);
  std::replace(words.begin(), words.end(), '"', '\'');
  return printable(words);
}

/// Removes the guard and other preloaded libraries, so that the driver itself answers.
void leave_driver_alone(Variables& variables) {
  unset_loader_questions(variables);
  variables.unset("LD_PRELOAD");
  for (const VariableRow& row : kVariables) variables.unset(row.name);
  // A guard in /etc/ld.so.preload stays loaded, so its policy becomes OFF.
  variables.set(row_of(Variable::kPolicy).name, name_of(Policy::kOff));
}

/// Run by root, a driver loads its module and makes device nodes. For others the setuid program
/// nvidia-modprobe does. Then a machine without a GPU looks as if it had one.
bool forbid_device_nodes() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (geteuid() != 0) return true;
  // After execve, root has the capabilities in these two sets.
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return false;
  for (const uint32_t capability : {CAP_MKNOD, CAP_SYS_MODULE}) {
    const bool bounding = prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1;
    if (bounding && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return false;
    sets[0].inheritable &= ~(1U << capability);
  }
  return syscall(SYS_capset, &header, sets) == 0;
}

/// Runs in the child before execve. Continues in a child of its own, the probe, and ends like it.
/// If the probe cannot be killed, this process still can: the probe then belongs to init, and the
/// program that replaces the launcher never has an unknown child.
bool become_probe() {
  const pid_t probe = fork();
  if (probe == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // An abandoned process must not keep descriptors open: close_range(2) of Linux 5.9, with
    // CLOSE_RANGE_CLOEXEC of 5.11.
    constexpr long kCloseRange = 436;
    syscall(kCloseRange, 3U, ~0U, 1U << 2);
    return true;
  }
  if (probe < 0) return false;
  dprintf(STDOUT_FILENO, "\ncudaguard-probe process 0 %d\n", probe);
  int status = 0;
  while (waitpid(probe, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    sigset_t none;  // our caller may have blocked the signal
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    raise(WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));
}

bool become_probe_without_nodes() { return forbid_device_nodes() && become_probe(); }

/// Waits for the death of a killed process. While it is runnable, only the longer limit counts.
/// False if /proc cannot tell.
bool survives(pid_t pid) {
  constexpr std::chrono::milliseconds kPause(2);
  for (int looks = 0, asleep = 0; looks < kDeath.busy / kPause && asleep < kDeath.usual / kPause;
       ++looks) {
    const Stat stat = read_stat(pid);
    if (!stat.runs()) return false;
    asleep = stat.state == 'R' ? 0 : asleep + 1;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

/// Says which rule of the machine keeps the probe off the driver, and what helps.
std::string why_refused(const std::string& probe, const Variables& variables) {
  Program program;
  program.path = probe;
  AskedProcess process = started_here(program);
  process.args = probe;
  const std::string place = MachineRules().answer(process).place;
  std::string set;
  for (const char* name : kLoadingVariables) {
    const char* value = variables.get(name);
    if (value == nullptr || !loads_other_code(name, value)) continue;
    set += std::string(set.empty() ? "" : " ") + name;
  }
  return std::string(base_name(probe)) + " may not use CUDA (" + printable(place) + "); " +
         (set.empty() ? "use the cudaguard command whose guard /etc/ld.so.preload names"
                      : "unset " + set);
}

}  // namespace

const DriverError* driver_error(int code) {
  const auto* const row = std::ranges::find(kErrors, code, &DriverError::code);
  return row == std::end(kErrors) ? nullptr : row;
}

DriverAnswer read_answer(const ChildEnd& end, const std::string& probe) {
  using Kind = DriverAnswer::Kind;
  DriverAnswer answer;
  answer.stuck = end.stuck;
  bool has_answer = false;
  bool refused = false;
  for (const Line& line : lines_of(end.out)) {
    refused = refused || line.key == "refused";
    if (line.key == "no-cuInit") answer.why = "it has no cuInit";
    if (line.key == "init") answer.took = std::chrono::microseconds(line.value);
    if (line.key == "count") answer.gpus = static_cast<int>(line.value);
    if (line.code != 0) {
      // The probe ends after the first error. `call` and `device` have it.
      answer.code = line.code;
      has_answer = true;
      break;
    }
    // The call that the probe makes next.
    if (line.key == "asks") answer.call = "cuInit";
    if (line.key == "init") answer.call = "cuDeviceGetCount";
    if (line.key == "count" || line.key == "device") {
      answer.call.clear();
      ++answer.device;
    }
    if (line.key == "asks-nvml") {
      answer.call = "nvmlInit";
      answer.device = -1;
    }
    if (line.key == "done") has_answer = true;
  }
  if (refused) {
    answer.kind = Kind::kNotAsked;
  } else if (!end.in_time) {
    answer.kind = Kind::kHangs;
  } else if (WIFSIGNALED(end.status)) {
    const char* name = sigabbrev_np(WTERMSIG(end.status));
    answer.kind = Kind::kCrashed;
    answer.why = "SIG" + (name == nullptr ? std::to_string(WTERMSIG(end.status)) : name);
  } else if (has_answer) {
    answer.kind = Kind::kAnswered;
  } else {
    answer.kind = Kind::kBroken;
    if (answer.why.empty()) answer.why = words_of_loader(end.err, probe);
  }
  return answer;
}

DriverAnswer ask_cuda(const std::string& probe, Variables variables,
                      std::chrono::milliseconds limit, Ask what) {
  leave_driver_alone(variables);
  // Without the module nothing can be gained by device nodes.
  const bool loaded = what == Ask::kGpus && access("/proc/driver/nvidia/version", F_OK) == 0;
  std::vector<std::string> words = {probe};
  if (what == Ask::kGpus) {
    words.emplace_back("gpus");
    variables.set("LD_PRELOAD", kProbePreload);
  }
  const ChildEnd end = run_child(std::move(words), variables, limit,
                                 loaded ? become_probe : become_probe_without_nodes);
  DriverAnswer answer;
  if (end.not_started != 0) {
    answer.why = end.not_started == kHeldBack
                     ? "the driver could not be kept from making device nodes"
                     : printable(probe) + " cannot be started: " + strerror(end.not_started);
    return answer;
  }
  answer = read_answer(end, probe);
  if (answer.kind == DriverAnswer::Kind::kNotAsked) answer.why = why_refused(probe, variables);
  for (const Line& line : lines_of(end.out)) {
    const auto pid = static_cast<pid_t>(line.value);
    if (line.key == "process" && !end.in_time && survives(pid)) answer.stuck = pid;
    if (line.key == "process") break;  // later ones are the driver's own words
  }
  return answer;
}

}  // namespace cudaguard::launcher
