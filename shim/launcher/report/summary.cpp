// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/summary.h"

#include <algorithm>
#include <array>
#include <map>

#include "policy/text.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kLeastCommand = 16;
constexpr size_t kMostName = 36;
constexpr size_t kPidWidth = 7;  // 4194304 is Linux's last
constexpr std::string_view kNothing = "-";
constexpr std::string_view kIndent = "  ";

enum Column { kBy, kContext, kWorked, kNvml, kTried, kRefused, kFacts };
constexpr std::array<std::string_view, kFacts> kTitles = {
    "initialised by", "context on", "worked", "NVML", "tried", "refused"};

struct Row {
  std::string command;
  std::array<std::string, kFacts> facts;
  std::string told;
  std::vector<uint32_t> pids;
};

std::string cut(std::string_view text, size_t most) {
  std::string shown = printable(text);
  if (shown.size() > most) shown.replace(most - 3, std::string::npos, "...");
  return shown;
}

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

std::string first_of(const std::vector<std::string>& list) {
  if (list.empty()) return {};
  std::string text = cut(list[0], kMostName);
  if (list.size() > 1) text += " and " + std::to_string(list.size() - 1) + " more";
  return text;
}

Row row_of(const ObservedProcess& process) {
  Row row;
  row.command = process.command;
  row.facts[kBy] = process.initialised ? cut(process.by, kMostName) : "";
  row.facts[kContext] = cut(
      joined(process.contexts, ",", [](int device) { return std::to_string(device); }), kMostName);
  row.facts[kWorked] = process.worked ? "yes" : "";
  row.facts[kNvml] = process.nvml ? "yes" : "";
  row.facts[kTried] = first_of(process.tried);
  row.facts[kRefused] = first_of(process.refused);
  row.told = process.told;
  row.pids = {process.pid};
  return row;
}

/// 0 for one that has nothing in it.
std::array<size_t, kFacts> widths_of(const std::vector<Row>& rows) {
  std::array<size_t, kFacts> widths = {};
  for (size_t i = 0; i < kFacts; ++i) {
    for (const Row& row : rows) widths[i] = std::max(widths[i], row.facts[i].size());
    if (widths[i] != 0) widths[i] = std::max(widths[i], kTitles[i].size());
  }
  return widths;
}

/// Rows with the same text become one, at the place of the first.
std::vector<Row> merged(const std::vector<Row>& rows) {
  std::vector<Row> result;
  std::map<std::string, size_t> places;
  for (const Row& row : rows) {
    std::string key = row.command + '\n' + row.told;
    for (const std::string& fact : row.facts) key.append("\n").append(fact);
    const auto [place, is_new] = places.try_emplace(key, result.size());
    if (is_new) {
      result.push_back(row);
    } else {
      result[place->second].pids.push_back(row.pids[0]);
    }
  }
  return result;
}

/// "3 7-12 15".
std::string ranges(std::vector<uint32_t> pids) {
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  std::string text;
  for (size_t i = 0; i < pids.size();) {
    size_t last = i;
    while (last + 1 < pids.size() && pids[last + 1] == pids[last] + 1) ++last;
    text.append(text.empty() ? "" : " ").append(std::to_string(pids[i]));
    if (last != i) text.append("-").append(std::to_string(pids[last]));
    i = last + 1;
  }
  return text;
}

void put_row(std::string& out, const Row& row, size_t command_width,
             const std::array<size_t, kFacts>& widths) {
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
  if (row.pids.size() > 1) {
    add_wrapped(out, std::string(kIndent.size() + kPidWidth, ' ') + "  pids ", ranges(row.pids));
  }
}

void put_table(std::string& out, std::vector<Row>& rows) {
  const std::array<size_t, kFacts> widths = widths_of(rows);
  size_t used = 2 * kIndent.size() + kPidWidth;
  for (const size_t width : widths) used += width == 0 ? 0 : kIndent.size() + width;
  const size_t most = std::max(kLeastCommand, kColumns - std::min(kColumns, used));
  size_t command_width = 7;
  for (Row& row : rows) {
    row.command = cut(row.command, most);
    command_width = std::max(command_width, row.command.size());
  }
  std::string titles(kIndent);
  titles.append(kPidWidth - 3, ' ').append("pid  ").append(padded("process", command_width));
  for (size_t i = 0; i < kFacts; ++i) {
    if (widths[i] != 0) titles.append(kIndent).append(padded(std::string(kTitles[i]), widths[i]));
  }
  titles.erase(titles.find_last_not_of(' ') + 1);
  out.append(titles).append("\n");
  rows = merged(rows);
  for (const Row& row : rows) put_row(out, row, command_width, widths);
}

/// Which GPUs the devices' numbers stand for, where there is a list.
void put_told(std::string& out, const std::vector<Row>& rows) {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> lists;
  for (const Row& row : rows) {
    if (row.told.empty()) continue;
    auto found = std::find_if(lists.begin(), lists.end(),
                              [&](const auto& list) { return list.first == row.told; });
    if (found == lists.end()) found = lists.insert(lists.end(), {row.told, {}});
    found->second.insert(found->second.end(), row.pids.begin(), row.pids.end());
  }
  for (const auto& [told, pids] : lists) {
    std::string words;
    size_t number = 0;
    for (std::string_view rest = told; !rest.empty(); ++number) {
      words.append(words.empty() ? "" : " ").append(std::to_string(number)).append("=");
      words.append(cut(take_entry(rest), kColumns));
    }
    const std::string whose = lists.size() == 1 ? "" : "of " + ranges(pids) + " ";
    add_wrapped(out, "  devices " + whose, words);
  }
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
  std::vector<Row> rows;
  for (const ObservedProcess& process : findings.processes) {
    if (process.asked()) rows.push_back(row_of(process));
  }
  if (!rows.empty()) {
    put_table(text, rows);
    put_told(text, rows);
  }
  if (!idle.empty()) {
    text += "  " + idle + ":\n    put cudaguard run behind it, in front of the program that does\n";
  }
  if (!left.empty()) text += "  not waited for: " + left + "\n";
  if (const size_t lines = findings.not_understood; lines != 0) {
    text += "  left out: " + std::to_string(lines) + (lines == 1 ? " line" : " lines") +
            " of the report that no guard has written\n";
  }
  if (const size_t torn = findings.torn; torn != 0) {
    text += "  torn: " + std::to_string(torn) + (torn == 1 ? " record" : " records") +
            ", whose writers were killed\n";
  }
  return text;
}

}  // namespace cudaguard::launcher
