// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/text/message.h"

#include <cerrno>
#include <iterator>

#include "policy/decision.h"
#include "policy/device_list.h"
#include "policy/driver_api.h"
#include "policy/policies.h"
#include "policy/process_rules.h"
#include "policy/user_code.h"
#include "policy/variables.h"

namespace cudaguard {

namespace {

enum class Remedy : uint8_t { kNone, kOtherFile, kAcceptedName };
struct ErrorMeaning {
  int error;
  Remedy remedy;
  char text[47];
};
constexpr ErrorMeaning kErrors[] = {
    {ENOENT, Remedy::kAcceptedName, "No such file or directory"},
    {ENOTDIR, Remedy::kAcceptedName, "Not a directory"},
    {EISDIR, Remedy::kAcceptedName, "Is a directory"},
    {ENAMETOOLONG, Remedy::kAcceptedName, "File name too long"},
    {ELOOP, Remedy::kAcceptedName, "it is a symbolic link"},
    {EMLINK, Remedy::kAcceptedName, "it is a hard link"},
    {ENXIO, Remedy::kAcceptedName, "it is no file, or a pipe that no process reads"},
    {EINVAL, Remedy::kAcceptedName, "it is not a regular file"},
    {EACCES, Remedy::kOtherFile, "Permission denied"},
    {EPERM, Remedy::kOtherFile, "Operation not permitted"},
    {EROFS, Remedy::kOtherFile, "Read-only file system"},
    {ENOSPC, Remedy::kOtherFile, "No space left on device"},
    {EDQUOT, Remedy::kOtherFile, "Disk quota exceeded"},
    {kAnothersFile, Remedy::kOtherFile, "the file belongs to another user"},
    {kUnsafeDirectory, Remedy::kOtherFile, "others could replace files in this directory"},
    {EAGAIN, Remedy::kNone, "the pipe is full"},
    {ECONNREFUSED, Remedy::kNone, "Connection refused"},
    {ENOBUFS, Remedy::kNone, "the socket is full"},
    {EMSGSIZE, Remedy::kNone, "Message too long"},
    {EFBIG, Remedy::kNone, "File too large"},
    {EIO, Remedy::kNone, "Input/output error"},
    {EMFILE, Remedy::kNone, "Too many open files"},
    {ENFILE, Remedy::kNone, "Too many open files in system"},
    {ENOMEM, Remedy::kNone, "Cannot allocate memory"},
    {EINTR, Remedy::kNone, "Interrupted system call"},
    {EPIPE, Remedy::kNone, "Broken pipe"},
    {ETXTBSY, Remedy::kNone, "Text file busy"},
    {ENODEV, Remedy::kNone, "No such device"},
    {EBADF, Remedy::kNone, "Bad file descriptor"},
    {ENOSYS, Remedy::kNone, "Function not implemented"},
    {EOPNOTSUPP, Remedy::kNone, "Operation not supported"},
    {EPROTOTYPE, Remedy::kNone, "Protocol wrong type for socket"},
    {EAFNOSUPPORT, Remedy::kNone, "Address family not supported by protocol"},
    {ECONNRESET, Remedy::kNone, "Connection reset by peer"},
    {ESTALE, Remedy::kNone, "Stale file handle"},
    {ETIMEDOUT, Remedy::kNone, "Connection timed out"},
    {ENOTCONN, Remedy::kNone, "Transport endpoint is not connected"},
    {ENOKEY, Remedy::kNone, "Required key not available"},
    {EUCLEAN, Remedy::kNone, "Structure needs cleaning"},
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

std::string_view what_is_missing(const Attempt& attempt) {
  if (attempt.event == EventKind::kNoContext) return "no CUDA context here";
  switch (attempt.asked) {
    case DriverApi::kNvml:
      return "no GPU to see";
    case DriverApi::kOpenCl:
      return "no OpenCL from NVIDIA here";
    default:
      return "no CUDA here";
  }
}

Text& put_caller(Text& out, const Attempt& attempt) {
  return put_call_site(out.put("asked by "), attempt);
}

/// Writes "unset" or the value in quotes.
Text& put_value(Text& out, bool set, std::string_view value) {
  return set ? out.print("\"%s\"", value) : out.put("unset");
}

/// Writes the list's name with what comes before its value: "--gpus ".
Text& put_list_name(Text& out, ListBy by) {
  constexpr const char* kBetween[] = {"=", " ", ""};
  return out.put(name_of(by)).put(kBetween[static_cast<size_t>(by)]);
}

/// Writes "/etc/cudaguard.conf:7: ", or nothing.
Text& put_place(Text& out, std::string_view place) {
  return place.empty() ? out : out.print("%l: ", place);
}

Text& put_list(Text& out, std::string_view list, ListBy by) {
  return put_list_name(out, by).print("\"%s\": ", list);
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

/// Writes the policies that allow CUDA: "VALIDATE or CLAMP".
static Text& put_allowing(Text& out) {
  const char* before = "";
  for (const PolicyRow& row : kPolicies) {
    if (!allows_cuda(row.policy)) continue;
    out.put(before).put(name_of(row.policy));
    before = " or ";
  }
  return out;
}

Text& put_rule_mistake(Text& out, const RuleMistake& mistake) {
  const char* const key = kRuleKeys[static_cast<size_t>(mistake.key)];
  const auto quoted = [&]() -> Text& { return out.print("%c=\"%s\" ", key, mistake.word); };
  using Why = RuleMistake::Why;
  switch (mistake.why) {
    case Why::kNone:
      return out;
    case Why::kPolicy:
      return out.print("\"%s\" is not accepted (accepted: %c)", mistake.word,
                       row_of(Variable::kPolicy).accepted);
    case Why::kWord:
      return out.print("\"%s\" is not accepted (accepted: KEY=VALUE)", mistake.word);
    case Why::kKey: {
      out.print("\"%s\" is not accepted (accepted:", mistake.word);
      const char* before = " ";
      for (const char* one : kRuleKeys) {
        out.print("%c%c", before, one);
        before = ", ";
      }
      return out.put(")");
    }
    case Why::kTwice:
      return out.print("%c= is given twice", key);
    case Why::kEmpty:
      return out.print("%c= needs a value", key);
    case Why::kQuote:
      return out.print("%c= has a quote that is not around the whole value (accepted: %c=\"...\")",
                       key, key);
    case Why::kSingleQuote:
      return out.print("%c= begins with a single quote (accepted: %c=\"...\")", key, key);
    case Why::kHash:
      return out.print(
          "%c= has a # without quotes; add a blank before it, or quotes around the value", key);
    case Why::kControl:
      return out.put("the line has a control character, or a CR without LF; remove it");
    case Why::kByteOrderMark:
      return out.put("the line begins with a byte order mark; remove it");
    case Why::kGpusInVain:
      return put_allowing(out.put("gpus= needs "));
    case Why::kNoGpu:
      return quoted().put("allows no GPU; write FORCE_CPU instead");
    case Why::kGpus:
      return put_list_error(out.print("%c=\"%s\": ", key, mistake.word), mistake.list, 0);
    case Why::kNumber:
      return quoted().put("is not accepted (accepted: a name, or a number from 0 to 4294967294)");
    case Why::kLog:
      return quoted().print("is not accepted (accepted: %c)", row_of(Variable::kLog).accepted);
    case Why::kReport:
      return quoted().put(
          "is not accepted (accepted: an absolute path of at most 4095 bytes, or syslog:)");
    case Why::kEnvironment:
      return quoted().print("is not accepted (accepted: %c)", kMayWiden);
    case Why::kFileOnly:
      return out.put("environment= works only in /etc/cudaguard.conf");
    case Why::kNoRule:
      return out.put("a rule must follow each &");
  }
  return out;
}

Text& put_report_error(Text& out, int error) {
  const auto* row = std::begin(kErrors);
  while (row != std::end(kErrors) && row->error != error) ++row;
  if (row == std::end(kErrors)) return out.print("errno %u", static_cast<uint64_t>(error));
  out.put(row->text);
  switch (row->remedy) {
    case Remedy::kNone:
      break;
    case Remedy::kOtherFile:
      return out.put("; name a file or directory that can be written");
    case Remedy::kAcceptedName:
      return out.put(" (accepted: a file, DIRECTORY/, syslog: or /dev/stderr)");
  }
  return out;
}

Text& begin_line(Text& out, uint32_t pid) { return out.print("cudaguard[%u]: ", pid); }

static Text& put_starter(Text& out, const Attempt& attempt) {
  return attempt.started_by.empty() ? out : out.print(", started by %s", attempt.started_by);
}

Text& put_call_site(Text& out, const Attempt& attempt) {
  const std::string_view file = file_of(attempt);
  const std::string_view library = library_of(attempt);
  if (const PythonFrame* frame = named_frame(attempt); frame != nullptr) {
    const CodeLine code = code_line(frame->file, frame->line);
    out.print("%c%s%c", code.before, code.name, code.after);
    if (code.line != 0) out.put_decimal(code.line);
    if (attempt.is_deleted) out.put(" (deleted)");
    if (!file.empty()) out.print(" through %s", library);
    return put_starter(out, attempt);
  }
  std::string_view program = attempt.program;
  const std::string_view name = base_name(take_argument(program));
  const bool has_script = interpreter_of(name) != nullptr;
  out.print("%s", library);
  if (!file.empty() && library != file) out.print(" (%s)", file);
  if (name.empty()) return out;
  // A library that passes calls on does not show its caller.
  if (file.starts_with("libOpenCL.so")) out.put(", the OpenCL loader");
  if (has_script || file.empty() || passes_calls_on(file)) {
    put_program(out.put(" in "), attempt.program, attempt.script);
    if (attempt.is_deleted) out.put(" (deleted)");
  }
  return put_starter(out, attempt);
}

void write_denied(Text& out, const DeniedFacts& facts) {
  const Attempt& attempt = facts.attempt;
  const bool child = facts.is_child;
  const bool context = attempt.event == EventKind::kNoContext;
  out.put(what_is_missing(attempt)).put(" (");
  if (facts.because.empty()) {
    out.put(name_of(context ? Policy::kNoContext : Policy::kForceCpu));
  } else if ((child || facts.is_parent) && facts.children_by_option) {
    const Children word = child ? (context ? Children::kNoContext : Children::kForceCpu)
                                : (context ? Children::kOnlyContexts : Children::kOnly);
    out.print("--children=%c", kChildrenWords[static_cast<size_t>(word)]);
  } else {
    out.print("%l", facts.because);  // may have the name of a file
  }
  if (!facts.rule.empty()) out.print(" \"%s\"", facts.rule);
  if (child && facts.first_process != 0 && facts.first_process != UINT32_MAX &&
      facts.first_process != facts.pid) {
    out.print(", only process %u may ", facts.first_process);
    out.put(context ? "make contexts" : "use CUDA");
  }
  out.put("; ");
  if (facts.names_call) out.print("%s ", attempt.api);
  put_caller(out, attempt).put(")");
  const bool helps = child || facts.is_parent || facts.because.empty() || facts.may_lift;
  if (facts.privileged || !helps) return;
  out.print("; to allow %c: ", context ? "contexts" : name_of(attempt.asked));
  if ((child || facts.is_parent) && !facts.children_by_option) {
    out.put("CUDAGUARD_CHILDREN=");
  } else if (child) {
    out.put("run it without --children");
  } else if (facts.fenced) {
    out.put("run it without --fence");
  } else if (facts.unhealthy) {
    // With the policy OFF the program would hang or fail as the driver does.
    out.put("repair the driver (to check it: cudaguard doctor --gpu)");
  } else {
    out.put(facts.in_run ? "cudaguard run --policy " : "CUDAGUARD_POLICY=");
    out.put(name_of(context || facts.is_parent ? Policy::kValidate : Policy::kOff));
    // The user does not start a notebook's kernel by a command.
    if (is_kernel(attempt)) {
      out.print(" in the %c of kernel.json, then restart the kernel",
                facts.in_run ? "argv" : "env");
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
        out.put(failed ? "no context" : "context");
        if (attempt.device >= 0) out.print(" on device %u", static_cast<uint64_t>(attempt.device));
      } else {
        out.print("device %u selected", static_cast<uint64_t>(attempt.device));
      }
  }
  if (failed) out.print(", error %u", static_cast<uint64_t>(attempt.result));
  out.print(" (policy %s; %s ", name_of(policy), attempt.api);
  put_caller(out, attempt).put(")");
}

void write_list_error(Text& out, const ListErrorFacts& facts) {
  put_list(put_place(out, facts.place), facts.list, facts.by);
  put_list_error(out, facts.error, facts.count).put(kForceCpu);
}

void write_list_in_vain(Text& out, const ListInVainFacts& facts) {
  put_list(put_place(out, facts.place), facts.list, facts.by).put(facts.why);
  if (facts.error != 0) out.print(" %u", static_cast<uint64_t>(facts.error));
  out.put("; to find the cause: cudaguard doctor");
}

void write_not_enforced(Text& out, const NotEnforcedFacts& facts) {
  put_place(out, facts.place).put(name_of(facts.by)).put(facts.why).put(kForceCpu);
}

void write_bad_index(Text& out, const IndexFacts& facts) {
  const bool negative = facts.asked < 0;
  const auto asked = static_cast<int64_t>(facts.asked);
  out.print("%s: device %c%u does not exist (", facts.api, negative ? "-" : "",
            static_cast<uint64_t>(negative ? -asked : asked));
  put_caller(out, facts.site).put("); visible: ");
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
  } else if (facts.meant >= 0) {
    out.print("; did you mean %u?", static_cast<uint64_t>(facts.meant));
  }
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
    out.print("=\"%s\" leaves ", facts.is);
    if (facts.sees == 0) {
      out.put("no GPU");
    } else if (facts.left.empty()) {
      out.print("only %u GPU%c", facts.sees, facts.sees == 1 ? "" : "s");
    } else {
      out.print("only GPU%c %s", facts.sees == 1 ? "" : "s", facts.left);
    }
  } else {
    put_value(out.put(" changed from "), facts.was_set, facts.was);
    put_value(out.put(" to "), facts.is_set, facts.is).print(" after %s", facts.api);
    if (!facts.by.empty()) out.print(" (asked by %l)", facts.by);
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
    put_list_name(out.put(". Inside "), facts.list_by)
        .print("%s, devices are numbered from 0", facts.allow_list);
    const char* before = ":";
    int most = 8;  // keeps the message readable
    for (std::string_view rest = facts.is; !rest.empty() && most > 0; before = ",", --most) {
      const std::string_view entry = take_entry(rest);
      const size_t place = place_of_entry(facts.allow_list, entry);
      if (place == std::string_view::npos || entry.empty() || !is_digit(entry.front())) break;
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
  if (!facts.by.empty()) out.print(" by %l", facts.by);
  out.print(
      ", %u.%u s ago, and cannot work here. "
      "Start this process by spawn, or initialise CUDA after the fork",
      facts.milliseconds / 1000, facts.milliseconds / 100 % 10);
}

void write_no_opencl(Text& out, const NoOpenClFacts& facts) {
  out.print("NVIDIA's OpenCL is refused: the guard cannot enforce %s for it (", facts.limit);
  put_caller(out, facts.site).print("); to allow OpenCL: leave %s out", facts.limit);
}

void write_unused_file(Text& out, const UnusedFileFacts& facts) {
  out.print("%l is not used: %c", facts.file, facts.why).put(kForceCpu);
}

void write_rule_mistake(Text& out, const RuleMistakeFacts& facts) {
  put_rule_mistake(out.print("%l: ", facts.place), facts.mistake).put(kForceCpu);
}

void write_unknown_name(Text& out, const UnknownName& unknown) {
  out.print("%c=\"%s\" of a rule is not in %c, so it may match this process",
            kRuleKeys[static_cast<size_t>(unknown.key)], unknown.name, file_of_names(unknown.key))
      .put(kForceCpu);
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

void write_stub(Text& out, const StubFacts& facts) {
  out.print("%l has no %c, so it is not NVIDIA's", facts.file, facts.function);
  out.put(facts.denies ? kForceCpu : "; to see which files are found: cudaguard doctor");
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

}  // namespace cudaguard
