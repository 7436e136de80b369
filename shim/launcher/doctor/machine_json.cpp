// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/show_machine.h"

namespace cudaguard::launcher {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json library_json(const DriverLibrary& library) {
  return {{"name", library.name},
          {"kind", name_of(library.kind)},
          {"path", or_null(library.path)},
          {"file", or_null(library.file)},
          {"version", or_null(library.version)}};
}

Json libraries_json(const std::vector<DriverLibrary>& libraries) {
  Json list = Json::array();
  for (const DriverLibrary& library : libraries) list.push_back(library_json(library));
  return list;
}

Json nodes_json(const std::vector<DeviceNode>& nodes) {
  Json list = Json::array();
  for (const DeviceNode& node : nodes) {
    list.push_back(
        {{"path", node.path}, {"device", or_null(node.device)}, {"usable", node.usable}});
  }
  return list;
}

Json gpus_json(const std::optional<std::vector<Gpu>>& gpus) {
  if (!gpus) return {};
  Json list = Json::array();
  for (const Gpu& gpu : *gpus) {
    list.push_back({{"uuid", or_null(gpu.uuid)}, {"name", or_null(gpu.name)}});
  }
  return list;
}

const char* name_of(DriverAnswer::Outcome outcome) {
  using Outcome = DriverAnswer::Outcome;
  switch (outcome) {
    case Outcome::kNotTried:
      return "not tried";
    case Outcome::kAnswer:
      return "answer";
    case Outcome::kSignal:
      return "signal";
    case Outcome::kHang:
      return "hang";
    case Outcome::kFailed:
      break;
  }
  return "failed";
}

Json answer_json(const DriverAnswer& answer) {
  return {{"outcome", name_of(answer.outcome)},
          {"reason", or_null(answer.reason)},
          {"where", or_null(answer.where)},
          {"stuck", answer.stuck == 0 ? Json() : Json(answer.stuck)},
          {"code", or_null(answer.code)},
          {"name", or_null(answer.name)},
          {"text", or_null(answer.text)},
          {"milliseconds", or_null(answer.milliseconds)},
          {"signal", or_null(answer.signal)},
          {"driver_version", or_null(answer.version)},
          {"gpus", gpus_json(answer.gpus)}};
}

}  // namespace

Json machine_json(const MachineFacts& facts, const Findings& findings) {
  const Libraries& libraries = facts.libraries;
  const KernelFacts& kernel = facts.kernel;
  Json json;
  json["guard"] = {{"path", facts.installation.guard},
                   {"version", or_null(facts.guard.version)},
                   {"build", or_null(facts.guard.build)},
                   {"missing", facts.missing_files},
                   {"bare_name", or_null(libraries.guard_by_bare_name)}};
  json["shell"] = {{"guarded", !facts.guarded_by.empty()},
                   {"by", or_null(facts.guarded_by)},
                   {"policy", cudaguard::name_of(config_of(facts.variables).policy)}};
  json["libraries"] = libraries_json(libraries.found);
  json["copies"] = libraries_json(libraries.copies);
  json["opencl_icd"] = Json();
  if (!libraries.opencl_icd.empty()) {
    json["opencl_icd"] = {{"path", kNvidiaIcd}, {"library", libraries.opencl_icd}};
  }
  json["nodes"] = nodes_json(kernel.nodes);
  json["kernel_module"] = {{"loaded", or_null(kernel.loaded)},
                           {"version", or_null(kernel.version)},
                           {"uvm", kernel.uvm},
                           {"nouveau", kernel.nouveau}};
  json["wsl"] = kernel.wsl;
  json["cuinit"] = answer_json(facts.answer);
  json["gpus"] = gpus_json(facts.gpus);
  json["environment"] = Json::object();
  for (const auto& [name, value] : facts.environment) json["environment"][name] = value;
  json["problems"] = findings.problems;
  json["notes"] = findings.notes;
  return json;
}

}  // namespace cudaguard::launcher
