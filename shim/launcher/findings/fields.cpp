// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/fields.h"

#include <rapidjson/document.h>
#include <rapidjson/memorystream.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "policy/driver_api.h"
#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostFrames = 256;
constexpr double kLastSecond = 253402300800;  // the year 10000

using rapidjson::Value;

std::string_view text_of(const Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

bool is_number(const Value& value) { return value.IsUint64() && value.GetUint64() <= UINT32_MAX; }

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

/// "/opt/lib/libx.so+0x12". Text of another form gets the offset 0.
NativeFrame native_frame(std::string_view text) {
  const size_t plus = text.rfind("+0x");
  NativeFrame frame{std::string(head(text, plus)), 0};
  if (plus != std::string_view::npos) {
    const std::string_view digits = tail(text, plus + 3);
    std::from_chars(digits.data(), digits.data() + digits.size(), frame.offset, 16);
  }
  return frame;
}

PythonFrame python_frame(const Value& object) {
  PythonFrame frame;
  for (const auto& [key, value] : object.GetObject()) {
    const std::string_view name = text_of(key);
    if (name == "file" && value.IsString()) frame.file = text_of(value);
    if (name == "function" && value.IsString()) frame.function = text_of(value);
    if (name == "line" && is_number(value)) frame.line = value.GetUint();
  }
  return frame;
}

// Each of these sets a field if the value is of its type.

void take(const Value& value, int64_t& field) {
  if (is_number(value)) field = value.GetUint();
}
void take(const Value& value, double& field) {
  const double number = value.IsNumber() ? value.GetDouble() : 0;
  if (number > 0 && number < kLastSecond) field = number;
}
void take(const Value& value, bool& field) { field = value.IsTrue(); }
void take(const Value& value, std::string& field) {
  if (value.IsString()) field = text_of(value);
}
/// Stops at the first word that is not text.
void take(const Value& value, read::Words& field) {
  if (!value.IsArray()) return;
  field = {};
  for (const Value& word : value.GetArray()) {
    if (word.IsString()) field.add(text_of(word));
    field.is_cut |= !word.IsString();
  }
}
void take(const Value& value, std::vector<PythonFrame>& field) {
  if (!value.IsArray()) return;
  field.clear();
  for (const Value& one : value.GetArray()) {
    if (one.IsObject() && field.size() < kMostFrames) field.push_back(python_frame(one));
  }
}
void take(const Value& value, std::vector<NativeFrame>& field) {
  if (!value.IsArray()) return;
  field.clear();
  for (const Value& one : value.GetArray()) {
    if (one.IsString() && field.size() < kMostFrames) field.push_back(native_frame(text_of(one)));
  }
}
void take(const Value& value, read::Names& field) {
  field.argv = value.IsArray() && std::ranges::any_of(value.GetArray(), [](const Value& name) {
                 return name.IsString() && text_of(name) == "argv";
               });
}

/// If a name occurs twice, the last value counts.
void take_members(const Value& record, WriterFields& writer, CallFields& call) {
  for (const auto& [key, value] : record.GetObject()) {
    const std::string_view name = text_of(key);
#define RECORD_PROCESS(type, field, ...) \
  if (name == #field) take(value, writer.field);
#define RECORD_CALL(type, field, ...) \
  if (name == #field) take(value, call.field);
#define RECORD_LAUNCHER RECORD_CALL
#include "shim/guard/text/record_fields.inc"
  }
}

/// The text after `mark` up to the next '/' or '.'; empty if `mark` does not occur.
std::string_view part_after(std::string_view path, std::string_view mark) {
  const size_t at = path.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = tail(path, at + mark.size());
  return head(rest, rest.find_first_of("/."));
}

}  // namespace

Whole read_fields(std::string_view text, WriterFields& writer, CallFields& call) {
  char memory[16384];
  rapidjson::MemoryPoolAllocator<> allocator(memory, sizeof memory);
  rapidjson::Document record(&allocator);
  rapidjson::MemoryStream stream(text.data(), text.size());
  // Iterative, because a recursive parser would use up the stack on thousands of nested lists.
  constexpr unsigned kHow = rapidjson::kParseIterativeFlag | rapidjson::kParseFullPrecisionFlag;
  constexpr unsigned kHowUtf8 = kHow | rapidjson::kParseValidateEncodingFlag;
  if (is_ascii(text)) {  // saves a tenth of the time
    record.ParseStream<kHow, rapidjson::UTF8<>>(stream);
  } else {
    record.ParseStream<kHowUtf8, rapidjson::UTF8<>>(stream);
  }
  // The parser stops at a zero byte in the text.
  if (stream.Tell() < text.size()) return Whole::kNo;
  if (record.HasParseError()) return Whole::kCut;
  if (record.IsObject()) take_members(record, writer, call);
  // The guard records only the caller. "?": no /proc.
  if (call.native.empty() && !call.caller.empty() && call.caller != "?") {
    call.native.push_back(native_frame(call.caller));
  }
  // No guard leaves the library out. The ioctl of a process that bypassed the guard has none.
  const bool has_library = !call.api.empty() && call.api != kRequestApi;
  if (has_library && call.library.empty()) call.library = "?";
  return Whole::kYes;
}

std::string job_of(const std::string& slurm, std::string_view cgroup) {
  if (!slurm.empty()) return "slurm:" + slurm;
  if (const std::string_view job = part_after(cgroup, "/job_"); !job.empty()) {
    return "slurm:" + std::string(job);
  }
  if (cgroup.find("kubepods") != std::string_view::npos) {
    std::string_view pod = part_after(cgroup, "/pod");
    if (pod.empty()) pod = part_after(cgroup, "-pod");  // systemd's, with '_' for '-'
    if (!pod.empty()) {
      std::string uid(pod);
      std::replace(uid.begin(), uid.end(), '_', '-');
      return "kubernetes:" + uid;
    }
  }
  while (!cgroup.empty()) {
    const std::string_view name = base_name(cgroup);
    if (name.ends_with(".service") || name.ends_with(".scope")) {
      return "systemd:" + std::string(name);
    }
    cgroup = directory_of(cgroup);
  }
  return {};
}

}  // namespace cudaguard::launcher
