// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <vector>

#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/print/json.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

constexpr char kPage[] =
#include "page.inc"
    ;
constexpr size_t kStacks = 40;
constexpr size_t kGroups = 100;      // of one kind
constexpr size_t kProcesses = 4000;  // of records: a cluster has hundreds of thousands

void fill(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

std::string page_of(const std::string& document, const std::string& text) {
  std::string shown;
  for (const char c : text) shown += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  std::string page = kPage;
  // Fills in the last mark first, so that inserted text is not searched. Without '<', the document
  // cannot end an element or begin a comment.
  fill(page, "{{document}}", escaped(document, '<'));
  fill(page, "{{text}}", shown);
  return page;
}

void put_groups(Json& json, const Findings& findings, const ByWord& by) {
  const std::vector<Group> groups = groups_of(findings, by.by);
  json.key(by.word.data())
      .begin_object()
      .field("count", groups.size())
      .objects(
          "rows", groups, [&](const Group& group) { put(json, group); }, kGroups)
      .end_object();
}

}  // namespace

std::string page_of_verdict(const Verdict& verdict, const std::string& text) {
  return page_of(document(verdict, 0, kStacks), text);
}

std::string page_of_records(const Findings& findings, const std::string& title,
                            const std::string& text) {
  Group all;
  for (const Group& host : groups_of(findings, By::kHost)) {
    note_times(host.first, host.last, all);
    all.asking += host.asking;
  }
  Json json;
  json.begin_object().field("cudaguard", CUDAGUARD_VERSION).field("title", title);
  json.field_or_null("first", all.first)
      .field_or_null("last", all.last)
      .field("asking", all.asking);
  json.field("process_count", findings.processes.size()).key("groups").begin_object();
  for (const ByWord& by : kByWords) put_groups(json, findings, by);
  json.end_object();
  put_findings(json, findings, kStacks, kProcesses, false);
  put_records(json, findings);
  json.end_object();
  return page_of(json.text(), text);
}

}  // namespace cudaguard::launcher
