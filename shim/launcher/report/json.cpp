// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/json.h"

namespace cudaguard::launcher {

namespace {

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json time_or_null(double at) { return at == 0 ? Json() : Json(at); }

}  // namespace

const char* word_of(Asked asked) {
  if (asked == Asked::kCuda) return "cuda";
  return asked == Asked::kNvml ? "nvml" : "opencl";
}

Json json_of(const Toucher& toucher) {
  Json python = Json::array();
  for (const PythonFrame& frame : toucher.stack.python) {
    python.push_back({{"file", frame.file}, {"line", frame.line}, {"function", frame.function}});
  }
  Json native = Json::array();
  for (const NativeFrame& frame : toucher.stack.native) {
    native.push_back({{"module", frame.module}, {"offset", frame.offset}});
  }
  return {{"asked", word_of(toucher.asked)},
          {"denied", toucher.denied},
          {"api", toucher.api},
          {"object", or_null(toucher.object)},
          {"library", toucher.library},
          {"line", or_null(toucher.line)},
          {"python", python},
          {"python_missing", or_null(toucher.stack.python_missing)},
          {"native", native},
          {"native_missing", or_null(toucher.stack.native_missing)},
          {"first", time_or_null(toucher.first)},
          {"last", time_or_null(toucher.last)},
          {"processes", toucher.processes}};
}

Json json_of(const ObservedProcess& process) {
  return {{"host", or_null(process.host)},
          {"pid", process.pid},
          {"ppid", process.ppid},
          {"uid", process.uid == kNoUid ? Json() : Json(process.uid)},
          {"exe", or_null(process.exe)},
          {"command", process.command},
          {"job", or_null(process.job)},
          {"policy", or_null(process.policy)},
          {"started", time_or_null(process.started)},
          {"first", time_or_null(process.first)},
          {"last", time_or_null(process.last)},
          {"asked", process.asked()},
          {"initialised_by", process.initialised ? Json(process.by) : Json()},
          {"visible_devices", or_null(process.told)},
          {"contexts", process.contexts},
          {"worked", process.worked},
          {"nvml", process.nvml},
          {"tried", process.tried.list()},
          {"refused", process.refused.list()}};
}

Json json_of(const Group& group) {
  Json asked = Json::array();
  for (const Asked one : group.asked) asked.push_back(word_of(one));
  return {{"name", or_null(group.name)},        {"processes", group.processes},
          {"touching", group.touching},         {"asked", asked},
          {"first", time_or_null(group.first)}, {"last", time_or_null(group.last)}};
}

std::string text_of_json(const Json& json, int indent) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace cudaguard::launcher
