// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/doctor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "shim/launcher/elf/program.h"
#include "shim/launcher/format.h"
#include "shim/launcher/health/health.h"
#include "shim/launcher/message.h"
#include "shim/launcher/print/json.h"
#include "shim/launcher/print/output.h"

namespace cudaguard::launcher {

namespace {

std::chrono::seconds time_limit(const Variables& variables) {
  const char* value = variables.get(kDoctorTimeout.name);
  if (value == nullptr || *value == '\0') return std::chrono::seconds{10};
  const uint32_t seconds = seconds_of(value);
  if (seconds == 0) {
    throw Refusal(kRefused, std::string(kDoctorTimeout.name) + "=" + in_quotes(value) +
                                " is not accepted (accepted: " + kDoctorTimeout.accepted + ")");
  }
  return std::chrono::seconds{seconds};
}

/// Returns what put_up_fence(true, true) would return here. A child process tries it and ends, so
/// this process stays unchanged. Only the sign of `listener` is meaningful.
Fence try_fence() {
  struct Outcome {
    bool holds;
    bool was_there;
    bool no_new_privs;
    bool listens;
    bool devices;
    char why_no_devices[256];
    char clause[512];  // `unseen` if the fence holds, otherwise `why_not`
  };
  Fence fence;
  int ends[2];
  const bool piped = pipe2(ends, O_CLOEXEC) == 0;
  const pid_t child = piped ? fork() : -1;
  const int error = errno;
  if (child == 0) {
    fence = put_up_fence(true, true);
    Outcome outcome = {
        fence.holds, fence.was_there, fence.no_new_privs, fence.listener >= 0, fence.devices, {},
        {}};
    (fence.holds ? fence.unseen : fence.why_not).copy(outcome.clause, sizeof outcome.clause - 1);
    fence.why_no_devices.copy(outcome.why_no_devices, sizeof outcome.why_no_devices - 1);
    const ssize_t written = write(ends[1], &outcome, sizeof outcome);  // a pipe holds far more
    _exit(written < 0);
  }
  if (piped) close(ends[1]);
  Outcome outcome = {};
  const ssize_t got = child < 0 ? 0 : read(ends[0], &outcome, sizeof outcome);
  if (piped) close(ends[0]);
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (got != sizeof outcome) {
    fence.why_not = child < 0 ? std::string("it was not tried: ") + strerror(error)
                              : "a process that tried it was killed";
    return fence;
  }
  fence.holds = outcome.holds;
  fence.was_there = outcome.was_there;
  fence.no_new_privs = outcome.no_new_privs;
  fence.listener = outcome.listens ? 0 : -1;
  fence.devices = outcome.devices;
  fence.why_no_devices = outcome.why_no_devices;
  (fence.holds ? fence.unseen : fence.why_not) = outcome.clause;
  return fence;
}

const char* name_of(Question question) {
  constexpr const char* kNames[] = {"program", "installed", "driver"};
  return kNames[static_cast<size_t>(question)];
}

const char* name_of(State state) {
  constexpr const char* kNames[] = {"fact", "problem", "in part", "no"};
  return kNames[static_cast<size_t>(state)];
}

/// Returns the first finding in this state, or null.
const Finding* first(const FindingList& findings, State state) {
  const auto found = std::ranges::find(findings, state, &Finding::state);
  return found == findings.end() ? nullptr : &*found;
}

/// Returns why the program is not, or not completely, guarded; null if it is guarded.
const Finding* main_reason(const FindingList& findings) {
  const Finding* reason = first(findings, State::kNo);
  return reason != nullptr ? reason : first(findings, State::kInPart);
}

/// "heading            text": a row. Further lines of a row have no heading.
void add_row(std::string& text, std::string_view heading, const std::string& line) {
  constexpr size_t kHeadings = 19;
  std::string start(heading);
  start.resize(std::max(kHeadings, start.size() + 2), ' ');
  add_wrapped(text, start, line);
}

void add_rows(std::string& text, const FindingList& findings, Question question) {
  const Finding* in_the_answer = main_reason(findings);
  std::string before;
  text += "\n";
  for (const Finding& finding : findings) {
    if (finding.question != question || finding.state == State::kProblem) continue;
    if (&finding == in_the_answer) continue;
    const std::string heading = finding.state == State::kFact ? finding.id : "also";
    // A second executable gets a heading of its own.
    add_row(text, heading == before && heading != "executable" ? "" : heading, finding.text);
    before = heading;
  }
}

/// --gpu: returns 0 if the driver is healthy, 1 if not. Later launches use this answer.
int ask_health(const Options& options, const Variables& variables) {
  std::vector<TakenFile> taken;
  OutputFile file("--json", options.json_file, options.force, taken);
  HealthWish wish;
  wish.limit = time_limit(variables);
  wish.fresh = true;
  wish.name = "doctor --gpu";
  const Health health = check_health(wish, {}, variables);
  if (!health.asked) throw Refusal(kRefused, health.reason);
  if (file) {
    Json json(2);
    json.begin_object()
        .field("v", 1)
        .field("cudaguard", CUDAGUARD_VERSION)
        .field("healthy", health.healthy)
        .field_or_null("reason", health.reason)
        .field("gpus", health.gpus)
        .field("seconds", static_cast<double>(health.took.count()) / 1000)
        .end_object();
    file.write(json.text() + "\n");
  }
  if (!file.is_stdout()) {
    print(health.healthy
              ? "driver: healthy, with " + counted(static_cast<uint64_t>(health.gpus), "GPU") + "\n"
              : "driver: not healthy: " + health.reason + "\n");
  }
  return health.healthy ? 0 : 1;
}

}  // namespace

const char* verdict(const FindingList& findings) {
  const Finding* reason = main_reason(findings);
  return reason == nullptr ? "yes" : name_of(reason->state);
}

std::string guarded_line(const FindingList& findings) {
  const Finding* reason = main_reason(findings);
  return std::string("guarded: ") + verdict(findings) +
         (reason == nullptr ? "" : ", because " + reason->text);
}

int exit_code(const FindingList& findings) {
  if (first(findings, State::kNo) != nullptr) return 2;
  return first(findings, State::kInPart) != nullptr || first(findings, State::kProblem) != nullptr;
}

std::string as_text(const Document& document) {
  const FindingList& findings = document.findings;
  std::string text = document.answer + "\n";
  if (document.has_program) add_rows(text, findings, Question::kProgram);
  add_rows(text, findings, Question::kInstalled);
  add_rows(text, findings, Question::kDriver);
  const bool well = first(findings, State::kProblem) == nullptr;
  // The first line says why the program is not guarded.
  if (well) return std::string_view(verdict(findings)) == "no" ? text : text + "\nproblems: none\n";
  text += "\nproblems:\n";
  for (const Finding& finding : findings) {
    if (finding.state != State::kProblem) continue;
    add_wrapped(text, "  - ", finding.text + (finding.remedy.empty() ? "" : "; ") + finding.remedy);
  }
  return text;
}

std::string as_json(const Document& document) {
  Json json(2);
  json.begin_object().field("v", 2).field("cudaguard", CUDAGUARD_VERSION);
  json.field("answer", document.answer);
  if (document.has_program) json.field("guarded", verdict(document.findings));
  json.objects("findings", document.findings, [&](const Finding& finding) {
    json.field("id", finding.id)
        .field("question", name_of(finding.question))
        .field("state", name_of(finding.state))
        .field("text", finding.text);
    if (!finding.remedy.empty()) json.field("remedy", finding.remedy);
  });
  return json.field("exit_code", exit_code(document.findings)).end_object().text() + "\n";
}

int doctor(const Options& options, const char* const* environment) {
  const Variables variables(environment);
  if (options.gpu) return ask_health(options, variables);
  const std::chrono::seconds limit = time_limit(variables);
  const Installation installation = find_installation();
  const Machine machine = {variables, installation, try_fence(), look_at_own_files(installation),
                           limit};
  Document document;
  document.has_program = *options.program != nullptr;
  std::vector<TakenFile> taken;
  if (options.json_file && document.has_program) {
    const Program program = find_program(*options.program, variables.get("PATH"));
    taken = taken_by_program(program.files, options.program);
  }
  OutputFile json("--json", options.json_file, options.force, taken);
  // The program comes first, because it may not exist, and the driver may take long.
  if (document.has_program) {
    document.answer = ask_program(*options.program, machine, document.findings);
  }
  const Libraries libraries = find_libraries(machine);
  const std::string installed = ask_installed(machine, libraries, document.findings);
  const std::string driver = ask_driver(machine, libraries, document.findings);
  if (!document.has_program) document.answer = installed + "; " + driver;
  if (json) json.write(as_json(document));
  if (!json.is_stdout()) print(as_text(document));
  return exit_code(document.findings);
}

}  // namespace cudaguard::launcher
