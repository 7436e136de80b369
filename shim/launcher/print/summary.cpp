// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kLeastCommand = 16;
constexpr size_t kMostName = 36;
constexpr size_t kMostRows = 100;
constexpr size_t kMostLines = 20;     // of who asked, of lists of devices
constexpr size_t kMostNumbers = 800;  // characters of process ids below a row
constexpr size_t kPidWidth = 7;       // 4194304 is Linux's last
constexpr std::string_view kNothing = "-";
constexpr std::string_view kIndent = "  ";

enum Column { kBy, kContext, kWorked, kNvml, kTried, kRefused, kFacts };
constexpr std::array<std::string_view, kFacts> kTitles = {
    "initialised by", "context on", "worked", "NVML", "tried", "refused"};

using Facts = std::array<std::string, kFacts>;
using Widths = std::array<size_t, kFacts>;  ///< 0 for one that has nothing in it

/// Processes that cannot be told apart.
struct Row {
  std::string command;
  Facts facts;
  std::vector<uint32_t> pids;
  std::set<std::string> hosts;
};

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

template <typename List, typename Show>
std::string joined(const List& list, std::string_view between, Show show) {
  std::string text;
  for (const auto& item : list) text.append(text.empty() ? "" : between).append(show(item));
  return text;
}

std::string first_of(const Texts& list) {
  if (list.empty()) return {};
  std::string text = printable(list[0], kMostName);
  if (list.size() > 1) text += " and " + std::to_string(list.size() - 1) + " more";
  return text;
}

Facts facts_of(const ObservedProcess& process) {
  Facts facts;
  facts[kBy] = process.initialised ? printable(process.by, kMostName) : "";
  facts[kContext] = printable(
      joined(process.contexts, ",", [](int device) { return std::to_string(device); }), kMostName);
  facts[kWorked] = process.worked ? "yes" : "";
  facts[kNvml] = process.nvml ? "yes" : "";
  facts[kTried] = first_of(process.tried);
  facts[kRefused] = first_of(process.refused);
  return facts;
}

Widths widths_of(const Findings& findings) {
  Widths widths = {};
  for (const ObservedProcess& process : findings.processes) {
    const Facts facts = facts_of(process);
    for (size_t i = 0; i < kFacts; ++i) widths[i] = std::max(widths[i], facts[i].size());
  }
  for (size_t i = 0; i < kFacts; ++i) {
    if (widths[i] != 0) widths[i] = std::max(widths[i], kTitles[i].size());
  }
  return widths;
}

/// In the order of each one's first process.
std::vector<Row> rows_of(const Findings& findings, const Widths& widths) {
  size_t used = 2 * kIndent.size() + kPidWidth;
  for (const size_t width : widths) used += width == 0 ? 0 : kIndent.size() + width;
  const size_t most = std::max(kLeastCommand, kColumns - std::min(kColumns, used));
  std::vector<Row> rows;
  std::map<std::string, size_t> places;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    Facts facts = facts_of(process);
    std::string command = printable(process.command, most);
    std::string key = command + '\n' + process.told;
    for (const std::string& fact : facts) key.append("\n").append(fact);
    const auto [place, is_new] = places.try_emplace(std::move(key), rows.size());
    if (is_new) rows.push_back({std::move(command), std::move(facts), {}, {}});
    rows[place->second].pids.push_back(process.pid);
    rows[place->second].hosts.insert(process.host);
  }
  return rows;
}

void put_numbers(std::string& out, const Row& row, bool hosts) {
  std::string text = hosts
                         ? joined(row.hosts, " ", [](const auto& host) { return printable(host); })
                         : id_ranges(row.pids);
  if (text.size() > kMostNumbers) text = text.substr(0, text.rfind(' ', kMostNumbers)) + " ...";
  const std::string start(kIndent.size() + kPidWidth, ' ');
  add_wrapped(out, start + (hosts ? "  on " : "  pids "), text);
}

void put_row(std::string& out, const Row& row, size_t command_width, const Widths& widths,
             bool hosts) {
  const std::string number =
      row.pids.size() == 1 ? std::to_string(row.pids[0]) : std::to_string(row.pids.size()) + "x";
  std::string line(kIndent);
  line.append(kPidWidth - std::min(kPidWidth, number.size()), ' ').append(number);
  line.append(kIndent).append(padded(row.command, command_width));
  for (size_t i = 0; i < kFacts; ++i) {
    if (widths[i] == 0) continue;
    line.append(kIndent).append(
        padded(row.facts[i].empty() ? std::string(kNothing) : row.facts[i], widths[i]));
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out.append(line).append("\n");
  if (hosts || row.pids.size() > 1) put_numbers(out, row, hosts);
}

void put_more(std::string& out, size_t all, size_t shown, std::string_view what) {
  if (all <= shown) return;
  out.append(kIndent).append("... and ").append(std::to_string(all - shown)).append(" more ");
  out.append(what).append("\n");
}

void put_table(std::string& out, const Findings& findings) {
  const Widths widths = widths_of(findings);
  std::vector<Row> rows = rows_of(findings, widths);
  size_t command_width = 7;
  std::set<std::string_view> hosts;
  for (const Row& row : rows) {
    command_width = std::max(command_width, row.command.size());
    hosts.insert(row.hosts.begin(), row.hosts.end());
  }
  std::string titles(kIndent);
  titles.append(kPidWidth - 3, ' ').append("pid  ").append(padded("process", command_width));
  for (size_t i = 0; i < kFacts; ++i) {
    if (widths[i] != 0) titles.append(kIndent).append(padded(std::string(kTitles[i]), widths[i]));
  }
  titles.erase(titles.find_last_not_of(' ') + 1);
  out.append(titles).append("\n");
  const size_t all = rows.size();
  if (all > kMostRows) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.pids.size() > b.pids.size(); });
    rows.resize(kMostRows);
  }
  for (const Row& row : rows) put_row(out, row, command_width, widths, hosts.size() > 1);
  put_more(out, all, rows.size(), "rows");
}

/// Which GPUs the devices' numbers stand for, where there is a list.
void put_told(std::string& out, const Findings& findings) {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> lists;
  std::map<std::string, size_t> places;
  for (const ObservedProcess& process : findings.processes) {
    if (process.told.empty()) continue;
    const auto [place, is_new] = places.try_emplace(process.told, lists.size());
    if (is_new) lists.push_back({process.told, {}});
    lists[place->second].second.push_back(process.pid);
  }
  const size_t all = lists.size();
  lists.resize(std::min(all, kMostLines));
  for (const auto& [told, pids] : lists) {
    std::string words;
    size_t number = 0;
    for (std::string_view rest = told; !rest.empty(); ++number) {
      words.append(words.empty() ? "" : " ").append(std::to_string(number)).append("=");
      words.append(printable(take_entry(rest), kColumns));
    }
    const std::string whose = all == 1 ? "" : "of " + printable(id_ranges(pids), kMostName) + " ";
    add_wrapped(out, "  devices " + whose, words);
  }
  put_more(out, all, lists.size(), "lists of devices");
}

/// The user's own lines, those of the most processes first.
void put_lines(std::string& out, const Findings& findings) {
  struct Line {
    std::set<std::string> apis;
    std::vector<size_t> processes;
  };
  std::map<std::string, Line> lines;
  for (const Toucher& toucher : findings.touchers) {
    if (toucher.line.empty()) continue;
    Line& line =
        lines[printable(toucher.line) + " through " + printable(toucher.library, kMostName)];
    line.apis.insert(printable(toucher.api, kMostName));
    line.processes.insert(line.processes.end(), toucher.processes.begin(), toucher.processes.end());
  }
  std::vector<std::pair<size_t, std::string>> rows;
  for (auto& [who, line] : lines) {
    std::sort(line.processes.begin(), line.processes.end());
    const auto end = std::unique(line.processes.begin(), line.processes.end());
    const auto count = static_cast<size_t>(end - line.processes.begin());
    rows.emplace_back(count, who + ": " + joined(line.apis, ", ", [](const auto& api) {
                               return api;
                             }) + (count == 1 ? "" : ", " + std::to_string(count) + " processes"));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const size_t all = rows.size();
  rows.resize(std::min(all, kMostLines));
  for (const auto& [count, row] : rows) add_wrapped(out, "  asked by ", row);
  put_more(out, all, rows.size(), "lines that asked");
}

std::string totals(const std::deque<ObservedProcess>& processes) {
  const auto count = [&](auto test) {
    return std::to_string(std::count_if(processes.begin(), processes.end(), test));
  };
  const auto all = std::count_if(processes.begin(), processes.end(),
                                 [](const auto& process) { return process.asked(); });
  if (all == 0) return "cudaguard: no process was seen to ask for CUDA or NVML\n";
  std::string text =
      "cudaguard: " + std::to_string(all) + (all == 1 ? " process asked" : " processes asked");
  std::string_view before = ": ";
  const auto put = [&](const std::string& number, std::string_view what) {
    if (number == "0") return;
    text.append(before).append(number).append(" ").append(what);
    before = ", ";
  };
  put(count([](const auto& process) { return process.initialised; }), "initialised CUDA");
  put(count([](const auto& process) { return !process.contexts.empty(); }), "held a context");
  put(count([](const auto& process) { return process.worked; }), "worked");
  put(count([](const auto& process) { return process.nvml; }), "used NVML");
  put(count([](const auto& process) { return process.found_none; }), "found none");
  put(count([](const auto& process) { return process.failed; }), "failed");
  put(count([](const auto& process) { return !process.refused.empty(); }), "refused");
  return text + "\n";
}

}  // namespace

std::string summary(const Findings& findings, const std::string& left, const std::string& idle) {
  std::string text = totals(findings.processes);
  const auto asked = [](const ObservedProcess& process) { return process.asked(); };
  if (std::any_of(findings.processes.begin(), findings.processes.end(), asked)) {
    put_table(text, findings);
    put_told(text, findings);
    put_lines(text, findings);
  }
  if (!idle.empty()) {
    text += "  " + idle + ":\n    put cudaguard run behind it, in front of the program that does\n";
  }
  if (!left.empty()) text += "  not waited for: " + left + "\n";
  return text + what_was_left_out(findings);
}

std::string what_was_left_out(const Findings& findings) {
  std::string text;
  if (findings.torn != 0) {
    text += "  records: " + grouped(findings.torn) +
            " cut short (the writer was killed, or the disk is full)\n";
  }
  if (findings.not_understood != 0) {
    text += "  records: " + counted(findings.not_understood, "line") +
            " left out that no guard has written\n";
  }
  return text;
}

}  // namespace cudaguard::launcher
