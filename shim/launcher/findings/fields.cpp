// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/fields.h"

#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <charconv>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostCommand = 1024;
constexpr size_t kMostFrames = 256;
constexpr int kMostNested = 16;

/// `of_process`: it stands in front of "api", and is the same in each record of a process.
struct TextField {
  std::string_view name;
  std::string Fields::*text;
  bool of_process;
};
constexpr TextField kTexts[] = {
    {"host", &Fields::host, true},      {"exe", &Fields::exe, true},
    {"cgroup", &Fields::cgroup, true},  {"slurm", &Fields::slurm, true},
    {"api", &Fields::api, false},       {"object", &Fields::object, false},
    {"event", &Fields::event, false},   {"decision", &Fields::decision, false},
    {"caller", &Fields::caller, false}, {"library", &Fields::library, false},
    {"code", &Fields::code, false},     {"policy", &Fields::policy, false},
};
struct NumberField {
  std::string_view name;
  int64_t Fields::*number;
  bool of_process;
};
constexpr NumberField kNumbers[] = {
    {"v", &Fields::v, true},
    {"pid", &Fields::pid, true},
    {"ppid", &Fields::ppid, true},
    {"uid", &Fields::uid, true},
    {"device", &Fields::device, false},
    {"result", &Fields::result, false},
};

/// "/opt/lib/libx.so+0x12"; what is not so has the offset 0.
NativeFrame native_frame(std::string_view text) {
  const size_t plus = text.rfind("+0x");
  NativeFrame frame{std::string(head(text, plus)), 0};
  if (plus != std::string_view::npos) {
    const std::string_view digits = tail(text, plus + 3);
    std::from_chars(digits.data(), digits.data() + digits.size(), frame.offset, 16);
  }
  return frame;
}

/// Takes RapidJSON's events. False ends the reading.
class Handler : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Handler> {
 public:
  explicit Handler(Fields& fields) : fields_(fields) {}

  bool Key(const char* text, rapidjson::SizeType size, bool /*copy*/) {
    if (depth_ == 1) {
      key_.assign(text, size);
    } else if (depth_ == 3) {
      inner_.assign(text, size);
    }
    return true;
  }
  bool String(const char* text, rapidjson::SizeType size, bool /*copy*/) {
    const std::string_view value(text, size);
    if (depth_ == 1) {
      take_text(value);
    } else if (depth_ == 2 && in_array_) {
      take_item(value);
    } else if (in_frame()) {
      if (inner_ == "file") fields_.stack.python.back().file = value;
      if (inner_ == "function") fields_.stack.python.back().function = value;
    }
    return true;
  }
  bool Uint64(uint64_t value) {
    if (depth_ == 1) {
      take_number(value);
    } else if (in_frame() && inner_ == "line" && value <= UINT32_MAX) {
      fields_.stack.python.back().line = static_cast<uint32_t>(value);
    }
    return Default();
  }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Double(double value) {
    if (depth_ == 1 && key_ == "ts" && value > 0 && value < kLastSecond) fields_.ts = value;
    return Default();
  }
  bool StartObject() {
    Default();
    if (depth_ == 2 && in_array_ && key_ == "python" && fields_.stack.python.size() < kMostFrames) {
      fields_.stack.python.emplace_back();
      frame_ = true;
    }
    return ++depth_ <= kMostNested;
  }
  bool EndObject(rapidjson::SizeType /*members*/) {
    if (--depth_ == 2) frame_ = false;
    return true;
  }
  bool StartArray() {
    Default();
    if (depth_ == 1) {
      in_array_ = true;
      words_ = true;
    }
    return depth_ != 0 && ++depth_ <= kMostNested;
  }
  bool EndArray(rapidjson::SizeType /*items*/) {
    if (--depth_ == 1) in_array_ = false;
    return true;
  }
  /// All other values. Where a word of argv is no text, the words end.
  bool Default() {
    if (depth_ == 2) words_ = false;
    return depth_ != 0 || key_.empty();
  }

 private:
  static constexpr double kLastSecond = 253402300800;  // the year 10000

  bool in_frame() const { return frame_ && depth_ == 3; }
  void take_text(std::string_view value) {
    for (const TextField& field : kTexts) {
      if (field.name == key_) fields_.*field.text = value;
    }
    if (key_ == "python_missing") fields_.stack.python_missing = value;
    if (key_ == "native_missing") fields_.stack.native_missing = value;
  }
  void take_number(uint64_t value) {
    if (key_ == "ts") Double(static_cast<double>(value));
    if (value > UINT32_MAX) return;
    for (const NumberField& field : kNumbers) {
      if (field.name == key_) fields_.*field.number = static_cast<int64_t>(value);
    }
  }
  void take_item(std::string_view value) {
    if (key_ == "argv" && words_ && fields_.command.size() <= kMostCommand) {
      if (fields_.command.empty()) {
        fields_.command = base_name(value);
      } else {
        fields_.command.append(" ").append(value);
      }
    } else if (key_ == "native" && fields_.stack.native.size() < kMostFrames) {
      fields_.stack.native.push_back(native_frame(value));
    }
  }

  Fields& fields_;
  std::string key_;
  std::string inner_;
  int depth_ = 0;
  bool in_array_ = false;  ///< a value of the record that is an array, at any depth
  bool frame_ = false;     ///< in one of Python's frames
  bool words_ = true;
};

/// What stands behind `mark` up to the next '/' or '.', or nothing.
std::string_view part_behind(std::string_view path, std::string_view mark) {
  const size_t at = path.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = tail(path, at + mark.size());
  return head(rest, rest.find_first_of("/."));
}

}  // namespace

Whole read_fields(std::string_view text, Fields& fields) {
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  Handler handler(fields);
  constexpr unsigned kHow =
      rapidjson::kParseValidateEncodingFlag | rapidjson::kParseFullPrecisionFlag;
  const bool good = !reader.Parse<kHow>(stream, handler).IsError();
  // A zero byte in the text ends it for the reader.
  const bool all = stream.Tell() >= text.size();
  // The guard records the caller alone; records of 0.1 and 0.2 hold native stacks. "?": no /proc.
  if (fields.stack.native.empty() && !fields.caller.empty() && fields.caller != "?") {
    fields.stack.native.push_back(native_frame(fields.caller));
  }
  // Records of 0.1 do not name the library.
  if (fields.library.empty() && fields.api != kRequestApi) {
    fields.library = base_name(native_frame(fields.caller).module);
  }
  if (good && all) return Whole::kYes;
  return all ? Whole::kCut : Whole::kNo;
}

bool is_only(const Fields& fields, bool of_process) {
  for (const TextField& field : kTexts) {
    if (field.of_process != of_process && !(fields.*field.text).empty()) return false;
  }
  for (const NumberField& field : kNumbers) {
    if (field.of_process != of_process && fields.*field.number >= 0) return false;
  }
  return of_process ? fields.stack == Stack() : fields.ts == 0 && fields.command.empty();
}

void clear(Fields& fields) {
  for (const TextField& field : kTexts) (fields.*field.text).clear();
  for (const NumberField& field : kNumbers) fields.*field.number = -1;
  fields.ts = 0;
  fields.command.clear();
  fields.stack = {};
}

std::string job_of(const std::string& slurm, std::string_view cgroup) {
  if (!slurm.empty()) return "slurm:" + slurm;
  if (const std::string_view job = part_behind(cgroup, "/job_"); !job.empty()) {
    return "slurm:" + std::string(job);
  }
  if (cgroup.find("kubepods") != std::string_view::npos) {
    std::string_view pod = part_behind(cgroup, "/pod");
    if (pod.empty()) pod = part_behind(cgroup, "-pod");  // of systemd's driver, with '_' for '-'
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
    cgroup = folder_of(cgroup);
  }
  return {};
}

}  // namespace cudaguard::launcher
