// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/format.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

constexpr std::pair<char, const char*> kEntities[] = {
    {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};

/// The text is printable, because XML 1.0 allows no control characters, not even escaped.
std::string xml(std::string_view text) {
  std::string result;
  bool first = true;
  for (; first || !text.empty(); first = false) {
    const std::string_view line = head(text, text.find('\n'));
    for (const char c : printable(line, SIZE_MAX)) {
      const auto* entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                        [c](const auto& row) { return row.first == c; });
      result += entity == std::end(kEntities) ? std::string(1, c) : entity->second;
    }
    if (line.size() < text.size()) result += "\n";
    text = tail(text, line.size() + 1);
  }
  return result;
}

std::string attribute(const char* name, std::string_view value) {
  return " " + std::string(name) + "=\"" + xml(value) + "\"";
}

std::string seconds(double value) {
  std::array<char, 32> text = {};
  snprintf(text.data(), text.size(), "%.3f", value < 0 ? 0 : value);
  return text.data();
}

/// What is known about the guard in the programs; empty if it was in all.
std::string what_was_guarded(const TreeTruth& tree) {
  using Value = TreeTruth::Value;
  if (tree.value == Value::kAllGuarded && tree.doubts.empty()) return {};
  std::string text = tree.value == Value::kNotWatched ? "not known" : account_line(tree);
  if (!tree.doubts.empty()) text += "; in doubt: " + joined(tree.doubts, "; ");
  return text;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

std::string junit_of(const Verdict& verdict, const std::string& text) {
  const bool failed = verdict.status != 0;
  const bool incomplete = verdict.result == Verdict::Result::kIncomplete;
  const std::string guarded = what_was_guarded(verdict.tree);
  const std::string command = joined(verdict.command, " ");
  const auto test = [&](const std::string& name, const std::string& inside) {
    return "<testcase" + attribute("classname", command) + attribute("name", name) +
           attribute("time", seconds(inside.empty() ? 0 : verdict.ended - verdict.started)) + ">" +
           inside + "</testcase>\n";
  };
  const std::string headline = "cudaguard: " + result_line(verdict);
  const auto outcome = [&](const char* element, const char* type, const std::string& message) {
    return "<" + std::string(element) + attribute("message", message) + attribute("type", type) +
           ">" + xml(text) + "</" + element + ">";
  };
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite";
  out += attribute("name", "cudaguard verify") + attribute("tests", "3") +
         attribute("failures", std::to_string((verdict.asked != 0 ? 1 : 0) + (failed ? 1 : 0))) +
         attribute("errors", incomplete ? "1" : "0") +
         attribute("skipped", guarded.empty() ? "0" : "1") +
         attribute("time", seconds(verdict.ended - verdict.started)) +
         attribute("timestamp", utc_time(verdict.started, "%Y-%m-%dT%H:%M:%S")) +
         attribute("hostname", host_name()) + ">\n";
  out += test("no process asks for " + denied_names(verdict.deny),
              verdict.asked != 0 ? outcome("failure", "asked", headline)
              : incomplete       ? outcome("error", "incomplete", headline)
                                 : "");
  out += test("the program succeeds",
              failed ? outcome("failure", "program", text_of_end(verdict.status)) : "");
  out += test("every process is guarded",
              guarded.empty() ? "" : "<skipped" + attribute("message", guarded) + "/>");
  out += "<system-out>" + xml(text) + "</system-out>\n</testsuite>\n</testsuites>\n";
  return out;
}

}  // namespace cudaguard::launcher
