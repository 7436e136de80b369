// SPDX-License-Identifier: Apache-2.0
// Finds the driver files and asks the driver. A broken driver hangs or crashes, so a child process
// asks it, which is killed at the time limit, or abandoned if it does not die.
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/doctor/questions.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

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

constexpr std::pair<int, const char*> kAdvice[] = {
    {34, ": libcuda.so.1 is a stub to link against; the driver's must be found first"},
    {304, ": a system call of the driver's failed; dmesg may say more (NVRM)"},
    {802, ": the fabric manager is not ready; systemctl status nvidia-fabricmanager"},
    {803, ": libcuda and the kernel module do not fit; reboot, or load the module again"},
    {804, ": this GPU cannot use a libcuda that is newer than the kernel module (cuda-compat)"},
    {999,
     ": dmesg may say more (NVRM, Xid); after a suspend: rmmod nvidia_uvm; modprobe "
     "nvidia_uvm"}};

constexpr const char* kKeepOff = "cudaguard run keeps programs off it";

void add(FindingList& findings, const char* id, State state, std::string text,
         std::string remedy = "") {
  findings.push_back({id, Question::kDriver, state, std::move(text), std::move(remedy)});
}

/// The text of ld.so, without its "PROBE: ".
std::string why_no_answer(const ChildEnd& end, const std::string& probe) {
  if (end.out.find("\ncudaguard-probe no-cuInit") != std::string::npos) return "it has no cuInit";
  std::string words = end.err.substr(0, end.err.find('\n'));
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

/// Runs in the child before execve. Returns false if it cannot restrict what the driver may do.
bool prepare_probe() {
  // An abandoned child must not keep its parent's pipes open: close_range(2) of Linux 5.9, with
  // CLOSE_RANGE_CLOEXEC of 5.11.
  constexpr long kCloseRange = 436;
  syscall(kCloseRange, 3U, ~0U, 1U << 2);
  // Run by root, a driver loads its module and makes device nodes. For others the setuid program
  // nvidia-modprobe does. Then a machine without a GPU looks as if it had one.
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

void add_libraries(const Libraries& libraries, FindingList& findings) {
  constexpr uint64_t kMostNullDriver = uint64_t{1} << 20;  // NVIDIA's is far larger
  for (const auto& [name, path] : libraries.found) {
    std::error_code error;
    const std::string file = std::filesystem::canonical(path, error).string();
    const bool link = !error && file != path;
    const bool opencl = name == "libnvidia-opencl.so.1";
    add(findings, opencl ? "NVIDIA's OpenCL" : name.c_str(), State::kFact,
        path.empty() ? "none" : printable(path) + (link ? ", which is " + printable(file) : ""));
    if (!contains(FileBytes(path), "cudaguard_touch_v1", kMostNullDriver)) continue;
    add(findings, "null_driver", State::kProblem,
        name + " is cudaguard's null driver (" + printable(path) +
            "): programs find no CUDA device, whatever CUDAGUARD_POLICY says",
        "remove its directory from LD_LIBRARY_PATH, or from /etc/ld.so.conf and run ldconfig");
  }
  if (!libraries.hangs) return;
  add(findings, "libraries", State::kProblem,
      "which driver libraries there are is not known: " + libraries.trouble +
          "; programs that load them hang too (or it is slow: CUDAGUARD_DOCTOR_TIMEOUT=60 waits "
          "longer)");
}

}  // namespace

Libraries find_libraries(const Machine& machine) {
  const std::string& probe = machine.own_files.back().path;
  Libraries libraries;
  const std::string loader = read_elf(FileBytes(probe)).interpreter;
  if (loader.empty()) {
    libraries.trouble = printable(probe) + " is missing or damaged";
  } else if (access(loader.c_str(), X_OK) != 0) {
    libraries.trouble = "there is no " + printable(loader) + ", which starts programs";
  }
  // The probe is linked to the first library, as programs are; the others are preloaded.
  Variables variables = machine.variables;
  variables.unset("LD_PRELOAD");
  for (const char* name :
       {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-opencl.so.1", kGuardName}) {
    if (!libraries.trouble.empty()) break;
    if (!libraries.found.empty()) variables.set("LD_PRELOAD", name);
    const LoaderAnswer answer = ask_loader(loader, probe, variables, machine.limit);
    libraries.hangs = !answer.trouble.empty();
    if (libraries.hangs) {
      libraries.trouble = "asked for " + std::string(name) + ", ld.so " + answer.trouble;
      break;
    }
    const LoadedLibrary* found = answer.find(name);
    libraries.found.emplace_back(name, found == nullptr ? "" : found->path);
    for (const LoadedLibrary& library : answer.libraries) {
      if (base_name(library.path) != kGuardName) continue;
      (name == kGuardName ? libraries.guard_by_bare_name : libraries.system_guard) = library.path;
    }
  }
  if (libraries.found.size() == 5) libraries.found.pop_back();  // the guard
  return libraries;
}

std::string judge_answer(const ChildEnd& end, const std::string& probe, std::chrono::seconds limit,
                         FindingList& findings) {
  constexpr std::string_view kInit = "\ncudaguard-probe init ";
  const bool asks = end.out.find("\ncudaguard-probe asks") != std::string::npos;
  const std::string where = asks ? "in cuInit" : "before cuInit";
  int code = 0;
  int64_t microseconds = 0;
  const size_t at = end.out.find(kInit);
  if (at != std::string::npos) {
    std::istringstream(end.out.substr(at + kInit.size())) >> code >> microseconds;
  }
  const auto tell = [&](const std::string& row, const std::string& problem,
                        const char* remedy = "") {
    add(findings, "cuInit", State::kFact, row);
    if (!problem.empty()) add(findings, "driver", State::kProblem, problem, remedy);
  };
  std::string result = "answers";
  if (!end.in_time) {
    const std::string seconds = std::to_string(limit.count());
    result = "no answer within " + seconds + " s";
    tell("no answer after " + seconds + "000 ms, " + where,
         "the driver hangs " + where + " (or is slow: CUDAGUARD_DOCTOR_TIMEOUT=60 waits longer)",
         kKeepOff);
  } else if (WIFSIGNALED(end.status)) {
    const char* name = sigabbrev_np(WTERMSIG(end.status));
    const std::string signal =
        "SIG" + (name == nullptr ? std::to_string(WTERMSIG(end.status)) : name);
    result = "crashes";
    tell("crash (" + signal + ") " + where, "the driver crashes " + where + " (" + signal + ")",
         kKeepOff);
  } else if (at == std::string::npos) {
    const std::string why = why_no_answer(end, probe);
    result = "does not work";
    tell("failed: " + why, "libcuda.so.1 does not work: " + why);
  } else {
    std::string row = std::to_string(code);
    std::string problem = "cuInit fails with " + row;
    const bool well = code == 0 || code == kNoDevice;
    if (code == kNoDevice) result = "answers that there is no device";
    if (!well) result = "fails with " + row;
    for (const ErrorRow& error : kErrors) {
      if (error.code != code) continue;
      row += std::string(" ") + error.name + " (" + error.text + ")";
      problem += std::string(" ") + error.name;
    }
    for (const auto& [number, advice] : kAdvice) {
      if (number == code) problem += advice;
    }
    tell(row + " after " + std::to_string(microseconds / 1000) + " ms", well ? "" : problem);
  }
  if (end.stuck != 0) {
    add(findings, "driver", State::kProblem,
        "process " + std::to_string(end.stuck) +
            ", which asked the driver, does not die of SIGKILL: it sleeps in the kernel, and a "
            "reboot will be needed");
  }
  return "driver: " + result;
}

std::string ask_driver(const Machine& machine, const Libraries& libraries, FindingList& findings) {
  add_libraries(libraries, findings);
  const auto not_asked = [&](const std::string& why) {
    add(findings, "cuInit", State::kFact, "not tried: " + why);
    return "driver: not asked";
  };
  if (libraries.found.empty()) return not_asked(libraries.trouble);
  if (libraries.found[0].second.empty()) {
    not_asked("there is no libcuda.so.1");
    return "driver: none";
  }
  const std::string& probe = machine.own_files.back().path;
  Variables variables = machine.variables;
  leave_driver_alone(variables);
  signal(SIGCHLD, SIG_DFL);  // if ignored, waitpid would not report the child
  const ChildEnd end = run_child({probe}, std::move(variables), machine.limit, prepare_probe);
  if (end.not_started == kHeldBack) {
    return not_asked("the driver could not be kept from making device nodes");
  }
  if (end.not_started != 0) {
    return not_asked(printable(probe) + " cannot be started: " + strerror(end.not_started));
  }
  std::string answer = judge_answer(end, probe, machine.limit, findings);
  if (machine.fence.was_there) {
    add(findings, "cuInit", State::kFact,
        "doctor itself is under a fence: cuInit's answer is the fence's");
  }
  return answer;
}

}  // namespace cudaguard::launcher
