// SPDX-License-Identifier: Apache-2.0
// Checks whether cudaguard is installed and active.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "policy/decision.h"
#include "policy/text.h"
#include "policy/variables.h"
#include "shim/guard/text/message.h"
#include "shim/launcher/doctor/doctor.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/health/health.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/check_report.h"
#include "shim/launcher/preload/given_rules.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/system/guard_file.h"

namespace cudaguard::launcher {

namespace {

void add(FindingList& findings, const char* id, State state, const std::string& text,
         const std::string& remedy = "") {
  findings.push_back({id, Question::kInstalled, state, text, remedy});
}

/// True if the library is complete and of this command's version, according to its note.
bool is_sound(const std::string& path) {
  const FileBytes file(path);
  return !read_exports(file).damaged && version_of(file) == CUDAGUARD_VERSION;
}

void add_guard(const Machine& machine, const Libraries& libraries, FindingList& findings) {
  const OwnFile& guard = machine.own_files.front();
  const std::string& bare = libraries.guard_by_bare_name;
  const auto row = [&](const std::string& text) { add(findings, "guard", State::kFact, text); };
  row(printable(guard.path));
  row(guard.trouble.empty() ? "version " CUDAGUARD_VERSION : "version not known");
  row(!libraries.trouble.empty() ? "not known whether ld.so finds it by its name alone"
      : bare.empty()             ? "not on ld.so's path: LD_PRELOAD needs the whole path"
                                 : "LD_PRELOAD=libcudaguard.so finds " + printable(bare));
  for (const OwnFile& file : machine.own_files) {
    if (file.trouble.empty()) continue;
    add(findings, "own_file", State::kProblem, printable(file.path) + " " + file.trouble,
        "install cudaguard again");
  }
}

void add_fence(const Fence& fence, FindingList& findings) {
  const auto row = [&](const std::string& text) { add(findings, "fence", State::kFact, text); };
  if (fence.was_there) {
    row("already set up: no CUDA in this process, nor in what it starts");
  } else if (!fence.holds) {
    row("not available: " + fence.why_not);
  } else {
    row("available (cudaguard run --fence)");
    if (fence.listener < 0) row(fence.unseen);
  }
  if (fence.holds && fence.no_new_privs) {
    row("sets no_new_privs: sudo and setuid programs get no more rights");
  }
  if (fence.holds && !fence.was_there) {
    row(fence.devices ? "also of devices (cudaguard run --fence=devices)"
                      : "not of devices: " + fence.why_no_devices);
  }
}

void add_rules(const MachineRules& rules, FindingList& findings) {
  for (const std::string& line : rules.summary()) add(findings, "rules", State::kFact, line);
  for (const std::string& mistake : rules.mistakes()) {
    add(findings, "rules", State::kProblem, mistake);
  }
}

/// Returns what preloads a guard into the programs of this environment; empty if nothing does.
std::string active_by(const Machine& machine, const Libraries& libraries, FindingList& findings) {
  const std::string own = printable(machine.installation.guard);
  std::string by = libraries.system_guard.empty() ? "" : "/etc/ld.so.preload";
  for (const std::string& entry : preload_entries(machine.variables.get("LD_PRELOAD"))) {
    const bool bare = entry == kGuardName;
    if (base_name(entry) != kGuardName || (bare && libraries.hangs)) continue;
    const std::string& path = bare ? libraries.guard_by_bare_name : entry;
    const std::string what = "LD_PRELOAD names " + in_quotes(entry) + ", ";
    const auto problem = [&](const std::string& text, const std::string& remedy) {
      add(findings, "preload", State::kProblem, what + text, remedy);
    };
    if (access(path.c_str(), R_OK) != 0) {
      problem(std::string("which ") + (bare ? "ld.so does not find" : "is not there") +
                  ": programs run unguarded",
              "this command's guard is " + own);
      continue;
    }
    by = "LD_PRELOAD";
    if (!path.starts_with("/")) {
      problem("a relative path: programs that start in another directory run unguarded",
              "write " + own);
    } else if (std::error_code error;
               !std::filesystem::equivalent(path, machine.installation.guard, error)) {
      problem("another copy than this command's, " + own, "keep one of them");
    }
  }
  return by;
}

}  // namespace

std::vector<OwnFile> look_at_own_files(const Installation& installation) {
  const std::string directory(directory_of(installation.null_driver_cuda));
  std::vector<OwnFile> files;
  const auto add_file = [&](const std::string& path, bool library, bool null_driver) {
    const bool missing = access(path.c_str(), R_OK) != 0;
    const bool sound = !library || is_sound(path);
    files.push_back({path, null_driver,
                     missing  ? "is missing or cannot be read"
                     : !sound ? "is damaged or of another version"
                              : ""});
  };
  add_file(installation.guard, true, false);
  add_file(installation.null_driver_cuda, true, true);
  add_file(installation.null_driver_nvml, true, true);
  add_file(installation.proxy_cuda, true, false);
  add_file(installation.proxy_nvml, true, false);
  for (const char* link : {"/libcuda.so", "/libnvidia-ml.so", "/libnvidia-opencl.so.1"}) {
    add_file(directory + link, false, true);
  }
  add_file(installation.probe, false, false);
  return files;
}

/// Its strings belong to `variables`.
static Decision decision_of(const Variables& variables) {
  return decide(read_environment([&](const char* name) { return variables.get(name); }));
}

void judge_variables(Variables variables, FindingList& findings) {
  const Decision decision = decision_of(variables);
  const Mistakes& found = decision.mistakes;
  const auto problem = [&](const std::string& text) {
    add(findings, "variable", State::kProblem, text);
  };
  if (found.list.why != ListError::Why::kNone) {
    const ListErrorFacts facts = {found.bad_list, found.list};
    problem(text_of([&](Text& line) { write_list_error(line, facts); }));
  }
  for (size_t i = 0; i < found.complaint_count; ++i) {
    problem(text_of([&](Text& line) { write_complaint(line, found.complaints[i]); }));
  }
  if (found.rule.why != RuleMistake::Why::kNone) {
    const RuleMistakeFacts facts = {found.rule_place, found.rule};
    problem(text_of([&](Text& line) { write_rule_mistake(line, facts); }));
  }
  const auto no_effect = [&](const char* name) {
    if (!variables.has(name)) return;
    problem(std::string(name) + "=" + in_quotes(variables.get(name)) +
            " has no effect under CUDAGUARD_POLICY=" + std::string(name_of(decision.calls)));
  };
  if (decision.calls == Policy::kOff) no_effect("CUDAGUARD_VISIBLE_DEVICES");
  if (!allows_cuda(decision.calls) && decision.because.empty() &&
      decision.children != Children::kUnset) {
    no_effect("CUDAGUARD_CHILDREN");
  }
  for (const std::string& line : unknown_variables(variables)) problem(line);
  try {
    check_report(decision.report, {.strict = true}, {});
  } catch (const Refusal& refusal) {
    problem(refusal.what());
  }
}

bool replace_if_healthy(Variables& variables) {
  if (!health_wish({}, variables)) return false;
  variables.set(row_of(Variable::kPolicy).name, name_of(Policy::kValidate));
  return true;
}

std::string ask_installed(const Machine& machine, const Libraries& libraries,
                          FindingList& findings) {
  FindingList own;
  const std::string by = active_by(machine, libraries, own);
  Variables variables = machine.variables;
  const bool if_healthy = by.empty() && replace_if_healthy(variables);
  const std::string policy = if_healthy ? std::string(kIfHealthy) + " (cudaguard run)"
                                        : std::string(name_of(decision_of(variables).calls));
  const bool ruled = machine.rules.exist() || has_rules(variables);
  add_guard(machine, libraries, own);
  add(own, "this shell", State::kFact,
      (by.empty() ? "not guarded" : "is guarded already, by " + by) +
          "; its programs' policy: " + (ruled ? "chosen by the rules" : policy));
  add_rules(machine.rules, own);
  add_fence(machine.fence, own);
  judge_variables(variables, own);
  findings.insert(findings.end(), own.begin(), own.end());
  return std::string("installed: ") + (exit_code(own) == 0 ? "yes" : "with problems") +
         "; active here: " + (by.empty() ? "no" : "yes, by " + by);
}

}  // namespace cudaguard::launcher
