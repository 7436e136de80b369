// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/ask_driver.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>

#include "policy/config.h"
#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/doctor/forbid_changes.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

using Outcome = DriverAnswer::Outcome;

NLOHMANN_JSON_SERIALIZE_ENUM(Outcome, {{Outcome::kFailed, "failed"},
                                       {Outcome::kNotTried, "not tried"},
                                       {Outcome::kAnswer, "answer"},
                                       {Outcome::kSignal, "signal"},
                                       {Outcome::kHang, "hang"}})

namespace {

struct ErrorRow {
  int code;
  const char* name;
  const char* text;
};
constexpr ErrorRow kErrors[] = {
#define CG_ERROR(code, name, text) {code, #name, text},
#include "shim/api/generated/driver_errors.inc"
#undef CG_ERROR
};

/// What the probe told.
struct Told {
  bool asks = false;        ///< it has come to cuInit
  bool lacks_init = false;  ///< there is none
  std::string noise;        ///< the first line of anybody else
};

/// A line of the probe's, behind its mark.
void read_line(std::istringstream line, DriverAnswer& answer, Told& told) {
  std::string key;
  int code = 0;
  int64_t value = 0;
  line >> key;
  if (key == "asks") told.asks = true;
  if (key == "no-cuInit") told.lacks_init = true;
  if (key == "gpu" && answer.gpus) {
    Gpu gpu;
    line >> gpu.uuid >> std::ws;
    if (gpu.uuid == "-") gpu.uuid.clear();
    std::getline(line, gpu.name);
    answer.gpus->push_back(std::move(gpu));
    return;
  }
  if (!(line >> code >> value)) return;
  if (key == "version" && code == 0) answer.version = static_cast<int>(value);
  if (key == "count" && code == 0) answer.gpus.emplace();
  if (key != "init") return;
  answer.code = code;
  answer.milliseconds = static_cast<int>(value / 1000);
  for (const ErrorRow& row : kErrors) {
    if (row.code != code) continue;
    answer.name = row.name;
    answer.text = row.text;
  }
}

Told read_lines(const ChildEnd& end, DriverAnswer& answer) {
  constexpr std::string_view kMark = "cudaguard-probe ";
  Told told;
  std::istringstream lines(end.err + "\n" + end.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kMark)) {
      if (told.noise.empty()) told.noise = line;
    } else if (!lines.eof()) {  // else it was cut short
      read_line(std::istringstream(line.substr(kMark.size())), answer, told);
    }
  }
  return told;
}

/// ld.so's words, without its "PROBE: ".
std::string reason_of_failure(const std::string& probe, const Told& told) {
  if (told.lacks_init) return "it has no cuInit";
  if (told.noise.empty()) return "the probe ended without an answer";
  std::string noise = told.noise;
  if (noise.starts_with(probe + ": ")) noise.erase(0, probe.size() + 2);
  std::replace(noise.begin(), noise.end(), '"', '\'');
  return printable(noise);
}

/// The driver's answer is asked for: not the guard's, nor that of anything else that is preloaded.
void leave_driver_alone(Variables& variables) {
  unset_loader_questions(variables);
  variables.unset("LD_PRELOAD");
  for (const VariableRow& row : kVariables) variables.unset(row.name);
  // A guard in /etc/ld.so.preload stays.
  variables.set(row_of(Variable::kPolicy).name, name_of(Policy::kOff));
}

/// Of a driver that cannot be killed: it must not hold other people's pipes open.
void keep_descriptors_here() {
  // close_range(2), of Linux 5.9, with CLOSE_RANGE_CLOEXEC, of 5.11.
  constexpr long kCloseRange = 436;
  if (syscall(kCloseRange, 3U, ~0U, 1U << 2) == 0) return;
  rlimit most = {};
  if (getrlimit(RLIMIT_NOFILE, &most) != 0) most.rlim_cur = 1024;
  const int end = static_cast<int>(std::min<rlim_t>(most.rlim_cur, 1 << 20));
  for (int fd = 3; fd < end; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

bool prepare_probe() {
  keep_descriptors_here();
  return forbid_changes();
}

std::string about(const DriverAnswer& answer) {
  const std::string time =
      answer.milliseconds ? " after " + std::to_string(*answer.milliseconds) + " ms" : "";
  std::string said;
  if (answer.code) {
    said = std::to_string(*answer.code);
    if (!answer.name.empty()) said += " " + answer.name + " (" + answer.text + ")";
    said += time;
  }
  switch (answer.outcome) {
    case Outcome::kAnswer:
      return said;
    case Outcome::kSignal:
      return (said.empty() ? "" : said + "; ") + "crash (" + answer.signal + ") " + answer.where;
    case Outcome::kHang:
      return said.empty() ? "no answer" + time + ", " + answer.where
                          : said + "; no answer " + answer.where;
    default:
      return Json(answer.outcome).get<std::string>() + ": " + answer.reason;
  }
}

Json json_of(const Gpus& gpus) {
  if (!gpus) return {};
  Json list = Json::array();
  for (const Gpu& gpu : *gpus) {
    list.push_back({{"uuid", or_null(gpu.uuid)}, {"name", or_null(gpu.name)}});
  }
  return list;
}

Lines lines_of(const char* name, const Gpus& gpus) {
  if (!gpus) return {};
  std::vector<std::string> texts = {gpus->empty() ? "none" : std::to_string(gpus->size())};
  for (const Gpu& gpu : *gpus) {
    texts.push_back(std::to_string(texts.size() - 1) + ": " +
                    (gpu.uuid.empty() ? "UUID not known" : printable(gpu.uuid)) +
                    (gpu.name.empty() ? "" : "  " + printable(gpu.name)));
  }
  return named(name, texts);
}

}  // namespace

DriverAnswer ask_driver(const std::string& probe, Variables variables, std::chrono::seconds limit) {
  leave_driver_alone(variables);
  signal(SIGCHLD, SIG_DFL);  // ignored, the child's end would not be told
  const ChildEnd end = run_child({probe}, std::move(variables), limit, prepare_probe);
  DriverAnswer answer;
  if (end.not_started != 0) {
    answer.reason =
        end.not_started == kHeldBack
            ? "this kernel has no seccomp filter, which keeps the driver from making device nodes"
            : printable(probe) + " cannot be started: " + strerror(end.not_started);
    return answer;
  }
  const Told told = read_lines(end, answer);
  answer.stuck = end.stuck;
  const bool ill = !end.in_time || WIFSIGNALED(end.status);
  if (ill) answer.where = answer.code ? "behind cuInit" : told.asks ? "in cuInit" : "before cuInit";
  if (!end.in_time) {
    answer.outcome = Outcome::kHang;
    if (!answer.code) answer.milliseconds = static_cast<int>(limit.count() * 1000);
  } else if (ill) {
    answer.outcome = Outcome::kSignal;
    const char* name = sigabbrev_np(WTERMSIG(end.status));
    answer.signal =
        std::string("SIG") + (name == nullptr ? std::to_string(WTERMSIG(end.status)) : name);
  } else if (answer.code) {
    answer.outcome = Outcome::kAnswer;
  } else {
    answer.outcome = Outcome::kFailed;
    answer.reason = reason_of_failure(probe, told);
  }
  return answer;
}

Rows rows_of(const DriverAnswer& answer, const Gpus& gpus) {
  const Json seen = json_of(answer.gpus);
  const Json there = json_of(gpus);
  std::string version;
  if (answer.version) {
    // 12020 is CUDA 12.2
    version = "for CUDA up to " + std::to_string(*answer.version / 1000) + "." +
              std::to_string(*answer.version % 1000 / 10);
  }
  Lines lines = named("cuInit", {about(answer), version});
  lines += lines_of("GPUs seen", answer.gpus);
  return {{"cuinit",
           {{"outcome", answer.outcome},
            {"reason", or_null(answer.reason)},
            {"where", or_null(answer.where)},
            {"stuck", answer.stuck == 0 ? Json() : Json(answer.stuck)},
            {"code", or_null(answer.code)},
            {"name", or_null(answer.name)},
            {"text", or_null(answer.text)},
            {"milliseconds", or_null(answer.milliseconds)},
            {"signal", or_null(answer.signal)},
            {"driver_version", or_null(answer.version)},
            {"gpus", seen}},
           lines},
          {"gpus", there, there == seen ? Lines() : lines_of("GPUs there", gpus)}};
}

}  // namespace cudaguard::launcher
