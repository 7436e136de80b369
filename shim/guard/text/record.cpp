// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/text/record.h"

#include "policy/driver_api.h"
#include "policy/process_rules.h"
#include "policy/user_code.h"

namespace cudaguard {

void put_report_name(Text& out, std::string_view path, const ReportName& name) {
  while (!path.empty()) {
    const size_t mark = path.find('%');
    out.put(head(path, mark));
    path = tail(path, mark);
    if (path.starts_with("%p")) {
      out.put_decimal(name.pid);
    } else if (path.starts_with("%u")) {
      out.put_decimal(name.uid);
    } else if (path.starts_with("%h")) {
      for (const char c : name.host) out.put(c == '/' ? "_" : std::string_view(&c, 1));
    } else {
      out.put(head(path, 1));
      path = tail(path, 1);
      continue;
    }
    path = tail(path, 2);
  }
}

namespace {

struct Date {
  uint64_t year = 1970;
  unsigned month = 0;  ///< 0..11
  uint64_t day = 0;    ///< 0..30
};

/// The day in UTC. (libc's functions take a lock.)
Date date_of(uint64_t seconds) {
  constexpr uint8_t kLengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  constexpr uint64_t kPerDay = 86400;
  constexpr uint64_t kLast = 253402300799;  // the end of the year 9999
  Date date;
  const auto is_leap = [&] {
    return date.year % 4 == 0 && (date.year % 100 != 0 || date.year % 400 == 0);
  };
  date.day = (seconds < kLast ? seconds : kLast) / kPerDay;
  for (;; ++date.year) {
    const uint64_t length = is_leap() ? 366 : 365;
    if (date.day < length) break;
    date.day -= length;
  }
  for (; date.month < 11; ++date.month) {
    const uint64_t length = kLengths[date.month] + (date.month == 1 && is_leap() ? 1U : 0U);
    if (date.day < length) break;
    date.day -= length;
  }
  return date;
}

Text& put_two(Text& out, uint64_t value, const char* fill = "0") {
  if (value < 10) out.put(fill);
  return out.put_decimal(value);
}

}  // namespace

void put_spool_name(Text& out, uint32_t uid, uint64_t seconds) {
  const Date date = date_of(seconds);
  out.put_decimal(uid).put("-").put_decimal(date.year).put("-");
  put_two(out, date.month + 1).put("-");
  put_two(out, date.day + 1).put(".jsonl");
}

void put_syslog_start(Text& out, uint32_t pid, uint64_t seconds) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const Date date = date_of(seconds);
  out.put("<14>").put(head(tail(kMonths, size_t{3} * date.month), 3)).put(" ");  // user.info
  put_two(out, date.day + 1, " ").put(" ");
  put_two(out, seconds / 3600 % 24).put(":");
  put_two(out, seconds / 60 % 60).put(":");
  put_two(out, seconds % 60).put(" cudaguard[").put_decimal(pid).put("]: ");
}

std::string_view cgroup_of(std::string_view lines) {
  std::string_view longest;
  while (!lines.empty()) {
    const std::string_view path = take_cgroup(lines);
    if (path.size() > longest.size()) longest = path;
  }
  return longest;
}

namespace {

const char* name_of(EventKind event) {
  switch (event) {
    case EventKind::kInit:
      return "init";
    case EventKind::kContext:
      return "context";
    case EventKind::kSelect:
      return "select";
    case EventKind::kNvml:
      return "nvml";
    case EventKind::kWork:
      return "work";
    case EventKind::kExposed:
      return "exposed";
    default:
      return "start";
  }
}

/// What a record says about the call, or about the start of the process.
struct CallFacts {
#define RECORD_CALL(type, name, ...) field::type name = {};
#include "shim/guard/text/record_fields.inc"
};

/// Decides it, for all readers of the record. The attempt must outlive the result.
CallFacts call_facts(const Attempt& attempt) {
  CallFacts call;
  if (attempt.event == EventKind::kStart) {
    call.event.value = name_of(attempt.event);
    call.policy.value = name_of(attempt.policy);
    return call;
  }
  call.api.value = attempt.api;
  call.object.value = attempt.object;
  call.asked.value = word_of(attempt.asked);
  const bool refused = attempt.event == EventKind::kRefused;
  const bool allowed = !is_denied(attempt.event) && !refused;
  if (allowed) call.event.value = name_of(attempt.event);
  call.decision.value = allowed ? "allow" : refused ? "refuse" : "deny";
  call.rule.value = attempt.rule;
  call.last_place.value = attempt.last_place;
  call.device.value = attempt.device;
  call.result.value = attempt.result;
  call.caller.value = &attempt.caller;
  if (attempt.stack != nullptr) {
    if (const char* missing = attempt.stack->python_missing; missing != nullptr) {
      call.python_missing.value = missing;
    } else {
      call.python.value = attempt.stack;
    }
  }
  if (attempt.api == kRequestApi) return call;  // the seccomp filter does not know the caller
  call.library.value = library_of(attempt);
  call.passes_on.value = passes_calls_on(call.library.value);
  call.started_by.value = attempt.started_by;
  call.code.value = named_code(attempt);
  if (const PythonFrame* frame = named_frame(attempt); frame != nullptr) {
    // The name of a notebook's cell is not the name of its file.
    const bool is_cell = *code_line(frame->file, frame->line).before != '\0';
    if (!is_cell) call.line_frame.value = attempt.stack->shown;
  }
  return call;
}

// NOLINTBEGIN(bugprone-macro-parentheses): each row is a term of the sum
constexpr size_t kFieldCount = 0
#define RECORD_PROCESS(...) +1
#define RECORD_CALL(...) +1
#include "shim/guard/text/record_fields.inc"
    ;
/// All shares of long texts.
constexpr size_t kParts = 0
#define RECORD_PROCESS(type, name, parts, ...) +parts
#define RECORD_CALL(type, name, parts, ...) +parts
#include "shim/guard/text/record_fields.inc"
    ;
/// The most bytes of the names of all fields in "cut", and of the end of the record.
constexpr size_t kEnd = sizeof "[]}"
#define RECORD_PROCESS(type, name, ...) +sizeof #name + 2
#define RECORD_CALL(type, name, ...) +sizeof #name + 2
#include "shim/guard/text/record_fields.inc"
    ;
/// The most bytes of all else, so that a record is always whole JSON.
constexpr size_t kFixed = kEnd
#define RECORD_PROCESS(type, name, ...) +sizeof #name + 3 + field::type::kMost
#define RECORD_CALL(type, name, ...) +sizeof #name + 3 + field::type::kMost
#include "shim/guard/text/record_fields.inc"
    ;
// NOLINTEND(bugprone-macro-parentheses)
static_assert(kMaxLine > 4 * kFixed);

/// Writes the fields of one record.
class Writer {
 public:
  Writer(Text& out, size_t limit)
      : out_(out), part_((limit - kFixed) / kParts), end_(limit - kEnd) {}

  void put(const char* name, size_t /*parts*/, const field::Number& field) {
    begin(name).put_decimal(field.value);
  }
  void put(const char* name, size_t /*parts*/, const field::Count& field) {
    if (field.value >= 0) begin(name).put_decimal(static_cast<uint64_t>(field.value));
  }
  void put(const char* name, size_t /*parts*/, const field::Flag& field) {
    if (field.value) begin(name).put("true");
  }
  void put(const char* name, size_t /*parts*/, const field::Word& field) {
    if (!field.value.empty()) begin(name).put("\"").put(field.value).put("\"");
  }
  void put(const char* name, size_t parts, const field::Text& field) {
    if (!field.value.empty()) put(name, parts, field::TextOrEmpty{field.value});
  }
  void put(const char* name, size_t parts, const field::TextOrEmpty& field);
  void put(const char* name, size_t parts, const field::Time& field);
  void put(const char* name, size_t parts, const field::Words& field);
  void put(const char* name, size_t parts, const field::Address& field);
  void put(const char* name, size_t parts, const field::Line& field);
  void put(const char* name, size_t parts, const field::Frames& field);
  void put(const char* name, size_t parts, const field::Names& field);

 private:
  Text& begin(const char* name) {
    out_.put(begun_ ? ",\"" : "{\"").put(name).put("\":");
    begun_ = true;
    return out_;
  }
  void note(const char* name, bool is_whole) {
    if (!is_whole) cut_[cut_count_++] = name;
  }

  Text& out_;
  size_t part_;  ///< the bytes of one part
  size_t end_;   ///< the record is no longer before kEnd
  bool begun_ = false;
  size_t cut_count_ = 0;
  const char* cut_[kFieldCount];
};

void Writer::put(const char* name, size_t parts, const field::TextOrEmpty& field) {
  note(name, begin(name).put("\"").put_json(field.value, parts * part_));
  out_.put("\"");
}

void Writer::put(const char* name, size_t /*parts*/, const field::Time& field) {
  begin(name).put_decimal(field.seconds).put(".");
  for (uint32_t digit = 100000; digit != 0; digit /= 10) {
    out_.put_decimal(field.microseconds / digit % 10);
  }
}

void Writer::put(const char* name, size_t parts, const field::Words& field) {
  begin(name).put("[");
  const size_t end = out_.view().size() + parts * part_;
  std::string_view rest = field.value;
  bool whole = true;
  for (const char* separator = "\""; !rest.empty() && whole; separator = ",\"") {
    whole = out_.view().size() + 4 < end;
    if (!whole) break;
    out_.put(separator);
    whole = out_.put_json(take_argument(rest), end - out_.view().size() - 1);
    out_.put("\"");
  }
  out_.put("]");
  note(name, whole);
}

/// Writes "/opt/lib/libfoo.so+0x12"; "?" for code outside any file.
void Writer::put(const char* name, size_t parts, const field::Address& field) {
  if (field.value == nullptr) return;
  const CodePlace& place = *field.value;
  const bool is_file = !place.module.empty();
  note(name, begin(name).put("\"").put_json(is_file ? place.module : "?", parts * part_));
  if (is_file) out_.put("+").put_hex(place.offset);
  out_.put("\"");
}

/// Writes "ppo.py:159".
void Writer::put(const char* name, size_t parts, const field::Line& field) {
  if (field.value.file.empty()) return;
  const CodeLine code = code_line(field.value.file, field.value.line);
  note(name, begin(name).put("\"").put(code.before).put_json(code.name, parts * part_));
  if (code.line != 0) out_.put(code.after).put_decimal(code.line);
  out_.put("\"");
}

/// Writes [{"file":"/home/u/ppo.py","line":159,"function":"<module>"}] into the room that is left.
void Writer::put(const char* name, size_t /*parts*/, const field::Frames& field) {
  constexpr size_t kFrame = 64;  // the bytes of a frame in addition to its names
  if (field.value == nullptr) return;
  const Stack& stack = *field.value;
  bool whole = !stack.python_cut;
  if (out_.view().size() + 2 * kFrame >= end_) return note(name, false);
  begin(name).put("[");
  for (unsigned i = 0; i < stack.python_count; ++i) {
    const size_t used = out_.view().size() + kFrame;
    if (used >= end_) {
      whole = false;
      break;
    }
    const PythonFrame& frame = stack.python[i];
    out_.put(i == 0 ? R"({"file":")" : R"(,{"file":")");
    whole = out_.put_json(frame.file, end_ - used) && whole;
    out_.put(R"(","line":)").put_decimal(frame.line).put(R"(,"function":")");
    const size_t left = end_ - out_.view().size() - 3;
    whole = out_.put_json(frame.function, left) && whole;
    out_.put(R"("})");
  }
  out_.put("]");
  note(name, whole);
}

void Writer::put(const char* name, size_t /*parts*/, const field::Names& /*field*/) {
  for (size_t i = 0; i < cut_count_; ++i) {
    (i == 0 ? begin(name) : out_).put(i == 0 ? "[\"" : ",\"").put(cut_[i]).put("\"");
  }
  if (cut_count_ != 0) out_.put("]");
}

}  // namespace

void write_record(Text& out, const ProcessFacts& process, const Attempt& attempt, size_t limit) {
  const CallFacts call = call_facts(attempt);
  Writer writer(out, limit);
#define RECORD_PROCESS(type, name, parts, ...) writer.put(#name, parts, process.name);
#define RECORD_CALL(type, name, parts, ...) writer.put(#name, parts, call.name);
#include "shim/guard/text/record_fields.inc"
  out.put("}\n");
}

}  // namespace cudaguard
