// SPDX-License-Identifier: Apache-2.0
// The environment's mistakes, each in a sentence with its remedy.
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "policy/config.h"
#include "policy/selection.h"
#include "policy/text.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/report.h"

namespace cudaguard::launcher {

namespace {

bool is_ours(const std::string& name) {
  return name == kDoctorTimeout.name || name == kHello ||
         std::any_of(std::begin(kVariables), std::end(kVariables),
                     [&](const VariableRow& row) { return name == row.name; });
}

/// The GPUs that CUDA_VISIBLE_DEVICES is read among.
struct Choice {
  Machine machine;
  View view;
  bool known = false;
  bool by_list = false;  ///< those of CUDAGUARD_VISIBLE_DEVICES
};

std::string shown(const char* name, const Variables& variables) {
  return std::string(name) + "=" + in_quotes(variables.get(name));
}

/// Without MIG: its devices have other lists for CUDA than for NVML.
bool fill(const std::vector<Gpu>& gpus, Machine& machine) {
  if (gpus.empty() || gpus.size() > kMostGpus) return false;
  for (const Gpu& gpu : gpus) {
    if (!gpu.uuid.starts_with("GPU-") || gpu.uuid.size() >= kMostUuid) return false;
    Machine::Device& device = machine.devices[machine.count];
    std::fill(std::begin(device.uuid), std::end(device.uuid), '\0');
    gpu.uuid.copy(device.uuid, kMostUuid - 1);
    device.gpu = static_cast<uint16_t>(machine.count++);
    device.mig = false;
  }
  return true;
}

std::string what_is_there(const Choice& choice) {
  const size_t count = choice.view.count;
  const std::string range = count == 1 ? "0" : "0 to " + std::to_string(count - 1);
  return choice.by_list ? "CUDAGUARD_VISIBLE_DEVICES leaves " + range : "this machine has " + range;
}

/// What is wrong with an entry, behind its name; "it" is the entry.
std::string explain(VisibleMistake::Why why, const Choice& choice) {
  using Why = VisibleMistake::Why;
  constexpr const char* kHides = " and hides itself and all that follow";
  switch (why) {
    case Why::kDuplicate:
      return "names a GPU that is in the list already: CUDA then shows none; name each once";
    case Why::kNegative:
      return "hides all that follow; leave it out";
    case Why::kNoSuchIndex:
      return "is no GPU (" + what_is_there(choice) + ")" + kHides;
    case Why::kEmptyEntry:
      return std::string("is empty") + kHides + "; for no GPU at all write CUDA_VISIBLE_DEVICES=";
    case Why::kNotUnderstood:
      return std::string("is no index, GPU-... or MIG-...") + kHides +
             "; for all GPUs unset the variable";
    case Why::kMixed:
      return std::string("is not of the first entry's kind (index, GPU-..., MIG-...)") + kHides;
    case Why::kBlankAtUuid:
      return std::string("has a blank") + kHides + "; remove the blank";
    case Why::kUnknownUuid:
      return std::string("is the UUID of no GPU here") + kHides;
    case Why::kAmbiguousUuid:
      return std::string("begins the UUIDs of several GPUs") + kHides + "; write more of it";
    case Why::kBlank:
      return "has a blank: CUDA passes over it, as not every reader of the variable does; remove "
             "it";
    case Why::kReadInPart:
    case Why::kNone:
      break;
  }
  return "is read as its number alone; entries are separated by commas";
}

void judge_visible(const MachineFacts& facts, const Choice& choice, MachineFindings& findings) {
  const char* value = facts.variables.get("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return;
  const Selection selection = select(value, choice.known ? &choice.view : nullptr, &choice.machine);
  for (size_t i = 0; i < selection.mistake_count; ++i) {
    const VisibleMistake& mistake = selection.mistakes[i];
    findings.problem(shown("CUDA_VISIBLE_DEVICES", facts.variables) + ": entry " +
                     std::to_string(mistake.position) + " " + in_quotes(mistake.entry) + " " +
                     explain(mistake.why, choice));
  }
  if (facts.gpus && !facts.gpus->empty() &&
      facts.answer.gpus.value_or(std::vector<Gpu>{}).empty()) {
    findings.note(shown("CUDA_VISIBLE_DEVICES", facts.variables) + " hides the " +
                  (facts.gpus->size() == 1 ? "GPU" : "GPUs") + " of this machine");
  }
}

void judge_order(const Variables& variables, MachineFindings& findings) {
  const char* order = variables.get("CUDA_DEVICE_ORDER");
  if (order == nullptr || *order == '\0') return;
  const std::string_view value = order;
  if (value == "FASTEST_FIRST" || value == "PCI_BUS_ID") return;
  findings.problem(shown("CUDA_DEVICE_ORDER", variables) +
                   " is not known to CUDA (known: FASTEST_FIRST, PCI_BUS_ID)");
}

/// CUDAGUARD_..., those that are set.
std::vector<std::string> own_names(Variables variables) {
  std::vector<std::string> names;
  for (const char* entry : variables.pointers()) {
    const std::string_view text = entry == nullptr ? "" : entry;
    if (text.starts_with("CUDAGUARD_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

void judge_own_variables(const MachineFacts& facts, const Config& config,
                         MachineFindings& findings) {
  const Variables& variables = facts.variables;
  if (config.list_error.why != ListError::Why::kNone) {
    findings.problem(text_of([&](Text& line) {
      write_list_error(line, {config.bad_list, config.list_error});
    }));
  }
  for (size_t i = 0; i < config.complaint_count; ++i) {
    findings.problem(text_of([&](Text& line) { write_complaint(line, config.complaints[i]); }));
  }
  const auto no_effect = [&](const char* name, const std::string& why) {
    if (!variables.has(name)) return;
    findings.problem(shown(name, variables) + " has no effect " + why);
  };
  const std::string under = "under CUDAGUARD_POLICY=" + std::string(name_of(config.policy));
  if (config.policy == Policy::kOff) no_effect("CUDAGUARD_VISIBLE_DEVICES", under);
  if (!lets_through(config.policy) && config.because.empty() && config.children_cpu) {
    no_effect("CUDAGUARD_CHILDREN", under);
  }
  for (const std::string& name : own_names(variables)) {
    if (is_ours(name)) continue;
    findings.problem(printable(name) + " is not a variable of cudaguard's");
  }
  try {
    check_report(config.report, false, {});
  } catch (const Refusal& refusal) {
    findings.problem(refusal.what());
  }
}

/// The GPUs that a guarded program's own list is read among; complains of a list that names others.
void judge_list(const MachineFacts& facts, const Config& config, Choice& choice,
                MachineFindings& findings) {
  choice.known = facts.gpus && fill(*facts.gpus, choice.machine);
  if (!choice.known) return;
  for (size_t i = 0; i < choice.machine.count; ++i) {
    choice.view.devices[choice.view.count++] = static_cast<uint16_t>(i);
  }
  if (config.visible_devices.empty()) return;
  const View view = resolve(parse_allow_list(config.visible_devices), choice.machine);
  if (view.error.why == ListError::Why::kNone) {
    choice.view = view;
    choice.by_list = true;
    return;
  }
  choice.known = false;
  findings.problem(text_of([&](Text& line) {
    write_list_error(line, {config.visible_devices, view.error, choice.machine.count});
  }));
}

/// GPUs were chosen, or CUDA let through, on a machine that has none of it.
void judge_choice(const MachineFacts& facts, const Config& config, MachineFindings& findings) {
  if (!lets_through(config.policy)) return;
  const bool no_driver = facts.libraries.found[0].kind == DriverLibrary::Kind::kNone;
  if (!no_driver && (!facts.gpus || !facts.gpus->empty())) return;
  const bool list = !config.visible_devices.empty();
  findings.problem((list ? shown("CUDAGUARD_VISIBLE_DEVICES", facts.variables) + " chooses GPUs"
                         : shown("CUDAGUARD_POLICY", facts.variables) + " lets CUDA through") +
                   (no_driver ? ", but there is no driver here (no libcuda.so.1)"
                              : ", but this machine shows no GPU") +
                   ": programs find no CUDA device");
}

void judge_guard_entry(const std::string& entry, const MachineFacts& facts,
                       MachineFindings& findings) {
  const std::string& own = facts.installation.guard;
  const std::string what = "LD_PRELOAD names " + in_quotes(entry) + ", ";
  const bool bare = entry.find('/') == std::string::npos;
  if (bare && facts.libraries.hangs) return;  // nobody knows
  const std::string path = bare ? facts.libraries.guard_by_bare_name : entry;
  if (path.empty() || access(path.c_str(), R_OK) != 0) {
    findings.problem(what + "which " + (bare ? "ld.so does not find" : "is not there") +
                     ": programs run unguarded; this command's guard is " + printable(own));
  } else if (!bare && !entry.starts_with("/")) {
    findings.problem(
        what + "a relative path: programs that start in another folder run unguarded; write " +
        printable(own));
  } else if (std::error_code error; !std::filesystem::equivalent(path, own, error)) {
    findings.problem(what + "another copy than this command's, " + printable(own) +
                     "; keep one of them");
  }
}

void judge_preload(const MachineFacts& facts, MachineFindings& findings) {
  std::string guard;
  for (const std::string& entry : preload_entries(facts.variables.get("LD_PRELOAD"))) {
    if (base_name(entry) == "libcudaguard.so") {
      guard = entry;
      judge_guard_entry(entry, facts, findings);
    } else if (is_sanitizer_runtime(entry) && !guard.empty()) {
      findings.problem("LD_PRELOAD names " + in_quotes(entry) +
                       " behind the guard: a sanitizer's runtime must come first");
    } else if (!is_own_library(entry) && entry.find('/') != std::string::npos &&
               identify("", entry).kind == DriverLibrary::Kind::kStub) {
      findings.problem("LD_PRELOAD names " + in_quotes(entry) +
                       ", the CUDA toolkit's stub: CUDA fails with error 34; remove it");
    }
  }
}

/// What makes other software pass the guard by.
void judge_others(const Variables& variables, MachineFindings& findings) {
  const char* mode = variables.get("UCX_MEM_MMAP_HOOK_MODE");
  if (mode != nullptr && strcasecmp(mode, "reloc") == 0) {
    findings.problem(shown("UCX_MEM_MMAP_HOOK_MODE", variables) +
                     ": UCX then leads the program's dlopen past the guard; unset it");
  }
  const std::vector<std::string> entries = preload_entries(variables.get("LD_PRELOAD"));
  if (variables.has("TOX_ENV_NAME") &&
      std::none_of(entries.begin(), entries.end(), [](const std::string& entry) {
        return base_name(entry) == "libcudaguard.so";
      })) {
    findings.note(
        "tox has started this: it hands LD_PRELOAD and CUDAGUARD_* on only where pass_env has "
        "them");
  }
}

}  // namespace

Config config_of(const Variables& variables) {
  return parse_config(read_environment([&](const char* name) { return variables.get(name); }));
}

void judge_environment(const MachineFacts& facts, MachineFindings& findings) {
  const Config config = config_of(facts.variables);
  const auto choice = std::make_unique<Choice>();
  judge_own_variables(facts, config, findings);
  judge_choice(facts, config, findings);
  judge_list(facts, config, *choice, findings);
  judge_visible(facts, *choice, findings);
  judge_order(facts.variables, findings);
  judge_preload(facts, findings);
  judge_others(facts.variables, findings);
}

}  // namespace cudaguard::launcher
