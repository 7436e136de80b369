// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "policy/config.h"
#include "policy/text.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/doctor/show_machine.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

using Kind = DriverLibrary::Kind;

constexpr const char* kLimit = "CUDAGUARD_DOCTOR_TIMEOUT";
constexpr int kMostSeconds = 3600;
constexpr int kNoDevice = 100;

std::chrono::seconds time_limit(const Variables& variables) {
  const char* value = variables.get(kLimit);
  if (value == nullptr || *value == '\0') return std::chrono::seconds{10};
  int seconds = 0;
  const char* end = value + strlen(value);
  const auto [rest, error] = std::from_chars(value, end, seconds);
  if (error != std::errc() || rest != end || seconds < 1 || seconds > kMostSeconds) {
    throw Refusal(kRefused, std::string(kLimit) + "=" + in_quotes(value) +
                                " is not accepted (accepted: seconds, 1 to 3600)");
  }
  return std::chrono::seconds{seconds};
}

std::vector<std::string> missing_of(const Installation& installation, const std::string& probe) {
  const std::string folder(folder_of(installation.standin_cuda));
  std::vector<std::string> missing;
  for (const std::string& file :
       {installation.standin_cuda, folder + "/libcuda.so", installation.standin_nvml,
        folder + "/libnvidia-ml.so", folder + "/libnvidia-opencl.so.1", installation.companion_cuda,
        installation.companion_nvml, probe}) {
    if (access(file.c_str(), R_OK) != 0) missing.push_back(file);
  }
  return missing;
}

/// Empty: it may be asked.
std::string why_not_ask(const Libraries& libraries, const KernelFacts& kernel) {
  if (libraries.found[0].kind == Kind::kNotKnown) return libraries.trouble;
  if (libraries.found[0].kind == Kind::kNone) return "there is no libcuda.so.1";
  if (const DeviceNode* node = kernel.left_behind(); node != nullptr) {
    return "to open " + printable(node->path) + " may load the kernel module";
  }
  return {};
}

void ask(const std::string& probe, std::chrono::seconds limit, MachineFacts& facts) {
  facts.answer.reason = why_not_ask(facts.libraries, facts.kernel);
  if (!facts.answer.reason.empty()) return;
  facts.answer = ask_driver(probe, facts.variables, limit);
  facts.gpus = facts.answer.gpus;
  const int code = facts.answer.code.value_or(-1);
  if (facts.answer.outcome != DriverAnswer::Outcome::kAnswer || (code != 0 && code != kNoDevice))
    return;
  if (code == kNoDevice) facts.gpus.emplace();
  if (!facts.variables.has("CUDA_VISIBLE_DEVICES") &&
      !facts.variables.has("CUDAGUARD_VISIBLE_DEVICES")) {
    return;
  }
  // Once more as if nobody had chosen; the allow-list's indices are in this order.
  Variables plain = facts.variables;
  plain.unset("CUDA_VISIBLE_DEVICES");
  plain.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  facts.with_every_gpu = ask_driver(probe, plain, limit);
  facts.gpus = facts.with_every_gpu->gpus;
  if (facts.with_every_gpu->code == kNoDevice) facts.gpus.emplace();
}

/// CUDA_*, CUDAGUARD_* and LD_*: all that changes what ld.so, the driver or the guard does.
std::vector<std::pair<std::string, std::string>> environment_of(Variables variables) {
  std::vector<std::pair<std::string, std::string>> environment;
  for (const char* pointer : variables.pointers()) {
    const std::string_view entry = pointer == nullptr ? "" : pointer;
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = entry.substr(0, equals);
    if (!name.starts_with("CUDA_") && !name.starts_with("CUDAGUARD_") && !name.starts_with("LD_") &&
        !name.starts_with("NVIDIA_")) {
      continue;
    }
    environment.emplace_back(name, entry.substr(std::min(equals + 1, entry.size())));
  }
  std::sort(environment.begin(), environment.end());
  return environment;
}

/// The guard that doctor's own environment has, if ld.so finds it.
std::string guarded_by(const Variables& variables, const Libraries& libraries) {
  for (const std::string& entry : preload_entries(variables.get("LD_PRELOAD"))) {
    if (base_name(entry) != "libcudaguard.so") continue;
    const bool bare = entry.find('/') == std::string::npos;
    const std::string& path = bare ? libraries.guard_by_bare_name : entry;
    if (!path.empty() && access(path.c_str(), R_OK) == 0) return "LD_PRELOAD";
  }
  return libraries.system_guard.empty() ? "" : "/etc/ld.so.preload";
}

}  // namespace

MachineReport examine_machine(const Installation& installation, const Variables& variables) {
  const std::string probe = std::string(folder_of(installation.standin_cuda)) + "/cudaguard-probe";
  const std::chrono::seconds limit = time_limit(variables);
  MachineFacts facts(installation, variables);
  facts.missing_files = missing_of(installation, probe);
  facts.guard = read_own_version(installation.guard);
  facts.libraries = find_libraries(probe, variables, limit);
  facts.kernel = examine_kernel();
  facts.environment = environment_of(variables);
  facts.guarded_by = guarded_by(variables, facts.libraries);
  ask(probe, limit, facts);
  Findings findings;
  judge_machine(facts, findings);
  judge_environment(facts, findings);
  return {machine_json(facts, findings), machine_text(facts, findings), findings.problems};
}

}  // namespace cudaguard::launcher
