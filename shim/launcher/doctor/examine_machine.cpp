// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/examine_machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

std::chrono::seconds time_limit(const Variables& variables) {
  const char* value = variables.get(kDoctorTimeout.name);
  if (value == nullptr || *value == '\0') return std::chrono::seconds{10};
  int seconds = 0;
  const char* end = value + strlen(value);
  const auto [rest, error] = std::from_chars(value, end, seconds);
  if (error != std::errc() || rest != end || seconds < 1 || seconds > 3600) {
    throw Refusal(kRefused, std::string(kDoctorTimeout.name) + "=" + in_quotes(value) +
                                " is not accepted (accepted: " + kDoctorTimeout.accepted + ")");
  }
  return std::chrono::seconds{seconds};
}

/// Empty: the driver may be asked.
std::string why_not_ask(const Libraries& libraries, const KernelFacts& kernel) {
  using Kind = DriverLibrary::Kind;
  if (libraries.found[0].kind == Kind::kNotKnown) return libraries.trouble;
  if (libraries.found[0].kind == Kind::kNone) return "there is no libcuda.so.1";
  if (const DeviceNode* node = kernel.left_behind(); node != nullptr) {
    return "to open " + printable(node->path) + " may load the kernel module";
  }
  return {};
}

/// The GPUs that it shows; nothing: it has not said.
Gpus gpus_of(const DriverAnswer& answer) {
  return answer.code == kNoDevice ? Gpus(std::in_place) : answer.gpus;
}

void ask(std::chrono::seconds limit, MachineFacts& facts) {
  const std::string probe = probe_of(facts.installation);
  facts.answer.reason = why_not_ask(facts.libraries, facts.kernel);
  if (!facts.answer.reason.empty()) return;
  facts.answer = ask_driver(probe, facts.variables, limit);
  facts.gpus = facts.answer.gpus;
  const int code = facts.answer.code.value_or(-1);
  if (facts.answer.outcome != DriverAnswer::Outcome::kAnswer || (code != 0 && code != kNoDevice))
    return;
  facts.gpus = gpus_of(facts.answer);
  if (!facts.variables.has("CUDA_VISIBLE_DEVICES") &&
      !facts.variables.has("CUDAGUARD_VISIBLE_DEVICES")) {
    return;
  }
  // Once more as if nobody had chosen; the allow-list's indices are in this order.
  Variables plain = facts.variables;
  plain.unset("CUDA_VISIBLE_DEVICES");
  plain.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  facts.with_every_gpu = ask_driver(probe, plain, limit);
  facts.gpus = gpus_of(*facts.with_every_gpu);
}

/// The guard that doctor's own environment has, if ld.so finds it.
std::string guarded_by(const MachineFacts& facts) {
  for (const std::string& entry : preload_entries(facts.variables.get("LD_PRELOAD"))) {
    if (base_name(entry) != "libcudaguard.so") continue;
    const bool bare = entry.find('/') == std::string::npos;
    const std::string& path = bare ? facts.libraries.guard_by_bare_name : entry;
    if (!path.empty() && access(path.c_str(), R_OK) == 0) return "LD_PRELOAD";
  }
  return facts.libraries.system_guard.empty() ? "" : "/etc/ld.so.preload";
}

Row guard_row(const MachineFacts& facts) {
  const OwnFile& guard = facts.own_files.front();
  const std::string& bare = facts.libraries.guard_by_bare_name;
  std::string by_name = "LD_PRELOAD=libcudaguard.so finds " + printable(bare);
  if (bare.empty()) by_name = "not on ld.so's path: LD_PRELOAD needs the whole path";
  if (!facts.libraries.trouble.empty()) {
    by_name = "not known whether ld.so finds it by its name alone";
  }
  Json missing = Json::array();
  for (const OwnFile& file : facts.own_files) {
    if (file.missing) missing.push_back(file.path);
  }
  return {"guard",
          {{"path", guard.path},
           {"version", or_null(guard.version)},
           {"missing", missing},
           {"bare_name", or_null(bare)}},
          named("guard",
                {printable(guard.path),
                 "version " + (guard.version.empty() ? "not known" : guard.version), by_name})};
}

Row shell_row(const MachineFacts& facts) {
  const std::string by = guarded_by(facts);
  const std::string policy(name_of(config_of(facts.variables).policy));
  return {"shell",
          {{"guarded", !by.empty()}, {"by", or_null(by)}, {"policy", policy}},
          named("this shell", {(by.empty() ? "not guarded" : "is guarded already, by " + by) +
                               "; its programs' policy: " + policy})};
}

Row fence_row(const Fence& fence) {
  std::vector<std::string> texts = {"can be had (cudaguard run --fence)"};
  if (fence.was_there) {
    texts = {"stands around this process already: no CUDA in it, nor in what it starts"};
  } else if (!fence.holds) {
    texts = {"cannot be had: " + fence.why_not};
  } else if (fence.witness < 0) {
    texts.push_back(fence.unseen);
  }
  if (fence.holds && fence.no_new_privs) {
    texts.emplace_back("sets no_new_privs: sudo and setuid programs inside keep your rights");
  }
  return {"fence",
          {{"available", fence.holds},
           {"stands", fence.was_there},
           {"witness", fence.witness >= 0},
           {"no_new_privs", fence.holds && fence.no_new_privs},
           {"reason", or_null(fence.why_not)}},
          named("fence", texts)};
}

/// All that changes what ld.so, the driver or the guard does.
Row environment_row(Variables variables) {
  std::set<std::string> entries;
  for (const char* pointer : variables.pointers()) {
    const std::string_view entry = pointer == nullptr ? "" : pointer;
    for (const char* start : {"CUDA_", "CUDAGUARD_", "LD_", "NVIDIA_"}) {
      if (entry.starts_with(start)) entries.emplace(entry);
    }
  }
  Json values = Json::object();
  std::vector<std::string> texts;
  for (const std::string& entry : entries) {
    const size_t equals = std::min(entry.find('='), entry.size());
    values[entry.substr(0, equals)] = entry.substr(std::min(equals + 1, entry.size()));
    texts.push_back(printable(entry));
  }
  if (texts.empty()) texts.emplace_back("nothing of CUDA_*, CUDAGUARD_*, NVIDIA_*, LD_*");
  return {"environment", values, named("environment", texts)};
}

/// A heading and one item for each.
Row sentences(const char* id, std::string heading, const std::vector<std::string>& sentences) {
  Lines lines = {{std::move(heading), ""}};
  for (const std::string& sentence : sentences) lines.push_back({"  - ", sentence});
  return {id, sentences, lines};
}

}  // namespace

Row examine_machine(const Installation& installation, const Variables& variables,
                    const Fence& fence, int& code) {
  MachineFacts facts = {installation, variables, fence, look_at_own_files(installation), {}, {},
                        {},           {},        {}};
  const std::chrono::seconds limit = time_limit(variables);
  facts.libraries = find_libraries(probe_of(installation), variables, limit);
  facts.kernel = examine_kernel();
  ask(limit, facts);
  MachineFindings findings;
  judge_machine(facts, findings);
  judge_environment(facts, findings);
  if (code == 0 && !findings.problems.empty()) code = 1;
  Rows rows = {guard_row(facts), shell_row(facts), fence_row(fence), row_of(facts.libraries)};
  rows += rows_of(facts.kernel);
  rows += rows_of(facts.answer, facts.gpus);
  rows.push_back(environment_row(variables));
  rows.push_back(sentences("notes", "notes:", findings.notes));
  if (findings.notes.empty()) rows.back().lines.clear();
  rows.push_back(sentences(
      "problems", findings.problems.empty() ? "problems: none" : "problems:", findings.problems));
  return group("machine", rows);
}

}  // namespace cudaguard::launcher
