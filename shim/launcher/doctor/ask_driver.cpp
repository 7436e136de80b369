// SPDX-License-Identifier: Apache-2.0
// Finds the driver files and asks the driver.
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "policy/driver_api.h"
#include "policy/text.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/doctor/doctor.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/health/ask_cuda.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/settings.h"

namespace cudaguard::launcher {

namespace {

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

void add_libraries(const Libraries& libraries, FindingList& findings) {
  constexpr uint64_t kMostNullDriver = uint64_t{1} << 20;  // NVIDIA's is far larger
  for (const auto& [name, path] : libraries.found) {
    std::error_code error;
    const std::string file = std::filesystem::canonical(path, error).string();
    const bool link = !error && file != path;
    const bool opencl = name == "libnvidia-opencl.so.1";
    add(findings, opencl ? "NVIDIA's OpenCL" : name.c_str(), State::kFact,
        path.empty() ? "none" : printable(path) + (link ? ", which is " + printable(file) : ""));
    if (!contains(FileBytes(path), "cudaguard_attempt_v1", kMostNullDriver)) continue;
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
  const std::string& probe = machine.installation.probe;
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
    // ld.so lists at least itself if a library is missing.
    if (libraries.found.empty()) libraries.fails = answer.libraries.empty();
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

std::string judge_answer(const DriverAnswer& answer, std::chrono::seconds limit,
                         FindingList& findings) {
  const std::string where = answer.call.empty() ? "before cuInit" : "in cuInit";
  const auto report = [&](const std::string& row, const std::string& problem,
                          const char* remedy = "") {
    add(findings, "cuInit", State::kFact, row);
    if (!problem.empty()) add(findings, "driver", State::kProblem, problem, remedy);
  };
  std::string result = "answers";
  switch (answer.kind) {
    case DriverAnswer::Kind::kNotAsked:
      report("not tried: " + answer.why, "");
      return "driver: not asked";
    case DriverAnswer::Kind::kHangs: {
      const std::string seconds = std::to_string(limit.count());
      result = "no answer within " + seconds + " s";
      report(
          "no answer after " + seconds + "000 ms, " + where,
          "the driver hangs " + where + " (or is slow: CUDAGUARD_DOCTOR_TIMEOUT=60 waits longer)",
          kKeepOff);
      break;
    }
    case DriverAnswer::Kind::kCrashed:
      result = "crashes";
      report("crash (" + answer.why + ") " + where,
             "the driver crashes " + where + " (" + answer.why + ")", kKeepOff);
      break;
    case DriverAnswer::Kind::kBroken:
      result = "does not work";
      report("failed: " + answer.why, "libcuda.so.1 does not work: " + answer.why);
      break;
    case DriverAnswer::Kind::kAnswered: {
      std::string row = std::to_string(answer.code);
      std::string problem = "cuInit fails with " + row;
      const bool well = answer.code == 0 || answer.code == kNoDevice;
      if (answer.code == kNoDevice) result = "answers that there is no device";
      if (!well) result = "fails with " + row;
      if (const DriverError* error = driver_error(answer.code); error != nullptr) {
        row += std::string(" ") + error->name + " (" + error->text + ")";
        problem += std::string(" ") + error->name;
      }
      for (const auto& [number, advice] : kAdvice) {
        if (number == answer.code) problem += advice;
      }
      report(row + " after " + std::to_string(answer.took.count() / 1000) + " ms",
             well ? "" : problem);
    }
  }
  if (answer.stuck != 0) {
    add(findings, "driver", State::kProblem,
        "process " + std::to_string(answer.stuck) +
            ", which asked the driver, survives SIGKILL: it sleeps in the kernel, and a "
            "reboot will be needed");
  }
  return "driver: " + result;
}

std::string ask_driver(const Machine& machine, const Libraries& libraries, FindingList& findings) {
  add_libraries(libraries, findings);
  const Sandbox sandbox = find_sandbox(machine.limit);
  const auto not_asked = [&](const std::string& why) {
    add(findings, "cuInit", State::kFact, "not tried: " + why);
    explain_sandbox(sandbox, nullptr, findings);
    return "driver: not asked";
  };
  if (libraries.found.empty()) return not_asked(libraries.trouble);
  if (libraries.found[0].second.empty() && !libraries.fails) {
    not_asked("there is no libcuda.so.1");
    return "driver: none";
  }
  Variables variables = machine.variables;
  take_back_presets(variables);
  const DriverAnswer answer =
      ask_cuda(machine.installation.probe, std::move(variables), machine.limit, Ask::kInit);
  std::string result = judge_answer(answer, machine.limit, findings);
  if (machine.fence.was_there && answer.kind != DriverAnswer::Kind::kNotAsked) {
    add(findings, "cuInit", State::kFact,
        "doctor itself is under a fence: cuInit's answer is the fence's");
  }
  explain_sandbox(sandbox, machine.fence.was_there ? nullptr : &answer, findings);
  return result;
}

}  // namespace cudaguard::launcher
