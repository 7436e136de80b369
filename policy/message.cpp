// SPDX-License-Identifier: Apache-2.0
#include "policy/message.h"

#include <cerrno>

namespace cudaguard {

namespace {

constexpr size_t kShownValue = 80;
constexpr size_t kShownName = 40;

Text& start(Text& out, uint32_t pid) { return out.put("cudaguard[").put_decimal(pid).put("]: "); }

const char* meaning(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "permission denied";
    case ENOENT:
      return "no such folder";
    case ENOTDIR:
      return "a part of the path is not a folder";
    case EISDIR:
      return "it is a folder";
    case ELOOP:
      return "it is a symbolic link";
    case EMLINK:
      return "it is a hard link";
    case EROFS:
      return "read-only file system";
    case ENXIO:
      return "nobody reads that pipe";
    case ENOSPC:
    case EDQUOT:
      return "no space left";
    case EAGAIN:
      return "the pipe is full";
    case EINVAL:
      return "it is not a regular file";
    default:
      return nullptr;
  }
}

constexpr char kEventNames[][8] = {"", "init", "context", "select", "nvml", "work"};

/// The length of the first name that `text` begins with, or 0. Each ends in a zero byte, the list
/// in two.
[[gnu::noinline]] size_t begins(std::string_view text, const char* names) {
  while (*names != '\0') {
    size_t same = 0;
    while (same < text.size() && names[same] != '\0' && names[same] == text.data()[same]) ++same;
    if (names[same] == '\0') return same;
    while (*names++ != '\0') {
    }
  }
  return 0;
}

/// "python3.11", not "node_exporter": of others the arguments are nobody's business.
bool is_interpreter(std::string_view name) {
  size_t length = begins(name, "python\0pypy\0ruby\0perl\0nodejs\0node\0luajit\0lua\0php\0");
  if (length == 0) return false;
  while (length < name.size() && (name.data()[length] < 'A' || name.data()[length] == 't'))
    ++length;
  return length == name.size();
}

/// Takes the first argument off.
[[gnu::noinline]] std::string_view take_argument(std::string_view& rest) {
  const std::string_view argument = head(rest, rest.find('\0'));
  rest = tail(rest, argument.size() + 1);
  return argument;
}

/// " in python3 ppo.py", " in python3 -m pkg.train".
void put_script(Text& out, std::string_view name, std::string_view arguments) {
  out.put(" in ").put_printable(name, kShownName);
  std::string_view word = take_argument(arguments);
  // Options that stand alone, whichever of them it is, and Python's two with a value.
  while (word.size() == 2 && begins(word, "-u\0-s\0-S\0-B\0-O\0-W\0-X\0") != 0) {
    if (word.data()[1] >= 'W' && word.data()[1] <= 'X' && name.data()[1] == 'y')
      take_argument(arguments);
    word = take_argument(arguments);
  }
  if (word == "-m") {
    out.put(" -m");
    word = take_argument(arguments);
  }
  if (!word.empty() && word[0] != '-') out.put(" ").put_printable(base_name(word), kShownName);
}

/// "asked by libfoo.so". `program`: the process's arguments, or empty.
Text& put_caller(Text& out, const CodePlace& caller, std::string_view program = {}) {
  out.put("asked by ");
  if (caller.module.empty()) return out.put("code outside any file");
  const std::string_view file = base_name(caller.module);
  const std::string_view name = base_name(take_argument(program));
  // Python's two, each with a copy of its own or the system's, which Ruby and others use as well.
  const bool ffi = begins(file, "libffi\0_ctypes.\0_cffi_backend.\0") != 0 &&
                   (name.empty() || begins(name, "py\0") != 0);
  if (ffi) out.put("ctypes/cffi (");
  out.put_printable(file, kShownValue);
  if (ffi) out.put(")");
  if (name.empty()) return out;
  // Who is behind the OpenCL loader cannot be told without unwinding the stack.
  if (begins(file, "libOpenCL.so\0") != 0) {
    out.put(", the OpenCL loader");
    put_script(out, name, {});
  } else if (is_interpreter(name)) {
    put_script(out, name, program);
  }
  return out;
}

/// "unset" or the value in quotes.
Text& put_value(Text& out, bool set, std::string_view value) {
  if (!set) return out.put("unset");
  return out.put("\"").put_printable(value, kShownValue).put("\"");
}

Text& put_list(Text& out, uint32_t pid, std::string_view list) {
  start(out, pid).put("CUDAGUARD_VISIBLE_DEVICES=\"").put_printable(list, kShownValue);
  return out.put("\": ");
}

const char* reason(ListError::Why why) {
  using Why = ListError::Why;
  switch (why) {
    case Why::kEmptyEntry:
      return "is empty (accepted: index, GPU-..., MIG-...)";
    case Why::kNotUnderstood:
      return "is no index, GPU-... or MIG-...";
    case Why::kNegative:
      return "is negative (accepted: -1 alone)";
    case Why::kTooMany:
      return "is one too many (accepted: 64)";
    case Why::kDuplicate:
      return "names a GPU again (accepted: each once)";
    case Why::kNoSuchIndex:
      return "does not exist";
    case Why::kUnknownUuid:
      return "is the UUID of no GPU here";
    case Why::kAmbiguousUuid:
      return "is the beginning of several UUIDs";
    case Why::kNeedsNvml:
      return "cannot be combined with the others where NVML is not installed";
    case Why::kTooLong:
      return "it is longer than 6143 bytes";
    case Why::kNone:
      break;
  }
  return "is wrong";
}

}  // namespace

void write_denied(Text& out, uint32_t pid, const Config& config, std::string_view because,
                  const Touch& touch) {
  const bool nvml = begins(touch.api, "nvml\0") != 0;
  start(out, pid).put(nvml ? "no GPU to see (" : "no CUDA here (");
  out.put(because.empty() ? "FORCE_CPU" : because).put("; ");
  if (config.log == Log::kAll) out.put(touch.api).put(" ");
  put_caller(out, touch.caller, touch.program).put(")");
  if (because == kIsChild && config.root != 0 && config.root != UINT32_MAX && config.root != pid) {
    out.put("; process ").put_decimal(config.root).put(" has the GPU (CUDAGUARD_ROOT)");
  } else if (because.empty() && !config.privileged) {
    out.put(config.in_run ? "; cudaguard run --policy OFF lifts it"
                          : "; CUDAGUARD_POLICY=OFF in front lifts it");
  }
  out.put("\n");
}

void write_allowed(Text& out, uint32_t pid, const Config& config, const Touch& touch) {
  const bool failed = touch.result > 0;
  start(out, pid);
  switch (touch.event) {
    case EventKind::kInit:
      out.put(failed ? "CUDA not initialised" : "CUDA initialised");
      if (!touch.object.empty()) out.put(", GPUs ").put_printable(touch.object, kMaxLine / 2);
      break;
    case EventKind::kNvml:
      out.put(failed ? "NVML not in use" : "NVML in use");
      break;
    case EventKind::kWork:
      out.put("code loaded");
      break;
    default:
      out.put(touch.event == EventKind::kContext ? "context on device " : "device ");
      out.put_decimal(static_cast<uint64_t>(touch.device));
      if (touch.event == EventKind::kSelect) out.put(" selected");
  }
  if (failed) out.put(", error ").put_decimal(static_cast<uint64_t>(touch.result));
  out.put(" (policy ").put(name_of(config.policy)).put("; ").put(touch.api).put(" ");
  put_caller(out, touch.caller).put(")\n");
}

void write_list_error(Text& out, uint32_t pid, std::string_view list, const ListError& error,
                      size_t count) {
  put_list(out, pid, list);
  if (error.position != 0) out.put("entry ").put_decimal(error.position);
  if (!error.entry.empty()) out.put(" \"").put_printable(error.entry, kShownValue).put("\"");
  const char* why = reason(error.why);
  out.put(error.position != 0 ? " " : "").put(why);
  if (count != 0 && !std::string_view(why).ends_with(")")) {
    out.put(" (this machine has ").put_decimal(count).put(count == 1 ? " GPU)" : " GPUs)");
  }
  out.put("; FORCE_CPU applies\n");
}

void write_list_in_vain(Text& out, uint32_t pid, std::string_view list, std::string_view why) {
  put_list(out, pid, list).put(why).put("\n");
}

void write_not_enforced(Text& out, uint32_t pid, std::string_view why) {
  start(out, pid).put(why).put("; FORCE_CPU applies\n");
}

void write_bad_index(Text& out, uint32_t pid, const IndexFacts& facts) {
  start(out, pid).put(facts.api).put(": device ");
  if (facts.asked < 0) out.put("-");
  out.put_decimal(static_cast<uint64_t>(facts.asked < 0 ? -static_cast<int64_t>(facts.asked)
                                                        : static_cast<int64_t>(facts.asked)));
  put_caller(out.put(" "), facts.caller);
  const auto last = static_cast<uint64_t>(facts.count - 1);
  if (facts.count <= 0) {
    out.put(", none is visible");
  } else if (facts.count == 1) {
    out.put(", visible is 0 alone");
  } else {
    out.put(", visible are 0 to ").put_decimal(last);
  }
  if (facts.count > 0 && !facts.are.empty()) {
    out.put(" = ").put(facts.are_whose).put_printable(facts.are, kMaxLine / 4);
  }
  if (facts.used >= 0) {
    out.put("; ").put_decimal(static_cast<uint64_t>(facts.used)).put(" is used (policy CLAMP)");
  }
  if (facts.meant >= 0) {
    out.put("; did you mean ").put_decimal(static_cast<uint64_t>(facts.meant)).put("?");
  }
  out.put("\n");
}

void write_late_write(Text& out, uint32_t pid, const LateWriteFacts& facts) {
  start(out, pid).put("CUDA_VISIBLE_DEVICES");
  if (facts.api.empty()) {
    put_value(out.put("="), true, facts.is).put(" leaves no GPU");
  } else {
    put_value(out.put(" changed from "), facts.was_set, facts.was);
    put_value(out.put(" to "), facts.is_set, facts.is).put(" after ").put(facts.api);
    if (facts.read_already) {
      out.put(" had read it: no effect in this process");
    } else {
      out.put(" had told the program of ").put_decimal(facts.told);
      out.put(facts.told == 1 ? " GPU; CUDA sees " : " GPUs; CUDA sees ").put_decimal(facts.sees);
    }
  }
  // The program may have made it of an option of its own: said is what holds, not who is to write.
  if (!facts.allow_list.empty()) {
    out.put(". Inside CUDAGUARD_VISIBLE_DEVICES=").put_printable(facts.allow_list, kShownValue);
    out.put(" devices count from 0");
    const char* before = ": GPU ";
    int most = 8;  // of a line that people read
    for (std::string_view rest = facts.is; !rest.empty() && most > 0; before = ", GPU ", --most) {
      const std::string_view entry = take_entry(rest);
      const size_t place = place_of_entry(facts.allow_list, entry);
      if (place == std::string_view::npos) break;
      out.put(before).put_printable(entry, kShownName).put(" is device ").put_decimal(place);
    }
  } else if (!facts.is_set) {
    out.put(". Start the program without CUDA_VISIBLE_DEVICES");
  } else {
    out.put(". Start the program with CUDAGUARD_VISIBLE_DEVICES=");
    out.put_printable(facts.is, kShownValue).put(" in front");
    const bool one = facts.is.size() == 1;  // "2"
    out.put(one ? ", and device 0" : "; its devices count from 0 then");
  }
  out.put("\n");
}

void write_fork_poison(Text& out, uint32_t pid, const ForkFacts& facts) {
  start(out, pid).put(facts.api).put(" in a forked child: CUDA was initialised in the parent ");
  out.put_decimal(facts.parent);
  if (!facts.by.empty()) out.put(" by ").put_printable(base_name(facts.by), kShownValue);
  out.put(", ").put_decimal(facts.milliseconds / 1000).put(".");
  out.put_decimal(facts.milliseconds / 100 % 10).put(" s ago, and cannot work here. ");
  out.put("Start this process by spawn, or initialise CUDA after the fork\n");
}

void write_no_opencl(Text& out, uint32_t pid, const Touch& touch) {
  start(out, pid).put("NVIDIA's OpenCL is not loaded: it does not keep to ");
  put_caller(out.put("CUDAGUARD_VISIBLE_DEVICES ("), touch.caller).put(")\n");
}

void write_complaint(Text& out, uint32_t pid, const Complaint& complaint) {
  start(out, pid).put(complaint.variable);
  if (!complaint.value.empty()) put_value(out.put("="), true, complaint.value);
  out.put(" ");
  if (!complaint.accepted.empty()) {
    out.put("is not accepted (accepted: ").put(complaint.accepted).put("); ");
  }
  out.put(complaint.instead).put("\n");
}

void write_missing_standin(Text& out, uint32_t pid, std::string_view file, std::string_view why) {
  start(out, pid)
      .put_printable(file, kMaxLine / 2)
      .put(" ")
      .put(why)
      .put("; answering as on a machine without a driver\n");
}

void write_missing_companion(Text& out, uint32_t pid, std::string_view file, std::string_view why) {
  const bool nvml = base_name(file) == "libcudaguard-nvml.so";
  start(out, pid).put_printable(file, kMaxLine / 2).put(" ").put(why);
  out.put(nvml ? "; NVML is not let through\n" : "; FORCE_CPU applies\n");
}

void write_report_failed(Text& out, uint32_t pid, std::string_view path, int error) {
  start(out, pid).put("CUDAGUARD_REPORT=\"").put_printable(path, kMaxLine / 2).put("\": ");
  const char* text = meaning(error);
  if (text == nullptr) {
    out.put("errno ").put_decimal(static_cast<uint64_t>(error));
  } else {
    out.put(text);
  }
  out.put(" (accepted: a file or /dev/stderr); no report\n");
}

namespace {
[[gnu::noinline]] void put_number(Text& out, const char* name, uint64_t value) {
  out.put(name).put_decimal(value);
}
}  // namespace

void write_record(Text& out, const ProcessFacts& process, const Touch& touch, size_t limit) {
  // Room for the fixed fields and the closing of the record, so that it is always whole JSON.
  constexpr size_t kFixed = 640;
  const size_t field = limit > 4 * kFixed ? (limit - kFixed) / 4 : kFixed / 4;
  constexpr char kLong[][7] = {"exe", "argv", "object", "caller"};
  bool cut[4] = {};

  out.put(R"({"v":1,"ts":)").put_decimal(process.seconds).put(".");
  for (uint32_t digit = 100000; digit != 0; digit /= 10) {
    out.put_decimal(process.microseconds / digit % 10);
  }
  put_number(out, R"(,"pid":)", process.pid);
  put_number(out, R"(,"ppid":)", process.parent_pid);
  put_number(out, R"(,"tid":)", process.thread_id);
  out.put(R"(,"exe":")");
  cut[0] = !out.put_json(process.executable, field);
  out.put(R"(","argv":[)");
  std::string_view rest = process.arguments;
  const size_t argv_start = out.view().size();
  while (!rest.empty() && !cut[1]) {
    const size_t used = out.view().size() - argv_start;
    if (used + 4 >= field) {
      cut[1] = true;
      break;
    }
    out.put(used != 0 ? ",\"" : "\"");
    cut[1] = !out.put_json(take_argument(rest), field - used - 4);
    out.put("\"");
  }
  out.put(R"(],"api":")").put_json(touch.api, 64);
  if (!touch.object.empty()) {
    out.put(R"(","object":")");
    cut[2] = !out.put_json(touch.object, field / 2);
  }
  const bool allowed = touch.event != EventKind::kNone;
  if (allowed) out.put(R"(","event":")").put(kEventNames[static_cast<int>(touch.event)]);
  out.put(allowed ? R"(","decision":"allow")" : R"(","decision":"deny")");
  if (touch.device >= 0) put_number(out, R"(,"device":)", static_cast<uint64_t>(touch.device));
  if (touch.result >= 0) put_number(out, R"(,"result":)", static_cast<uint64_t>(touch.result));
  out.put(R"(,"caller":")");
  if (touch.caller.module.empty()) {
    out.put("?");
  } else {
    cut[3] = !out.put_json(touch.caller.module, field);
    out.put("+").put_hex(touch.caller.offset);
  }
  out.put("\"");
  bool any = false;
  for (int i = 0; i < 4; ++i) {
    if (!cut[i]) continue;
    out.put(any ? ",\"" : R"(,"cut":[")").put(kLong[i]).put("\"");
    any = true;
  }
  out.put(any ? "]}\n" : "}\n");
}

}  // namespace cudaguard
