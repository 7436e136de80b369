// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/text.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "policy/text.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/format.h"
#include "shim/launcher/print/json.h"
#include "shim/launcher/print/stack.h"

namespace cudaguard::launcher {

std::string denied_names(const std::set<DriverApi>& denied) {
  std::string names;
  for (const DriverApi one : denied) {
    names.append(names.empty() ? "" : " or ").append(name_of(one));
  }
  return names;
}

namespace {

constexpr size_t kMostPlaces = 20;
constexpr size_t kMostCommand = 60;
constexpr size_t kMostUnguarded = 20;
constexpr std::string_view kRow = "    ";  ///< before the rows of a toucher
constexpr size_t kMostName = 36;
constexpr size_t kMostRows = 100;
constexpr size_t kMostLines = 20;        ///< of callers, of lists of devices
constexpr size_t kMostNumbers = 800;     ///< characters of process ids below a row
constexpr size_t kTime = 16;             ///< "2026-11-22 07:28"
constexpr const char* kFact = "      ";  ///< before the facts about a process

template <typename List>
std::string joined(const List& list, std::string_view between) {
  std::string text;
  for (const auto& item : list) text.append(text.empty() ? "" : between).append(item);
  return text;
}

void put_more(std::string& out, size_t all, size_t shown, std::string_view what) {
  if (all <= shown) return;
  out.append("  ... and ").append(std::to_string(all - shown)).append(" more ");
  out.append(what).append("\n");
}

/// "64x python3 w.py (71-134)"
void put_processes(std::string& out, const Verdict& verdict, std::string_view label,
                   const std::vector<size_t>& numbers) {
  std::map<std::string, std::vector<uint32_t>> commands;
  for (const size_t number : numbers) {
    const ObservedProcess& process = verdict.findings.processes[number];
    commands[printable(process.command, kMostCommand)].push_back(process.pid);
  }
  std::vector<std::string> rows;
  rows.reserve(commands.size());
  for (const auto& [command, pids] : commands) {
    const std::string times = pids.size() == 1 ? "" : std::to_string(pids.size()) + "x ";
    rows.push_back(times + command + " (" + id_ranges(pids) + ")");
  }
  put_frames(out, label, rows);
}

/// "cuInit by libc10_cuda.so"
std::string call_of(const CallSite& toucher) {
  if (toucher.around_guard()) {
    return "ioctl " + printable(toucher.object) + " to NVIDIA's driver";
  }
  std::string call = printable(toucher.api);
  if (!toucher.object.empty()) call += " of " + printable(base_name(toucher.object));
  if (!toucher.library.empty()) call += " by " + printable(toucher.library);
  if (!toucher.denied) call += " (its own policy allowed it)";
  return call;
}

/// The attempts of a place that count. `first` shows its stack; if the place fails, it is one of
/// the failing attempts.
struct Calls {
  std::vector<std::string> rows;  ///< each once
  std::vector<size_t> processes;
  const CallSite* first = nullptr;
  std::set<std::vector<PythonFrame>> stacks;
};

Calls calls_of(const Findings& findings, const Place& place) {
  Calls calls;
  for (const size_t number : place.touchers) {
    const CallSite& toucher = findings.touchers[number];
    if (!toucher.counts) continue;
    const std::string row = call_of(toucher);
    const auto known = std::find(calls.rows.begin(), calls.rows.end(), row);
    if (known == calls.rows.end()) calls.rows.push_back(row);
    calls.processes.insert(calls.processes.end(), toucher.processes.begin(),
                           toucher.processes.end());
    calls.stacks.insert(toucher.stack.python);
    const bool better = calls.first != nullptr && calls.first->forbidden.empty();
    if (calls.first == nullptr || (better && !toucher.forbidden.empty())) calls.first = &toucher;
  }
  std::sort(calls.processes.begin(), calls.processes.end());
  calls.processes.erase(std::unique(calls.processes.begin(), calls.processes.end()),
                        calls.processes.end());
  return calls;
}

/// Prints "ppo.py:159 in main", and below it the source line.
void put_title(std::string& out, const Findings& findings, const Place& place,
               const CallSite& first, const std::string& label) {
  const PythonFrame* frame = own_frame(first);
  if (frame == nullptr) {
    add_row(out, "  " + label + printable(place.name));
    return;
  }
  add_row(out, "  " + label + row_of(*frame));
  const std::string source = printable(source_of(findings, first, *frame));
  if (!source.empty()) add_row(out, "      " + source);
}

void put_place(std::string& out, const Verdict& verdict, const Place& place, Symbols& symbols) {
  const Calls calls = calls_of(verdict.findings, place);
  const bool fails = !place.forbidden.empty();
  put_title(out, verdict.findings, place, *calls.first, fails ? "" : "allowed: ");
  put_frames(out, "asked", calls.rows);
  if (!calls.first->around_guard()) put_stack(out, *calls.first, symbols);
  if (calls.stacks.size() > 1) {
    put_frames(out, "stacks", {std::to_string(calls.stacks.size() - 1) + " more (--json has all)"});
  }
  std::vector<size_t> others;
  std::set_difference(calls.processes.begin(), calls.processes.end(), place.forbidden.begin(),
                      place.forbidden.end(), std::back_inserter(others));
  put_processes(out, verdict, "process", fails ? place.forbidden : others);
  if (fails) put_processes(out, verdict, "allowed", others);
}

void put_places(std::string& out, const Verdict& verdict, Symbols& symbols, bool failing) {
  size_t count = 0;
  for (const Place& place : verdict.findings.places) {
    if (!place.counts || place.forbidden.empty() == failing) continue;
    if (++count <= kMostPlaces) put_place(out, verdict, place, symbols);
  }
  put_more(out, count, kMostPlaces, "(--json has all)");
}

/// "NVML was asked by 2 processes: monitor.py:17 (not denied)". Empty if there was no such attempt.
std::string what_asked(const Verdict& verdict, DriverApi kind) {
  std::set<uint32_t> processes;
  std::vector<std::string> places;
  for (const Place& place : verdict.findings.places) {
    const size_t before = processes.size();
    for (const size_t number : place.touchers) {
      const CallSite& toucher = verdict.findings.touchers[number];
      if (toucher.asked != kind) continue;
      for (const size_t process : toucher.processes) {
        processes.insert(verdict.findings.processes[process].pid);
      }
    }
    if (processes.size() == before) continue;
    places.push_back(printable(place.line.empty() ? place.name : place.line, kMostName));
  }
  if (processes.empty()) return {};
  return denied_names({kind}) + " was asked by " + counted(processes.size(), "process") + ": " +
         places[0] +
         (places.size() == 1 ? "" : " and " + std::to_string(places.size() - 1) + " more") +
         " (not denied)";
}

std::string suffix_of(const TreeTruth::Unguarded& process) {
  if (!process.has_driver) return {};
  return std::string(process.only_nvml ? "; it has NVML" : "; it has the driver open") +
         (process.fails ? ", which counts as a CUDA attempt" : "");
}

void put_tree(std::string& out, const Verdict& verdict) {
  const TreeTruth& tree = verdict.tree;
  const std::string how = tree.traced ? "every exec was checked" : "sampled";
  std::string what = "no unguarded process was seen";
  if (tree.value == TreeTruth::Value::kAllGuarded)
    what = "every program that ptrace reported was guarded";
  if (tree.value == TreeTruth::Value::kUnguarded) {
    what = counted(tree.unguarded.size(), "process") + " not guarded";
  }
  add_row(out, "  tree: " + what + " (" + how + ")");
  for (size_t i = 0; i < std::min(tree.unguarded.size(), kMostUnguarded); ++i) {
    const TreeTruth::Unguarded& one = tree.unguarded[i];
    add_wrapped(out, std::string(kRow) + std::to_string(one.pid) + " ",
                printable(head(one.command, 50)) + ": " + printable(one.reason) + suffix_of(one));
  }
  if (tree.unguarded.size() > kMostUnguarded) {
    add_row(out, std::string(kRow) + "... " +
                     std::to_string(tree.unguarded.size() - kMostUnguarded) + " more");
  }
  for (const std::string& doubt : tree.doubts) add_wrapped(out, "  in doubt: ", printable(doubt));
  if (!tree.left.empty()) add_wrapped(out, "  not waited for: ", printable(tree.left));
}

std::string_view result_word(Verdict::Result result) {
  using Result = Verdict::Result;
  return result == Result::kPass ? "PASS" : result == Result::kFail ? "FAIL" : "INCOMPLETE";
}

std::string first_of(const Texts& list) {
  if (list.empty()) return {};
  std::string text = printable(list[0], kMostName);
  if (list.size() > 1) text += " and " + std::to_string(list.size() - 1) + " more";
  return text;
}

/// Lines about text that is no record, or only a piece of one.
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

/// "initialised CUDA by libcudart.so.12, context on 0,1, worked"
std::string facts_of(const ObservedProcess& process) {
  std::vector<std::string> facts;
  if (process.initialised) {
    facts.push_back("initialised CUDA by " + printable(process.by, kMostName));
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
  std::map<std::string, size_t> places;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    std::string command = printable(process.command, kMostCommand);
    std::string facts = facts_of(process);
    const std::string key = command + '\n' + facts + '\n' + process.told;
    const auto [place, is_new] = places.try_emplace(key, rows.size());
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
  if (text.size() > kMostNumbers) text = text.substr(0, text.rfind(' ', kMostNumbers)) + " ...";
  add_wrapped(out, kFact, text);
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
  put_more(out, all, rows.size(), "rows");
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
  put_more(text, findings.sick_drivers.size(), shown, "hosts (--json has all)");
}

/// Prints which GPUs the device numbers mean, if there is a list.
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

/// Prints the user's own lines, those with the most processes first.
void put_lines(std::string& out, const Findings& findings) {
  std::vector<const Place*> lines;
  for (const Place& place : findings.places) {
    if (!place.line.empty()) lines.push_back(&place);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Place* a, const Place* b) {
    return a->processes.size() > b->processes.size();
  });
  const size_t all = lines.size();
  lines.resize(std::min(all, kMostLines));
  for (const Place* line : lines) {
    std::set<std::string> libraries;
    std::set<std::string> apis;
    for (const size_t number : line->touchers) {
      libraries.insert(printable(findings.touchers[number].library, kMostName));
      apis.insert(printable(findings.touchers[number].api, kMostName));
    }
    const size_t count = line->processes.size();
    add_wrapped(out, "  asked by ",
                printable(line->line) + " through " + joined(libraries, ", ") + ": " +
                    joined(apis, ", ") + (count == 1 ? "" : ", " + counted(count, "process")));
  }
  put_more(out, all, lines.size(), "lines that asked");
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

std::string words_of(const std::set<DriverApi>& asked) {
  std::vector<std::string> words;
  for (const DriverApi one : asked) words.emplace_back(word_of(one));
  return joined(words, " ");
}

/// The name is the last column, because it may be long.
std::string table_of(const std::vector<Group>& groups, std::string_view title) {
  size_t width = 3;
  for (const Group& group : groups) width = std::max(width, words_of(group.asked).size());
  std::string text;
  const auto put = [&](const std::string& processes, const std::string& asked, std::string what,
                       const std::string& first, const std::string& last, const std::string& name) {
    what.resize(width, ' ');
    text += "  " + cell(processes, 9) + cell(asked, 7) + what + "  " + cell(first, kTime) +
            cell(last, kTime) + name + "\n";
  };
  put("processes", "asked", "for", "first (UTC)", "last", std::string(title));
  for (const Group& group : groups) {
    put(std::to_string(group.processes), std::to_string(group.touching), words_of(group.asked),
        shown_time(group.first), shown_time(group.last),
        group.name.empty() ? "?" : printable(group.name));
  }
  return text;
}

std::string counted_allowed(size_t processes) { return counted(processes, "allowed process"); }

/// "no CUDA use (12 processes checked)", "2 lines asked for CUDA, in 3 of 12 processes". If no
/// place made an attempt, an unguarded process has the driver.
std::string what_touched(const Verdict& verdict) {
  const std::string all = " of " + counted(verdict.processes, "process");
  const std::string kinds = denied_names(verdict.deny);
  if (verdict.touched == 0) {
    std::string text = "no " + kinds + " use";
    if (verdict.result == Verdict::Result::kIncomplete) text += " seen";
    if (verdict.allowed != 0) text += " except in " + counted_allowed(verdict.allowed);
    return text + " (" + counted(verdict.processes, "process") + " checked)";
  }
  const std::string some = grouped(verdict.touched) + all;
  if (verdict.places == 0) return some + " touched " + kinds;
  return counted(verdict.places, verdict.lines == verdict.places ? "line" : "place") +
         " asked for " + kinds + ", in " + some;
}

}  // namespace

std::string result_line(const Verdict& verdict) {
  const bool touched = verdict.touched != 0;
  std::string text = std::string(result_word(verdict.result)) + ": " + what_touched(verdict);
  if (touched && verdict.allowed != 0) text += " (and in " + counted_allowed(verdict.allowed) + ")";
  if (verdict.status != 0) {
    text += (touched ? "; the program " : ", but the program ") + text_of_end(verdict.status);
  }
  return text;
}

std::vector<std::string> notes_of(const Verdict& verdict) {
  std::vector<std::string> notes;
  if (verdict.torch_asked) {
    notes.emplace_back(
        "PyTorch keeps the first answer, so later attempts in the same process are not reported");
  }
  for (const DriverApi kind : {DriverApi::kCuda, DriverApi::kNvml, DriverApi::kOpenCl}) {
    if (verdict.deny.contains(kind)) continue;
    std::string note = what_asked(verdict, kind);
    if (note.empty()) continue;
    // A program that asks NVML first finds no GPU there, and may therefore not ask CUDA at all.
    if (kind == DriverApi::kNvml && verdict.touched == 0) {
      note += "; if NVML finds a GPU, CUDA may follow: --deny=init,nvml fails this";
    }
    notes.push_back(note);
  }
  if (verdict.status != 0 && verdict.no_new_privs) {
    notes.emplace_back(
        "sudo and setuid programs got no more rights under the fence (no_new_privs); --fence=off "
        "avoids this");
  }
  const std::string& unheard = verdict.tree.why_unheard;
  notes.push_back((verdict.tree.by_file ? "the records came by a file, which a program can lose"
                                        : "heard from " + grouped(verdict.heard) + " of " +
                                              counted(verdict.processes, "process")) +
                  (unheard.empty() ? "" : "; " + unheard));
  return notes;
}

std::string text_of_end(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

std::string text_of_verdict(const Verdict& verdict, Symbols& symbols) {
  std::string out;
  add_wrapped(out, "cudaguard: ", result_line(verdict));
  put_places(out, verdict, symbols, true);
  put_places(out, verdict, symbols, false);
  for (const std::string& note : notes_of(verdict)) add_wrapped(out, "  ", note);
  put_tree(out, verdict);
  return out + what_was_left_out(verdict.findings);
}

std::string text_of_findings(const Findings& findings, const std::string& left,
                             const std::string& idle) {
  std::string text = totals(findings.processes);
  put_findings_processes(text, findings);
  put_told(text, findings);
  put_lines(text, findings);
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
  double first = 0;
  double last = 0;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.host.empty()) hosts.insert(process.host);
    if (process.first != 0 && (first == 0 || process.first < first)) first = process.first;
    last = std::max(last, process.last);
  }
  std::string text = counted(read.files, "file") + ", " + counted(findings.records, "record") +
                     " of " + counted(findings.processes.size(), "process");
  if (!hosts.empty()) text += " on " + counted(hosts.size(), "host");
  if (first == 0) return text;
  const std::string from = shown_time(first);
  const std::string to = shown_time(last);
  return text + ", " + from + (from == to ? "" : " to " + to) + " UTC";
}

std::string text_of_records(const Findings& findings, const ReadFiles& read,
                            const std::optional<ByWord>& by) {
  std::string text = "cudaguard: ";
  if (findings.records == 0) {
    text += "no records in " + counted(read.files, "file") + "\n" + what_was_left_out(findings);
  } else if (by) {
    text += what_was_read(findings, read) + "\n" + table_of(groups_of(findings, by->by), by->word) +
            what_was_left_out(findings);
  } else {
    text += what_was_read(findings, read) + "\n" + text_of_findings(findings);
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
