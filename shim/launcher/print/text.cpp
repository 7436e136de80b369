// SPDX-License-Identifier: Apache-2.0
#include "policy/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/model.h"
#include "shim/launcher/format.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostCommand = 60;
constexpr size_t kMostName = 36;
constexpr size_t kMostRows = 100;
constexpr size_t kMostLines = 20;        ///< of callers, of lists of devices
constexpr size_t kMostNumbers = 800;     ///< characters of process ids below a row
constexpr size_t kTime = 16;             ///< "2026-11-22 07:28"
constexpr const char* kFact = "      ";  ///< before the facts about a process

std::string first_of(const std::vector<SharedText>& list) {
  if (list.empty()) return {};
  std::string text = printable(*list[0], kMostName);
  if (list.size() > 1) text += " and " + std::to_string(list.size() - 1) + " more";
  return text;
}

/// "initialised CUDA by libcudart.so.12, context on 0,1, worked"
std::string facts_of(const ObservedProcess& process) {
  std::vector<std::string> facts;
  if (process.initialised) {
    facts.push_back("initialised CUDA by " + printable(process.by, kMostName));
  }
  if (process.initialised && process.contexts.empty()) {
    facts.emplace_back(process.memory ? "GPU memory taken" : "no context seen");
  }
  if (!process.contexts.empty()) {
    std::vector<std::string> devices;
    for (const int device : process.contexts) devices.push_back(std::to_string(device));
    facts.push_back("context on " + printable(joined(devices, ","), kMostName));
  }
  if (process.worked) facts.emplace_back("worked");
  if (process.nvml) facts.emplace_back("used NVML");
  if (!process.tried.empty()) facts.push_back(first_of(process.tried));
  if (!process.refused.empty()) facts.push_back("refused " + first_of(process.refused));
  return facts.empty() ? "-" : joined(facts, ", ");
}

/// Processes with the same command, facts and list of devices.
struct Alike {
  std::string command;
  std::string facts;
  std::vector<uint32_t> pids;
  std::set<std::string> hosts;
};

/// In the order of each row's first process.
std::vector<Alike> alike_processes(const Findings& findings) {
  std::vector<Alike> rows;
  std::map<std::array<std::string, 3>, size_t> places;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    std::string command = printable(process.command.shown(), kMostCommand);
    std::string facts = facts_of(process);
    const auto [place, is_new] =
        places.try_emplace({command, facts, process.visible_devices}, rows.size());
    if (is_new) rows.push_back({std::move(command), std::move(facts), {}, {}});
    rows[place->second].pids.push_back(process.pid);
    rows[place->second].hosts.insert(process.host);
  }
  return rows;
}

/// Omits the process ids if they are of several hosts, because they identify nothing.
void put_alike(std::string& out, const Alike& row, bool many_hosts) {
  const size_t count = row.pids.size();
  const std::string id = " (" + std::to_string(row.pids[0]) + ")";
  add_row(out, "  " + (count == 1 ? row.command + id : std::to_string(count) + "x " + row.command));
  add_wrapped(out, kFact, row.facts);
  if (count == 1 && !many_hosts) return;
  std::string text = many_hosts ? "on " + printable(joined(row.hosts, " "), 2 * kMostNumbers)
                                : "pids " + id_ranges(row.pids);
  add_wrapped(out, kFact, whole_words(std::move(text), kMostNumbers));
}

void put_findings_processes(std::string& out, const Findings& findings) {
  std::vector<Alike> rows = alike_processes(findings);
  std::set<std::string_view> hosts;
  for (const Alike& row : rows) hosts.insert(row.hosts.begin(), row.hosts.end());
  const size_t all = rows.size();
  if (all > kMostRows) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.pids.size() > b.pids.size(); });
    rows.resize(kMostRows);
  }
  for (const Alike& row : rows) put_alike(out, row, hosts.size() > 1);
  add_more(out, all, rows.size(), "rows");
}

void put_sick_drivers(std::string& text, const Findings& findings) {
  if (findings.sick_drivers.empty()) return;
  text += "  --if-healthy started programs without CUDA on " +
          counted(findings.sick_drivers.size(), "host") + ":\n";
  const size_t shown = std::min(findings.sick_drivers.size(), kMostRows);
  for (size_t i = 0; i < shown; ++i) {
    const SickDriver& one = findings.sick_drivers[i];
    add_wrapped(text, "    " + printable(one.host) + "  " + counted(one.programs, "program") + "  ",
                printable(one.reason));
  }
  add_more(text, findings.sick_drivers.size(), shown, "hosts (--json has all)");
}

/// Prints which GPUs the device numbers mean, if there is a list.
void put_told(std::string& out, const Findings& findings) {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> lists;
  std::map<std::string, size_t> places;
  for (const ObservedProcess& process : findings.processes) {
    if (process.visible_devices.empty()) continue;
    const auto [place, is_new] = places.try_emplace(process.visible_devices, lists.size());
    if (is_new) lists.push_back({process.visible_devices, {}});
    lists[place->second].second.push_back(process.pid);
  }
  const size_t all = lists.size();
  lists.resize(std::min(all, kMostLines));
  for (const auto& [list, pids] : lists) {
    std::string words;
    size_t number = 0;
    for (std::string_view rest = list; !rest.empty(); ++number) {
      words.append(words.empty() ? "" : " ").append(std::to_string(number)).append("=");
      words.append(printable(take_entry(rest), kColumns));
    }
    const std::string whose = all == 1 ? "" : "of " + whole_words(id_ranges(pids), kMostName) + " ";
    add_wrapped(out, "  devices " + whose, words);
  }
  add_more(out, all, lists.size(), "lists of devices");
}

/// "asked by ", "asked for a context by "
void put_line(std::string& out, const Findings& findings, const Place& line,
              const std::string& name, bool context) {
  std::set<std::string> libraries;
  std::set<std::string> apis;
  std::set<size_t> processes;
  for (const size_t number : line.sites) {
    const CallSite& site = findings.sites[number];
    if ((site.asked == DriverApi::kContext) != context) continue;
    libraries.insert(printable(site.library, kMostName));
    apis.insert(printable(site.api, kMostName));
    processes.insert(site.processes.begin(), site.processes.end());
  }
  if (apis.empty()) return;
  add_wrapped(out, context ? "  asked for a context by " : "  asked by ",
              printable(name) + " through " + joined(libraries, ", ") + ": " + joined(apis, ", ") +
                  (processes.size() == 1 ? "" : ", " + counted(processes.size(), "process")));
}

/// Prints the user's own lines, those with the most processes first. What only queried and what
/// asked for a context are rows of their own.
void put_lines(std::string& out, const Findings& findings) {
  std::vector<const Place*> lines;
  std::map<std::string_view, size_t> places;
  for (const Place& place : findings.places) {
    if (!place.line.empty()) lines.push_back(&place);
    ++places[place.line];
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Place* a, const Place* b) {
    return a->processes.size() > b->processes.size();
  });
  const size_t all = lines.size();
  lines.resize(std::min(all, kMostLines));
  for (const bool context : {false, true}) {
    for (const Place* line : lines) {
      put_line(out, findings, *line, places[line->line] == 1 ? line->line : line->name, context);
    }
  }
  add_more(out, all, lines.size(), "lines that asked");
}

/// Prints the rules that gave these processes their policy.
void put_rules(std::string& out, const Findings& findings) {
  const auto has_rule = [](const ObservedProcess& process) { return process.rule != nullptr; };
  if (std::ranges::none_of(findings.processes, has_rule)) return;
  std::vector<Group> rules = groups_of(findings, By::kRule);
  std::erase_if(rules, [](const Group& rule) { return rule.name.empty(); });
  const size_t all = rules.size();
  rules.resize(std::min(all, kMostLines));
  for (const Group& rule : rules) {
    add_wrapped(out, "  rule ", printable(rule.name) + ": " + counted(rule.processes, "process"));
  }
  add_more(out, all, rules.size(), "rules");
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
  put(count([](const auto& process) { return process.found_none; }), "found no GPU");
  put(count([](const auto& process) { return process.failed; }), "failed");
  put(count([](const auto& process) { return !process.refused.empty(); }), "refused");
  return text + "\n";
}

std::string shown_time(double at) { return utc_time(at, "%Y-%m-%d %H:%M"); }

std::string cell(std::string text, size_t width) {
  text.insert(0, width - std::min(width, text.size()), ' ');
  return text + "  ";
}

/// A context means CUDA, too, so that word is left out, and a row has at most 100 columns.
std::string words_of(const std::set<DriverApi>& asked) {
  std::vector<std::string_view> words;
  words.reserve(asked.size());
  for (const DriverApi one : asked) {
    if (one == DriverApi::kCuda && asked.contains(DriverApi::kContext)) continue;
    words.emplace_back(word_of(one));
  }
  return joined(words, " ");
}

std::string shown_name(const std::string& name) { return name.empty() ? "?" : printable(name); }

/// The names are the last columns, because they may be long.
std::string table_of(const std::vector<Group>& groups, const Keys& keys) {
  const bool has_two = keys.size() > 1;
  size_t width = 3;
  size_t name_width = has_two ? keys[0].word.size() : 0;
  for (const Group& group : groups) {
    width = std::max(width, words_of(group.asked).size());
    if (has_two) name_width = std::max(name_width, shown_name(group.name).size());
  }
  const auto names = [&](std::string name, const std::string& second) {
    if (!has_two) return name;
    name.resize(name_width, ' ');
    return name + "  " + second;
  };
  std::string text;
  const auto put = [&](const std::string& processes, const std::string& asked, std::string what,
                       const std::string& first, const std::string& last, const std::string& name) {
    what.resize(width, ' ');
    text += "  " + cell(processes, 9) + cell(asked, 7) + what + "  " + cell(first, kTime) +
            cell(last, kTime) + name + "\n";
  };
  put("processes", "asked", "for", "first (UTC)", "last",
      names(std::string(keys[0].word), std::string(keys.back().word)));
  for (const Group& group : groups) {
    put(std::to_string(group.processes), std::to_string(group.asking), words_of(group.asked),
        shown_time(group.first), shown_time(group.last),
        names(shown_name(group.name), shown_name(group.second.value_or(""))));
  }
  return text;
}

}  // namespace

std::string what_was_left_out(const Findings& findings) {
  std::string text;
  if (findings.torn != 0) {
    text += "  records: " + grouped(findings.torn) +
            " cut short (the writer was killed, or the disk is full)\n";
  }
  if (findings.not_understood != 0) {
    text +=
        "  records: " + counted(findings.not_understood, "line") + " left out that " +
        (findings.not_understood == 1 ? "is no cudaguard record\n" : "are no cudaguard records\n");
  }
  return text;
}

std::string text_of_findings(const Findings& findings, const std::string& left,
                             const std::string& idle) {
  std::string text = totals(findings.processes);
  put_findings_processes(text, findings);
  put_told(text, findings);
  put_lines(text, findings);
  put_rules(text, findings);
  put_sick_drivers(text, findings);
  if (!idle.empty()) {
    text += "  " + idle +
            ":\n    start the program that needs it with cudaguard run, inside of that one\n";
  }
  if (!left.empty()) text += "  not waited for: " + left + "\n";
  return text + what_was_left_out(findings);
}

std::string what_was_read(const Findings& findings, const ReadFiles& read) {
  std::set<std::string_view> hosts;
  Group all;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.host.empty()) hosts.insert(process.host);
    note_times(process.first, process.last, all);
  }
  std::string text = counted(read.files, "file") + ", " + counted(findings.records, "record") +
                     " of " + counted(findings.processes.size(), "process");
  if (!hosts.empty()) text += " on " + counted(hosts.size(), "host");
  if (all.first == 0) return text;
  const std::string from = shown_time(all.first);
  const std::string to = shown_time(all.last);
  return text + ", " + from + (from == to ? "" : " to " + to) + " UTC";
}

std::string text_of_records(const Findings& findings, const ReadFiles& read, const Keys& by) {
  std::string text = "cudaguard: ";
  if (findings.records == 0) {
    text += "no records in " + counted(read.files, "file") + "\n" + what_was_left_out(findings);
  } else if (!by.empty()) {
    text += what_was_read(findings, read) + "\n";
    if (!findings.processes.empty()) text += table_of(groups_of(findings, by), by);
    put_sick_drivers(text, findings);
    text += what_was_left_out(findings);
  } else {
    text += what_was_read(findings, read) + "\n" + text_of_findings(findings);
  }
  if (findings.older != 0) {
    text += "  left out: " + counted(findings.older, "record") + " from before " +
            shown_time(findings.since) + " UTC\n";
  }
  if (read.compressed != 0) {
    text += "  left out: " + counted(read.compressed, "compressed file") +
            " (zcat FILE | cudaguard report - reads them)\n";
  }
  if (read.unreadable != 0) {
    text += "  left out: " + counted(read.unreadable, "unreadable path") + " (" + read.why + ")\n";
  }
  return text;
}

}  // namespace cudaguard::launcher
