// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/lines.h"
#include "shim/launcher/doctor/show_machine.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Outcome = DriverAnswer::Outcome;

void add_guard(const MachineFacts& facts, std::string& text) {
  const std::string& bare = facts.libraries.guard_by_bare_name;
  add_line(text, "cudaguard", CUDAGUARD_VERSION);
  add_line(text, "guard", printable(facts.installation.guard));
  add_line(text, "",
           "version " + (facts.guard.version.empty() ? "not known" : facts.guard.version) +
               (facts.guard.build.empty() ? "" : ", build " + facts.guard.build));
  if (!facts.libraries.trouble.empty()) {
    add_line(text, "", "not known whether ld.so finds it by its name alone");
  } else if (bare.empty()) {
    add_line(text, "", "not on ld.so's path: LD_PRELOAD needs the whole path");
  } else {
    add_line(text, "", "LD_PRELOAD=libcudaguard.so finds " + printable(bare));
  }
  std::string shell = "not guarded";
  if (!facts.guarded_by.empty()) shell = "is guarded already, by " + facts.guarded_by;
  const Policy policy = config_of(facts.variables).policy;
  add_line(text, "this shell",
           shell + "; its programs' policy: " + std::string(cudaguard::name_of(policy)));
}

std::string about(const DriverLibrary& library) {
  std::string what(name_of(library.kind));
  if (library.path.empty()) return what;
  if (!library.version.empty()) what += " " + library.version;
  return what + ", " + printable(library.path);
}

void add_libraries(const Libraries& libraries, std::string& text) {
  for (const DriverLibrary& library : libraries.found) {
    const bool opencl = library.name == "libnvidia-opencl.so.1";
    add_line(text, opencl ? "NVIDIA's OpenCL" : library.name, about(library));
  }
  if (!libraries.opencl_icd.empty()) {
    add_line(text, "", std::string(kNvidiaIcd) + " names " + printable(libraries.opencl_icd));
  }
  for (const DriverLibrary& copy : libraries.copies) {
    bool shown = false;
    for (const DriverLibrary& library : libraries.found) shown |= library.path == copy.path;
    if (!shown) add_line(text, "also there", about(copy));
  }
}

void add_kernel(const KernelFacts& kernel, std::string& text) {
  std::string module = !kernel.loaded ? "not known" : *kernel.loaded ? "loaded" : "not loaded";
  if (!kernel.version.empty()) module += ", " + kernel.version;
  if (kernel.uvm) module += ", with nvidia_uvm";
  if (kernel.nouveau) module += "; nouveau is";
  add_line(text, "kernel module", module);
  std::string nodes;
  for (const DeviceNode& node : kernel.nodes) {
    nodes += (nodes.empty() ? "" : " ") + printable(node.path);
    if (node.device.empty()) {
      nodes += " (no device)";
    } else if (!node.usable) {
      nodes += " (not for this user)";
    }
  }
  add_line(text, "device nodes", nodes.empty() ? "none" : nodes);
  if (kernel.wsl) add_line(text, "WSL", "/dev/dxg; cudaguard is untested there");
}

std::string about(const DriverAnswer& answer) {
  const std::string time =
      answer.milliseconds ? " after " + std::to_string(*answer.milliseconds) + " ms" : "";
  std::string said;
  if (answer.code) {
    said = std::to_string(*answer.code);
    if (!answer.name.empty()) said += " " + answer.name + " (" + answer.text + ")";
    said += time;
  }
  switch (answer.outcome) {
    case Outcome::kAnswer:
      return said;
    case Outcome::kSignal:
      return (said.empty() ? "" : said + "; ") + "crash (" + answer.signal + ") " + answer.where;
    case Outcome::kHang:
      return said.empty() ? "no answer" + time + ", " + answer.where
                          : said + "; no answer " + answer.where;
    case Outcome::kFailed:
      return "failed: " + answer.reason;
    case Outcome::kNotTried:
      break;
  }
  return "not tried: " + answer.reason;
}

/// 12020 is CUDA 12.2.
std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void add_gpus(const char* name, const std::vector<Gpu>& gpus, std::string& text) {
  add_line(text, name, gpus.empty() ? "none" : std::to_string(gpus.size()));
  for (size_t i = 0; i < gpus.size(); ++i) {
    std::string line = std::to_string(i) + ": ";
    line += gpus[i].uuid.empty() ? "UUID not known" : printable(gpus[i].uuid);
    if (!gpus[i].name.empty()) line += "  " + printable(gpus[i].name);
    add_line(text, "", line);
  }
}

bool are_same(const std::vector<Gpu>& a, const std::vector<Gpu>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].uuid != b[i].uuid) return false;
  }
  return true;
}

void add_answer(const MachineFacts& facts, std::string& text) {
  const DriverAnswer& answer = facts.answer;
  add_line(text, "cuInit", about(answer));
  if (answer.version) add_line(text, "", "for CUDA up to " + cuda_version(*answer.version));
  if (answer.gpus) add_gpus("GPUs seen", *answer.gpus, text);
  if (facts.gpus && !(answer.gpus && are_same(*facts.gpus, *answer.gpus))) {
    add_gpus("GPUs there", *facts.gpus, text);
  }
}

void add_environment(const MachineFacts& facts, std::string& text) {
  bool first = true;
  for (const auto& [name, value] : facts.environment) {
    add_line(text, first ? "environment" : "", printable(name) + "=" + printable(value));
    first = false;
  }
  if (first) add_line(text, "environment", "nothing of CUDA_*, CUDAGUARD_*, NVIDIA_*, LD_*");
}

}  // namespace

std::string machine_text(const MachineFacts& facts, const Findings& findings) {
  std::string text;
  add_guard(facts, text);
  add_libraries(facts.libraries, text);
  add_kernel(facts.kernel, text);
  add_answer(facts, text);
  add_environment(facts, text);
  if (!findings.notes.empty()) text += "notes:\n";
  for (const std::string& note : findings.notes) add_item(text, note);
  text += findings.problems.empty() ? "problems: none\n" : "problems:\n";
  for (const std::string& problem : findings.problems) add_item(text, problem);
  return text;
}

}  // namespace cudaguard::launcher
