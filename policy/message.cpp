// SPDX-License-Identifier: Apache-2.0
#include "policy/message.h"

#include <cerrno>

namespace cudaguard {

namespace {

constexpr size_t kShownValue = 80;

Text& start(Text& out, uint32_t pid) { return out.put("cudaguard[").put_decimal(pid).put("]: "); }

std::string_view meaning(int error) {
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
      return {};
  }
}

}  // namespace

void write_denied(Text& out, uint32_t pid, const Config& config, const Touch& touch) {
  const bool nvml = touch.api.starts_with("nvml");
  start(out, pid)
      .put(nvml ? "no GPU to see" : "no CUDA here")
      .put(" (policy ")
      .put(name_of(config.policy))
      .put("; ");
  if (config.log == Log::kAll) out.put(touch.api).put(" ");
  out.put("asked by ");
  if (touch.caller.module.empty()) {
    out.put("code outside any file");
  } else {
    out.put_printable(base_name(touch.caller.module), kShownValue);
  }
  out.put(config.privileged ? ")\n" : "); CUDAGUARD_POLICY=OFF lifts it\n");
}

void write_complaint(Text& out, uint32_t pid, const Complaint& complaint) {
  start(out, pid)
      .put(complaint.variable)
      .put("=\"")
      .put_printable(complaint.value, kShownValue)
      .put("\" is not accepted (accepted: ")
      .put(complaint.accepted)
      .put("); ")
      .put(complaint.instead)
      .put("\n");
}

void write_missing_standin(Text& out, uint32_t pid, std::string_view file, std::string_view why) {
  start(out, pid)
      .put_printable(file, kMaxLine / 2)
      .put(" ")
      .put(why)
      .put("; answering as on a machine without a driver\n");
}

void write_report_failed(Text& out, uint32_t pid, std::string_view path, int error) {
  start(out, pid).put("CUDAGUARD_REPORT=\"").put_printable(path, kMaxLine / 2).put("\": ");
  const std::string_view text = meaning(error);
  if (text.empty()) {
    out.put("errno ").put_decimal(static_cast<uint64_t>(error));
  } else {
    out.put(text);
  }
  out.put(" (accepted: a file that can be appended to, or /dev/stderr); no report\n");
}

void write_record(Text& out, const ProcessFacts& process, const Touch& touch,
                  std::string_view decision, size_t limit) {
  // Room for the fixed fields and the closing of the record, so that it is always whole JSON.
  constexpr size_t kFixed = 640;
  const size_t field = limit > 4 * kFixed ? (limit - kFixed) / 4 : kFixed / 4;
  bool cut_exe = false;
  bool cut_argv = false;
  bool cut_caller = false;
  bool cut_object = false;

  out.put(R"({"v":1,"ts":)").put_decimal(process.seconds).put(".");
  for (uint32_t digit = 100000; digit != 0; digit /= 10) {
    out.put_decimal(process.microseconds / digit % 10);
  }
  out.put(R"(,"pid":)").put_decimal(process.pid);
  out.put(R"(,"ppid":)").put_decimal(process.parent_pid);
  out.put(R"(,"tid":)").put_decimal(process.thread_id);
  out.put(R"(,"exe":")");
  cut_exe = !out.put_json(process.executable, field);
  out.put(R"(","argv":[)");
  std::string_view rest = process.arguments;
  const size_t argv_start = out.view().size();
  while (!rest.empty()) {
    const size_t end = rest.find('\0');
    const std::string_view argument = head(rest, end);
    const size_t used = out.view().size() - argv_start;
    if (used + 4 >= field) {
      cut_argv = true;
      break;
    }
    if (used != 0) out.put(",");
    out.put("\"");
    cut_argv = !out.put_json(argument, field - used - 4);
    out.put("\"");
    if (cut_argv || end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  out.put(R"(],"api":")").put_json(touch.api, 64);
  if (!touch.object.empty()) {
    out.put(R"(","object":")");
    cut_object = !out.put_json(touch.object, field / 2);
  }
  out.put(R"(","decision":")").put(decision);
  out.put(R"(","caller":")");
  if (touch.caller.module.empty()) {
    out.put("?");
  } else {
    cut_caller = !out.put_json(touch.caller.module, field);
    out.put("+").put_hex(touch.caller.offset);
  }
  out.put("\"");
  if (cut_exe || cut_argv || cut_caller || cut_object) {
    out.put(R"(,"cut":[)");
    bool first = true;
    const auto name = [&](bool cut, std::string_view text) {
      if (!cut) return;
      out.put(first ? "\"" : ",\"").put(text).put("\"");
      first = false;
    };
    name(cut_exe, "exe");
    name(cut_argv, "argv");
    name(cut_object, "object");
    name(cut_caller, "caller");
    out.put("]");
  }
  out.put("}\n");
}

}  // namespace cudaguard
