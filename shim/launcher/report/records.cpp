// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/records.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/message.h"
#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostCommand = 1024;
constexpr int64_t kMostDevice = 4095;
constexpr int64_t kNotInitialised = 3;
constexpr int64_t kNoDevice = 100;

std::string text_of(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// -1: none, or not one.
int64_t number_of(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number_unsigned()) return -1;
  const auto value = found->get<uint64_t>();
  return value <= INT32_MAX ? static_cast<int64_t>(value) : -1;
}

/// "/opt/lib/libx.so+0x12" becomes "libx.so". What Python's two ways to call C by are called there.
std::string caller_of(const Json& record) {
  const std::string caller = text_of(record, "caller");
  const std::string_view file = base_name(head(caller, caller.rfind('+')));
  const std::string executable = text_of(record, "exe");
  if (base_name(executable).starts_with("py")) {
    for (const std::string_view name : {"libffi.so", "_ctypes.", "_cffi_backend."}) {
      if (file.starts_with(name)) return "ctypes/cffi";
    }
  }
  return std::string(file);
}

std::string command_of(const Json& record, const std::string& executable) {
  std::string command;
  const auto words = record.find("argv");
  if (words != record.end() && words->is_array()) {
    for (const Json& word : *words) {
      if (!word.is_string() || command.size() > kMostCommand) break;
      const auto& text = word.get_ref<const std::string&>();
      if (command.empty()) {
        command = base_name(text);
      } else {
        command.append(" ").append(text);
      }
    }
  }
  if (command.empty()) command = base_name(executable);
  return command.empty() ? "?" : command;  // without /proc
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

void note_denied(const Json& record, ObservedProcess& process) {
  std::string what = text_of(record, "api");
  const std::string object = text_of(record, "object");
  if (!object.empty()) what.append(" ").append(base_name(object));
  what.append(" by ").append(caller_of(record));
  add_once(process.refused, what);
}

/// An initialisation that has failed with this CUresult or nvmlReturn_t.
void note_failed(const Json& record, bool is_cuda, int64_t result, ObservedProcess& process) {
  const bool none = is_cuda && result == kNoDevice;
  const bool forked = is_cuda && result == kNotInitialised;
  std::string what;
  if (forked) {
    what = "forked after init";  // no matter by whom
  } else if (none) {
    what = text_of(record, "api") == "dlopen" ? "found no driver" : "found none";
  } else {
    what = (is_cuda ? "error " : "NVML error ") + std::to_string(result);
  }
  if (!forked) what.append(" by ").append(caller_of(record));
  (none ? process.found_none : process.failed) = true;
  add_once(process.tried, what);
}

void note_allowed(const Json& record, ObservedProcess& process) {
  const std::string event = text_of(record, "event");
  const int64_t result = number_of(record, "result");
  if (result > 0) {
    if (event == "init" || event == "nvml") note_failed(record, event == "init", result, process);
  } else if (event == "init") {
    process.initialised = true;
    process.by = caller_of(record);
    process.told = text_of(record, "object");
  } else if (event == "context") {
    const int64_t device = number_of(record, "device");
    if (device >= 0 && device <= kMostDevice) process.contexts.insert(static_cast<int>(device));
  } else if (event == "work") {
    process.worked = true;
  } else if (event == "nvml") {
    process.nvml = true;
  }
}

}  // namespace

bool Records::add(std::string_view line, uint32_t& pid) {
  const Json record =
      line.size() > kMaxRecord ? Json(Json::value_t::discarded) : Json::parse(line, nullptr, false);
  const std::string decision = record.is_object() ? text_of(record, "decision") : std::string();
  const int64_t number = record.is_object() ? number_of(record, "pid") : -1;
  const bool known = decision == "allow" || decision == "deny";
  if (number <= 0 || !known || number_of(record, "v") != 1) {
    ++not_understood_;
    return false;
  }
  pid = static_cast<uint32_t>(number);
  const std::string executable = text_of(record, "exe");
  const auto [place, is_new] = places_.try_emplace({pid, executable}, processes_.size());
  if (is_new) {
    processes_.emplace_back();
    processes_.back().pid = pid;
    processes_.back().command = command_of(record, executable);
  }
  ObservedProcess& process = processes_[place->second];
  if (decision == "deny") {
    note_denied(record, process);
  } else {
    note_allowed(record, process);
  }
  return true;
}

}  // namespace cudaguard::launcher
