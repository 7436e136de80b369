// SPDX-License-Identifier: Apache-2.0
#include "policy/text/record.h"

#include "policy/driver_api.h"
#include "policy/text/user_code.h"

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

std::string_view cgroup_of(std::string_view lines) {
  std::string_view longest;
  int colons = 0;
  size_t start = 0;
  for (size_t at = 0; at < lines.size(); ++at) {
    const char c = lines.data()[at];
    if (c == '\n') {
      colons = 0;
    } else if (colons < 2) {  // the hierarchy's number and its controllers
      if (c == ':') ++colons;
      start = at + 1;
    } else if (at - start >= longest.size()) {
      longest = {lines.data() + start, at - start + 1};
    }
  }
  return longest;
}

namespace {

std::string_view name_of(EventKind event) {
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

/// Writes `,"caller":"/opt/lib/libfoo.so+0x12"`; "?" for code outside any file. Returns false if it
/// was cut.
bool put_place(Text& out, const CodePlace& place, size_t limit) {
  out.put(R"(,"caller":")");
  const bool whole = out.put_json(place.module.empty() ? "?" : place.module, limit);
  if (!place.module.empty()) out.put("+").put_hex(place.offset);
  out.put("\"");
  return whole;
}

bool put_library(Text& out, const Attempt& attempt, size_t limit) {
  const bool whole = out.put(R"(,"library":")").put_json(library_of(attempt), limit);
  out.put("\"");
  return whole;
}

/// Writes `,"code":"ppo.py:159"` if there is such a line. Returns false if it was cut.
bool put_code(Text& out, const Attempt& attempt, size_t limit) {
  const PythonFrame* frame = named_frame(attempt);
  if (frame == nullptr) return true;
  const CodeLine code = code_line(frame->file, frame->line);
  const bool whole = out.print(R"(,"code":"%c)", code.before).put_json(code.name, limit);
  out.print("%c%u\"", code.after, code.line);
  // The name of a notebook's cell is not the name of its file.
  if (*code.before == '\0') out.print(R"(,"line_frame":%u)", uint64_t{attempt.stack->shown});
  return whole;
}

/// The bytes of a frame in addition to its names.
constexpr size_t kFrame = 96;

/// Writes `,"python":[{"file":"/home/u/ppo.py","line":159,"function":"<module>"}]`, so that the
/// record with it is no longer than `end`. Returns false if it was cut.
bool put_stack(Text& out, const Stack& stack, size_t end) {
  if (stack.python_missing != nullptr) {
    out.print(R"(,"python_missing":"%c")", stack.python_missing);
    return true;
  }
  if (out.view().size() + kFrame >= end) return false;
  out.put(R"(,"python":[)");
  bool whole = !stack.python_cut;
  for (unsigned i = 0; i < stack.python_count; ++i) {
    const size_t used = out.view().size() + kFrame;
    if (used >= end) {
      whole = false;
      break;
    }
    if (i != 0) out.put(",");
    const PythonFrame& frame = stack.python[i];
    whole = out.put(R"({"file":")").put_json(frame.file, end - used) && whole;
    out.print(R"(","line":%u,"function":")", uint64_t{frame.line});
    whole = out.put_json(frame.function, end - out.view().size()) && whole;
    out.put(R"("})");
  }
  out.put("]");
  return whole;
}

/// The fields of a record that were too long for it.
struct CutFields {
  std::string_view names[8];
  size_t count = 0;

  void note(std::string_view name, bool is_whole) {
    if (!is_whole) names[count++] = name;
  }
};

bool put_arguments(Text& out, std::string_view rest, size_t limit) {
  const size_t start = out.view().size();
  bool whole = true;
  while (!rest.empty() && whole) {
    const size_t used = out.view().size() - start;
    if (used + 4 >= limit) return false;
    out.put(used != 0 ? ",\"" : "\"");
    whole = out.put_json(take_argument(rest), limit - used - 4);
    out.put("\"");
  }
  return whole;
}

}  // namespace

void write_record(Text& out, const ProcessFacts& process, const Attempt& attempt, size_t limit) {
  // Room for the fixed fields and the closing of the record, so that it is always whole JSON.
  constexpr size_t kFixed = 896;
  // The long fields except Python's frames have four and a half times this size. The frames take
  // the rest.
  const size_t field = (limit - kFixed) * 2 / 9;
  CutFields cut;
  out.print(R"({"v":1,"ts":%u.)", process.seconds);
  for (uint32_t digit = 100000; digit != 0; digit /= 10) {
    out.put_decimal(process.microseconds / digit % 10);
  }
  out.print(R"(,"pid":%u,"ppid":%u,"tid":%u,"uid":%u,"host":")", process.pid, process.parent_pid,
            process.thread_id, process.uid);
  out.put_json(process.host, 64);
  out.put(R"(","exe":")");
  cut.note("exe", out.put_json(process.executable, field));
  out.put(R"(","argv":[)");
  cut.note("argv", put_arguments(out, process.arguments, field));
  out.put(R"(],"cgroup":")");
  cut.note("cgroup", out.put_json(process.cgroup, field / 3));
  if (!process.slurm.empty()) out.put(R"(","slurm":")").put_json(process.slurm, 32);
  if (attempt.event == EventKind::kStart) {
    out.put(R"(","event":"start","policy":")").put(name_of(attempt.policy)).put("\"");
  } else {
    out.put(R"(","api":")").put_json(attempt.api, 64);
    if (!attempt.object.empty()) {
      out.put(R"(","object":")");
      cut.note("object", out.put_json(attempt.object, field / 2));
    }
    out.print(R"(","asked":"%c)", word_of(attempt.asked));
    const bool refused = attempt.event == EventKind::kRefused;
    const bool allowed = attempt.event != EventKind::kNone && !refused;
    if (allowed) out.put(R"(","event":")").put(name_of(attempt.event));
    out.put(R"(","decision":")").put(allowed ? "allow" : refused ? "refuse" : "deny").put("\"");
    if (attempt.last_place) out.put(R"(,"last_place":true)");
    if (attempt.device >= 0) out.print(R"(,"device":%u)", static_cast<uint64_t>(attempt.device));
    if (attempt.result >= 0) out.print(R"(,"result":%u)", static_cast<uint64_t>(attempt.result));
    cut.note("caller", put_place(out, attempt.caller, field));
    if (attempt.api != kRequestApi) {  // the seccomp filter does not know the caller
      cut.note("library", put_library(out, attempt, field / 3));
      if (passes_calls_on(library_of(attempt))) out.put(R"(,"passes_on":true)");
      cut.note("code", put_code(out, attempt, field / 3));
    }
  }
  if (attempt.stack != nullptr) cut.note("python", put_stack(out, *attempt.stack, limit - kFrame));
  for (size_t i = 0; i < cut.count; ++i) {
    out.put(i == 0 ? R"(,"cut":[")" : ",\"").put(cut.names[i]).put("\"");
  }
  out.put(cut.count == 0 ? "}\n" : "]}\n");
}

}  // namespace cudaguard
