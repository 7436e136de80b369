// SPDX-License-Identifier: Apache-2.0
#include "policy/message.h"

#include <cerrno>
#include <iterator>

#include "policy/driver_api.h"
#include "policy/user_code.h"

namespace cudaguard {

namespace {

struct ErrorMeaning {
  int error;
  std::string_view text;
};
constexpr ErrorMeaning kErrors[] = {
    {EACCES, "Permission denied"},
    {EPERM, "Operation not permitted"},
    {ENOENT, "No such file or directory"},
    {ENOTDIR, "Not a directory"},
    {EISDIR, "Is a directory"},
    {ENAMETOOLONG, "File name too long"},
    {ELOOP, "it is a symbolic link"},
    {EMLINK, "it is a hard link"},
    {EROFS, "Read-only file system"},
    {ENOSPC, "No space left on device"},
    {EDQUOT, "Disk quota exceeded"},
    {ENXIO, "no process reads this pipe"},
    {EAGAIN, "the pipe is full"},
    {EINVAL, "it is not a regular file"},
};

std::string_view text_of(ListError::Why why) {
  using Why = ListError::Why;
  switch (why) {
    case Why::kNone:
      break;
    case Why::kEmptyEntry:
      return "is empty (accepted: index, GPU-..., MIG-...)";
    case Why::kNotUnderstood:
      return "is not accepted (accepted: index, GPU-..., MIG-...)";
    case Why::kNegative:
      return "is negative (accepted: -1 alone)";
    case Why::kTooMany:
      return "is one too many (accepted: 64 entries)";
    case Why::kDuplicate:
      return "repeats a GPU (accepted: each GPU once)";
    case Why::kNoSuchIndex:
      return "does not exist";
    case Why::kUnknownUuid:
      return "is the UUID of no GPU here";
    case Why::kAmbiguousUuid:
      return "matches several GPUs (accepted: a longer part of the UUID)";
    case Why::kNeedsNvml:
      return "cannot be combined with the others without NVML "
             "(accepted: indices alone, or UUIDs alone)";
    case Why::kTooLong:
      return "it is longer than 6143 bytes";
  }
  return "is wrong";
}

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

std::string_view what_is_missing(DriverApi asked) {
  switch (asked) {
    case DriverApi::kNvml:
      return "no GPU to see";
    case DriverApi::kOpenCl:
      return "no OpenCL from NVIDIA here";
    default:
      return "no CUDA here";
  }
}

/// An interpreter of scripts, and the options that may come before the script.
struct Interpreter {
  std::string_view name;
  std::string_view alone;       ///< letters of options without a value
  std::string_view with_value;  ///< letters of options whose value is the next word
};
constexpr Interpreter kInterpreters[] = {
    {"python", "usSBO", "WX"}, {"pypy", "usSBO", "WX"},   {"ruby", "usSBOWX", ""},
    {"perl", "usSBOWX", ""},   {"nodejs", "usSBOWX", ""}, {"node", "usSBOWX", ""},
    {"luajit", "usSBOWX", ""}, {"lua", "usSBOWX", ""},    {"php", "nqf", "d"},
};

/// Returns the interpreter for "python3.11", null for "node_exporter". The guard shows no arguments
/// of other programs.
const Interpreter* interpreter_of(std::string_view name) {
  for (const Interpreter& one : kInterpreters) {
    if (!name.starts_with(one.name)) continue;
    // The rest is a version; "t" marks a Python without a GIL.
    for (const char c : tail(name, one.name.size())) {
      if (c >= 'A' && c != 't') return nullptr;
    }
    return &one;
  }
  return nullptr;
}

/// Removes and returns the first argument.
std::string_view take_argument(std::string_view& rest) {
  const std::string_view argument = head(rest, rest.find('\0'));
  rest = tail(rest, argument.size() + 1);
  return argument;
}

/// Writes " ppo.py" or " -m pkg.train".
void put_script(Text& out, const Interpreter& interpreter, std::string_view arguments) {
  std::string_view word = take_argument(arguments);
  while (word.size() == 2 && word.front() == '-') {
    const bool has_value = interpreter.with_value.find(word.back()) != std::string_view::npos;
    if (!has_value && interpreter.alone.find(word.back()) == std::string_view::npos) break;
    if (has_value) take_argument(arguments);
    word = take_argument(arguments);
  }
  if (word == "-m") {
    out.put(" -m");
    word = take_argument(arguments);
  }
  if (!word.empty() && word[0] != '-') out.print(" %n", base_name(word));
}

/// True if the process runs CPython; its name decides if nothing else is known.
bool has_python(const Attempt& attempt, std::string_view program) {
  if (program.empty() || program.starts_with("py")) return true;
  if (attempt.stack == nullptr) return false;
  const char* missing = attempt.stack->python_missing;
  return missing == nullptr ? attempt.stack->python_count != 0
                            : std::string_view(missing) != kNoPython;
}

const PythonFrame* named_frame(const Attempt& attempt) {
  return attempt.stack == nullptr ? nullptr : attempt.stack->named();
}

/// Returns the caller: "libfoo.so", "ctypes/cffi" or "generated code".
std::string_view library_of(const Attempt& attempt) {
  std::string_view program = attempt.program;
  const std::string_view name = base_name(take_argument(program));
  const std::string_view file = base_name(attempt.caller.module);
  if (file.empty()) return name.empty() ? "code outside any file" : "generated code";
  return is_foreign_function(file) && has_python(attempt, name) ? "ctypes/cffi" : file;
}

/// Writes "asked by ppo.py:159 through libfoo.so" or "asked by libfoo.so in python3 -m pkg".
Text& put_caller(Text& out, const Attempt& attempt) {
  const std::string_view file = base_name(attempt.caller.module);
  const std::string_view library = library_of(attempt);
  out.put("asked by ");
  if (const PythonFrame* frame = named_frame(attempt); frame != nullptr) {
    const CodeLine code = code_line(frame->file, frame->line);
    out.print("%c%s%c%u", code.before, code.name, code.after, code.line);
    return file.empty() ? out : out.print(" through %s", library);
  }
  out.print("%s", library);
  if (!file.empty() && library != file) out.print(" (%s)", file);
  std::string_view program = attempt.program;
  const std::string_view name = base_name(take_argument(program));
  if (name.empty()) return out;
  // A library that passes calls on does not show its caller.
  if (file.starts_with("libOpenCL.so")) out.put(", the OpenCL loader");
  const Interpreter* interpreter = interpreter_of(name);
  if (interpreter != nullptr || file.empty() || passes_calls_on(file)) out.print(" in %n", name);
  if (interpreter != nullptr) put_script(out, *interpreter, program);
  return out;
}
Text& put_caller(Text& out, const CodePlace& caller) {
  Attempt attempt;
  attempt.caller = caller;
  return put_caller(out, attempt);
}

/// Writes "unset" or the value in quotes.
Text& put_value(Text& out, bool set, std::string_view value) {
  return set ? out.print("\"%s\"", value) : out.put("unset");
}

Text& put_list(Text& out, std::string_view list, bool by_option) {
  return out.put(by_option ? "--gpus " : "CUDAGUARD_VISIBLE_DEVICES=").print("\"%s\": ", list);
}

/// True if the process is a Jupyter kernel.
bool is_kernel(const Attempt& attempt) {
  const PythonFrame* frame = named_frame(attempt);
  return (frame != nullptr && is_kernel_cell(frame->file)) ||
         find(attempt.program, "ipykernel_launcher") != std::string_view::npos;
}

constexpr char kForceCpu[] = "; FORCE_CPU applies";

}  // namespace

Text& put_list_error(Text& out, const ListError& error, size_t count) {
  if (error.position != 0) out.print("entry %u", error.position);
  if (!error.entry.empty()) out.print(" \"%s\"", error.entry);
  const std::string_view why = text_of(error.why);
  out.put(error.position != 0 ? " " : "").put(why);
  if (count == 0 || why.ends_with(')')) return out;
  return out.print(" (this machine has %u GPU%c)", count, count == 1 ? "" : "s");
}

Text& put_complaint(Text& out, const Complaint& complaint) {
  return complaint.accepted.empty()
             ? out.put(complaint.instead)
             : out.print("is not accepted (accepted: %s)", complaint.accepted);
}

Text& put_report_error(Text& out, int error) {
  const auto* row = std::begin(kErrors);
  while (row != std::end(kErrors) && row->error != error) ++row;
  if (row != std::end(kErrors)) {
    out.put(row->text);
  } else {
    out.print("errno %u", static_cast<uint64_t>(error));
  }
  return out.put(" (accepted: a file or /dev/stderr)");
}

Text& begin_line(Text& out, uint32_t pid) { return out.print("cudaguard[%u]: ", pid); }

void write_denied(Text& out, const DeniedFacts& facts) {
  const Config& config = facts.config;
  const Attempt& attempt = facts.attempt;
  const DriverApi asked = driver_api_of(attempt.api, attempt.object);
  const bool child = facts.because == kIsChild;
  out.put(what_is_missing(asked)).put(" (");
  if (facts.because.empty()) {
    out.put("FORCE_CPU");
  } else {
    out.put(child && config.children_by_option ? "--children=cpu" : facts.because);
  }
  if (child && config.root != 0 && config.root != UINT32_MAX && config.root != facts.pid) {
    out.print(", only process %u may use CUDA", config.root);
  }
  out.put("; ");
  if (config.log == Log::kAll) out.print("%s ", attempt.api);
  put_caller(out, attempt).put(")");
  if (config.privileged || !(child || facts.because.empty())) return;
  out.print("; to allow %c: ", name_of(asked));
  if (child) {
    out.put(config.children_by_option ? "cudaguard run --policy VALIDATE" : "CUDAGUARD_CHILDREN=");
  } else if (config.fenced) {
    out.put("run it without --fence");
  } else {
    out.put(config.in_run ? "cudaguard run --policy OFF" : "CUDAGUARD_POLICY=OFF");
    // The user does not start a notebook's kernel by a command.
    if (is_kernel(attempt)) {
      out.print(" in the %c of kernel.json, then restart the kernel",
                config.in_run ? "argv" : "env");
    }
  }
}

void write_allowed(Text& out, Policy policy, const Attempt& attempt) {
  const bool failed = attempt.result > 0;
  switch (attempt.event) {
    case EventKind::kInit:
      out.put(failed ? "CUDA not initialised" : "CUDA initialised");
      if (!attempt.object.empty()) out.print(", GPUs %l", attempt.object);
      break;
    case EventKind::kNvml:
      out.put(failed ? "NVML not in use" : "NVML in use");
      break;
    case EventKind::kWork:
      out.put("code loaded");
      break;
    default:
      if (attempt.event == EventKind::kContext) {
        out.print("context on device %u", static_cast<uint64_t>(attempt.device));
      } else {
        out.print("device %u selected", static_cast<uint64_t>(attempt.device));
      }
  }
  if (failed) out.print(", error %u", static_cast<uint64_t>(attempt.result));
  out.print(" (policy %s; %s ", name_of(policy), attempt.api);
  put_caller(out, attempt).put(")");
}

void write_list_error(Text& out, const ListErrorFacts& facts) {
  put_list(out, facts.list, facts.by_option);
  put_list_error(out, facts.error, facts.count).put(kForceCpu);
}

void write_list_in_vain(Text& out, const ListInVainFacts& facts) {
  put_list(out, facts.list, facts.by_option).put(facts.why);
  if (facts.error != 0) out.print(" %u", static_cast<uint64_t>(facts.error));
  out.put("; to find the cause: cudaguard doctor");
}

void write_not_enforced(Text& out, const NotEnforcedFacts& facts) {
  out.put(facts.by_option ? "--gpus" : "CUDAGUARD_VISIBLE_DEVICES").put(facts.why).put(kForceCpu);
}

void write_bad_index(Text& out, const IndexFacts& facts) {
  const bool negative = facts.asked < 0;
  const auto asked = static_cast<int64_t>(facts.asked);
  out.print("%s: device %c%u does not exist (", facts.api, negative ? "-" : "",
            static_cast<uint64_t>(negative ? -asked : asked));
  put_caller(out, facts.caller).put("); visible: ");
  if (facts.count <= 0) {
    out.put("none");
  } else {
    if (facts.count == 1) {
      out.put("0 only");
    } else {
      out.print("0 to %u", static_cast<uint64_t>(facts.count - 1));
    }
    if (!facts.are.empty()) {
      out.print(" = %s", facts.are_whose).put_printable(facts.are, kMaxLine / 4);
    }
  }
  if (facts.used >= 0) {
    out.print("; device %u is used instead (policy CLAMP)", static_cast<uint64_t>(facts.used));
  }
  if (facts.meant >= 0) out.print("; did you mean %u?", static_cast<uint64_t>(facts.meant));
}

namespace {

/// Returns why the program cannot be started with the new value as its allow-list, or kNone if no
/// mistake is known. `known`: whether kNone is certain.
ListError check_new_list(const LateWriteFacts& facts, bool& known) {
  const AllowList list = parse_allow_list(facts.is);
  known = true;
  if (list.none || list.error.why != ListError::Why::kNone) return list.error;
  // If cuInit came after the change, it has read the same list.
  const bool seen = !facts.read_already && facts.sees == list.count;
  for (size_t i = 0; i < list.count; ++i) {
    const AllowEntry& entry = list.entries[i];
    const bool index = entry.kind == AllowEntry::Kind::kIndex;
    if (!seen && (!index || facts.gpus == 0)) known = false;
    if (index && facts.gpus != 0 && entry.index >= facts.gpus) {
      return {ListError::Why::kNoSuchIndex, i + 1, entry.text};
    }
    for (size_t k = 0; k < i; ++k) {
      const AllowEntry& earlier = list.entries[k];
      if (index && earlier.kind == entry.kind && earlier.index == entry.index) {
        return {ListError::Why::kDuplicate, i + 1, entry.text};
      }
    }
  }
  return {};
}

/// Writes advice that works on this machine, in the form of the place where the message is read.
void put_new_list(Text& out, const LateWriteFacts& facts) {
  bool known = false;
  const ListError error = check_new_list(facts, known);
  if (error.why != ListError::Why::kNone) {
    put_list_error(out.put(". In the new value, "), error, facts.gpus);
  } else if (!known) {
    out.put(". Set it before the program starts");
  } else if (facts.in_run && (facts.is.empty() || facts.is == "-1")) {
    out.put(". Start the program with cudaguard run --cpu");
  } else {
    const bool one = facts.is.size() == 1;  // "2"
    out.put(". Start the program with ");
    out.put(facts.in_run ? "cudaguard run --gpus " : "CUDAGUARD_VISIBLE_DEVICES=");
    // A blank would end the word in a shell.
    const bool quoted = facts.is.find(' ') != std::string_view::npos;
    const char* quote = quoted ? "\"" : "";
    out.print("%c%s%c", quote, facts.is, quote);
    out.put(one ? " and use device 0" : "; its devices are then numbered from 0");
  }
}

}  // namespace

void write_late_write(Text& out, const LateWriteFacts& facts) {
  out.put("CUDA_VISIBLE_DEVICES");
  if (facts.api.empty()) {
    out.print("=\"%s\" leaves no GPU", facts.is);
  } else {
    put_value(out.put(" changed from "), facts.was_set, facts.was);
    put_value(out.put(" to "), facts.is_set, facts.is).print(" after %s", facts.api);
    if (facts.read_already) {
      out.put(" had read it: no effect in this process");
    } else {
      out.print(" had reported %u GPU%c; CUDA sees %u", facts.reported,
                facts.reported == 1 ? "" : "s", facts.sees);
    }
  }
  // The program may have derived the value from an option of its own, so the message gives the
  // numbering, not what to write.
  if (!facts.allow_list.empty()) {
    out.print(". Inside %c%s, devices are numbered from 0",
              facts.by_option ? "--gpus " : "CUDAGUARD_VISIBLE_DEVICES=", facts.allow_list);
    const char* before = ":";
    int most = 8;  // keeps the message readable
    for (std::string_view rest = facts.is; !rest.empty() && most > 0; before = ",", --most) {
      const std::string_view entry = take_entry(rest);
      const size_t place = place_of_entry(facts.allow_list, entry);
      if (place == std::string_view::npos) break;
      out.print("%c GPU %n is device %u", before, entry, place);
    }
  } else if (!facts.is_set) {
    out.put(". Start the program without CUDA_VISIBLE_DEVICES");
  } else {
    put_new_list(out, facts);
  }
}

void write_fork_poison(Text& out, const ForkFacts& facts) {
  out.print("%s in a forked child: CUDA was initialised in the parent %u", facts.api, facts.parent);
  if (!facts.by.empty()) out.print(" by %s", base_name(facts.by));
  out.print(
      ", %u.%u s ago, and cannot work here. "
      "Start this process by spawn, or initialise CUDA after the fork",
      facts.milliseconds / 1000, facts.milliseconds / 100 % 10);
}

void write_no_opencl(Text& out, const NoOpenClFacts& facts) {
  const char* list = facts.by_option ? "--gpus" : "CUDAGUARD_VISIBLE_DEVICES";
  out.print("NVIDIA's OpenCL is refused: it ignores %c (", list);
  put_caller(out, facts.caller).print("); to allow OpenCL: leave %c out", list);
}

void write_complaint(Text& out, const Complaint& complaint) {
  out.print("%s", complaint.variable);
  if (!complaint.value.empty()) out.print("=\"%s\"", complaint.value);
  put_complaint(out.put(" "), complaint);
  if (!complaint.accepted.empty()) out.put("; ").put(complaint.instead);
}

void write_missing(Text& out, const MissingFacts& facts) {
  const UnusableRow& row = row_of(facts.why);
  out.print("%l %c; %c", facts.file, row.text, facts.instead);
  if (row.reinstall) out.put(" until cudaguard is installed again");
}

void write_exposed(Text& out, std::string_view library) {
  out.print(
      "%l: the kernel does not let the guard change its symbols, so the program can reach the "
      "driver "
      "by dlsym; start this program itself with cudaguard run",
      library);
}

void write_report_failed(Text& out, std::string_view path, int error) {
  put_report_error(out.print("report \"%l\": ", path), error).put("; nothing is recorded");
}

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
    const DriverApi asked = driver_api_of(attempt.api, attempt.object);
    out.print(R"(","asked":"%c)", word_of(asked));
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
