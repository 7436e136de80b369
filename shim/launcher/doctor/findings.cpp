// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/findings.h"

#include <algorithm>
#include <string_view>

#include "shim/launcher/format.h"
#include "shim/launcher/print/json.h"

namespace cudaguard::launcher {

namespace {

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
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& row) { return row.state == state; });
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
  text += well ? "\nproblems: none\n" : "\nproblems:\n";
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

}  // namespace cudaguard::launcher
