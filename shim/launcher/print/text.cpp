// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/text.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/format.h"
#include "shim/launcher/print/json.h"

namespace cudaguard::launcher {

std::string denied_names(const std::set<Asked>& denied) {
  std::string names;
  for (const Asked one : denied) {
    const char* name = one == Asked::kCuda ? "CUDA" : one == Asked::kNvml ? "NVML" : "OpenCL";
    names.append(names.empty() ? "" : " or ").append(name);
  }
  return names;
}

namespace {

constexpr size_t kMostFrames = 10;
constexpr size_t kLastFrames = 2;  ///< of these, the outermost ones
constexpr size_t kMostTouchers = 20;
constexpr size_t kMostCommand = 60;
constexpr size_t kMostUnguarded = 20;
constexpr std::string_view kRow = "    ";  ///< in front of what belongs to a toucher
constexpr std::string_view kMark = "> ";   ///< the user's own line
constexpr size_t kLabel = 9;               ///< "python   "
constexpr const char* kMissing = "not available: ";
constexpr size_t kNoFrame = SIZE_MAX;
constexpr size_t kMostName = 36;
constexpr size_t kMostRows = 100;
constexpr size_t kMostLines = 20;        ///< of who asked, of lists of devices
constexpr size_t kMostNumbers = 800;     ///< characters of process ids below a row
constexpr size_t kTime = 16;             ///< "2026-11-22 07:28"
constexpr const char* kFact = "      ";  ///< in front of what is said of a process

template <typename List, typename Show>
std::string joined(const List& list, std::string_view between, Show show) {
  std::string text;
  for (const auto& item : list) text.append(text.empty() ? "" : between).append(show(item));
  return text;
}

void put_more(std::string& out, size_t all, size_t shown, std::string_view what) {
  if (all <= shown) return;
  out.append("  ... and ").append(std::to_string(all - shown)).append(" more ");
  out.append(what).append("\n");
}

/// Where a reader finds the file: below this folder, else the whole path; of a package what follows
/// site-packages; of the standard library "python3.11/json/decoder.py".
std::string short_file(const std::string& file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(part);
    if (at != std::string::npos) return printable(tail(file, at + part.size()));
  }
  for (const std::string_view part : {"/lib/python3", "/lib64/python3"}) {
    const size_t at = file.find(part);
    if (at != std::string::npos) return printable(tail(file, file.find('p', at)));
  }
  const std::unique_ptr<char, void (*)(void*)> folder(getcwd(nullptr, 0), free);
  const std::string here = folder == nullptr ? "/" : std::string(folder.get()) + "/";
  return printable(file.starts_with(here) ? tail(file, here.size()) : std::string_view(file));
}

std::string row_of(const PythonFrame& frame) {
  return short_file(frame.file) + ":" + std::to_string(frame.line) + " in " +
         printable(frame.function);
}

std::string row_of(const NativeFrame& frame, Symbols& symbols) {
  const std::string module = printable(base_name(frame.module));
  const std::string name = printable(symbols.name_of(frame));
  if (!name.empty()) return module + ": " + name;
  return text_of([&](Text& out) { out.put(module).put("+").put_hex(frame.offset); });
}

/// "python   ROW" and more below it; the `own` one is marked. The middle of a long stack is left
/// out.
void put_frames(std::string& out, std::string_view label, const std::vector<std::string>& rows,
                size_t own) {
  std::string start = std::string(kRow) + std::string(label);
  start.resize(kRow.size() + kLabel, ' ');
  const auto put = [&](const std::string& row) {
    add_row(out, start + row);
    start.assign(kRow.size() + kLabel, ' ');
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool late = i >= kMostFrames - kLastFrames && i + kLastFrames < rows.size();
    if (rows.size() <= kMostFrames || !late || i == own) {
      put((i == own ? std::string(kMark) : "") + rows[i]);
      continue;
    }
    size_t next = rows.size() - kLastFrames;
    if (own > i && own < next) next = own;
    put("... " + std::to_string(next - i) + " more");
    i = next - 1;
  }
}

/// The interpreter's own frames say nothing where there are Python's.
std::vector<NativeFrame> native_frames(const Stack& stack) {
  const auto is_interpreter = [](const NativeFrame& frame) {
    const std::string_view file = base_name(frame.module);
    return file.starts_with("libpython") || file.starts_with("python");
  };
  auto end = stack.native.end();
  if (!stack.python.empty()) {
    end = std::find_if(stack.native.begin(), stack.native.end(), is_interpreter);
  }
  return {stack.native.begin(), end};
}

/// The innermost one of the user's own.
size_t own_frame(const std::vector<NativeFrame>& frames, Symbols& symbols) {
  const auto own = std::find_if(frames.begin(), frames.end(), [&](const auto& frame) {
    return !passes_calls_on(frame.module) && !is_runtime_function(symbols.name_of(frame));
  });
  return own == frames.end() ? kNoFrame : static_cast<size_t>(own - frames.begin());
}

/// The line that the guard's message names, with what its file says, and the whole stack.
void put_python(std::string& out, const Findings& findings, const Toucher& toucher) {
  const std::vector<PythonFrame>& frames = toucher.stack.python;
  size_t own = kNoFrame;
  if (const PythonFrame* frame = own_frame(toucher); frame != nullptr) {
    own = static_cast<size_t>(frame - frames.data());
    add_row(out, std::string(kRow) + std::string(kMark) + row_of(*frame));
    const std::string line = printable(source_of(findings, toucher, *frame));
    if (!line.empty()) add_row(out, std::string(kRow) + std::string(kRow) + line);
  }
  std::vector<std::string> rows;
  rows.reserve(frames.size());
  for (const PythonFrame& one : frames) rows.push_back(row_of(one));
  if (rows.size() > 1 || own == kNoFrame) put_frames(out, "python", rows, own);
}

void put_stack(std::string& out, const Findings& findings, const Toucher& toucher,
               Symbols& symbols) {
  const Stack& stack = toucher.stack;
  const std::vector<NativeFrame> native = native_frames(stack);
  std::vector<std::string> rows;
  rows.reserve(native.size() + 1);
  for (const NativeFrame& frame : native) rows.push_back(row_of(frame, symbols));
  size_t own = kNoFrame;
  if (!stack.python.empty()) {
    put_python(out, findings, toucher);
  } else {
    own = own_frame(native, symbols);
    if (own != kNoFrame) add_row(out, std::string(kRow) + std::string(kMark) + rows[own]);
    const std::string& reason = stack.python_missing;
    if (!reason.empty() && reason != kNoPython)
      put_frames(out, "python", {kMissing + printable(reason)}, kNoFrame);
  }
  const bool is_said = rows.size() == 1 && own == 0;
  if (!stack.native_missing.empty()) {
    // Of the stack there is the caller, at most.
    rows.push_back(std::string(rows.empty() ? "" : "its callers: ") + kMissing +
                   printable(stack.native_missing));
  }
  if (is_said) rows.erase(rows.begin());
  put_frames(out, "native", rows, is_said ? kNoFrame : own);
}

/// "64x python3 w.py (71-134)"
void put_processes(std::string& out, const Verdict& verdict, std::string_view label,
                   const std::vector<size_t>& numbers) {
  std::map<std::string, std::vector<uint32_t>> commands;
  for (const size_t number : numbers) {
    const ObservedProcess& process = verdict.findings.processes[number];
    const std::string command = printable(process.command);
    const bool whole = command.size() <= kMostCommand;
    commands[command.substr(0, kMostCommand) + (whole ? "" : "...")].push_back(process.pid);
  }
  std::vector<std::string> rows;
  rows.reserve(commands.size());
  for (const auto& [command, pids] : commands) {
    const std::string times = pids.size() == 1 ? "" : std::to_string(pids.size()) + "x ";
    rows.push_back(times + command + " (" + id_ranges(pids) + ")");
  }
  put_frames(out, label, rows, kNoFrame);
}

std::string title_of(const Toucher& toucher) {
  if (toucher.around_guard()) {
    return "request " + printable(toucher.object) + " to NVIDIA's driver around the guard";
  }
  std::string title = printable(toucher.api);
  if (!toucher.object.empty()) title += " of " + printable(base_name(toucher.object));
  if (!toucher.library.empty()) title += " by " + printable(toucher.library);
  if (!toucher.line.empty()) title += ", asked at " + printable(toucher.line);
  if (!toucher.denied) title += " (its own policy let it through)";
  return title;
}

void put_touchers(std::string& out, const Verdict& verdict, Symbols& symbols, bool failing) {
  size_t count = 0;
  for (const Toucher& toucher : verdict.findings.touchers) {
    if (toucher.forbidden.empty() == failing || ++count > kMostTouchers) continue;
    const bool denied = verdict.deny.contains(toucher.asked);
    const char* label = failing ? "" : denied ? "allowed: " : "not denied: ";
    add_row(out, "  " + std::string(label) + title_of(toucher));
    if (!toucher.around_guard()) put_stack(out, verdict.findings, toucher, symbols);
    std::vector<size_t> others;
    std::set_difference(toucher.processes.begin(), toucher.processes.end(),
                        toucher.forbidden.begin(), toucher.forbidden.end(),
                        std::back_inserter(others));
    put_processes(out, verdict, "process", failing ? toucher.forbidden : others);
    if (failing) put_processes(out, verdict, "allowed", others);
  }
  if (count > kMostTouchers) {
    add_row(out, "  ... and " + std::to_string(count - kMostTouchers) + " more (--json has all)");
  }
}

/// A program that asks NVML first finds no GPU there, and may therefore not come to CUDA.
void put_nvml(std::string& out, const Verdict& verdict) {
  if (verdict.touched != 0 || verdict.deny.contains(Asked::kNvml)) return;
  std::set<uint32_t> asked;
  for (const Toucher& toucher : verdict.findings.touchers) {
    if (toucher.asked != Asked::kNvml) continue;
    for (const size_t number : toucher.processes) {
      asked.insert(verdict.findings.processes[number].pid);
    }
  }
  if (asked.empty()) return;
  add_wrapped(out, "  NVML was asked by ",
              counted(asked.size(), "process") +
                  "; where NVML finds a GPU, CUDA may follow (--deny=init,nvml fails this)");
}

std::string suffix_of(const TreeTruth::Unguarded& process) {
  if (!process.has_driver) return {};
  return std::string(process.only_nvml ? "; it has NVML" : "; it has the driver open") +
         (process.fails ? ": that counts as touched" : "");
}

void put_tree(std::string& out, const Verdict& verdict) {
  const TreeTruth& tree = verdict.tree;
  const std::string how = tree.traced ? "every exec was looked at" : "sampled";
  std::string what = "no unguarded process was seen";
  if (tree.value == TreeTruth::Value::kAllGuarded) what = "every program that ptrace told of was guarded";
  if (tree.value == TreeTruth::Value::kUnguarded) {
    what = counted(tree.unguarded.size(), "process") + " not guarded";
  }
  const std::string basis = tree.by_file ? "told by a file, which a program can lose"
                                         : "heard from " + grouped(verdict.heard) + " of " +
                                               counted(verdict.processes, "process");
  add_wrapped(out, "  ",
              basis + (tree.why_unheard.empty() ? "" : "; " + printable(tree.why_unheard)));
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

std::string_view word_of(Verdict::Result result) {
  using Result = Verdict::Result;
  return result == Result::kPass ? "PASS" : result == Result::kFail ? "FAIL" : "INCOMPLETE";
}

std::string first_of(const Texts& list) {
  if (list.empty()) return {};
  std::string text = printable(list[0], kMostName);
  if (list.size() > 1) text += " and " + std::to_string(list.size() - 1) + " more";
  return text;
}

/// Lines about what is no record, or only a piece of one.
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

/// "initialised CUDA by libcudart.so.12, context on 0,1, worked"
std::string facts_of(const ObservedProcess& process) {
  std::vector<std::string> facts;
  if (process.initialised)
    facts.push_back("initialised CUDA by " + printable(process.by, kMostName));
  if (!process.contexts.empty()) {
    const auto number = [](int device) { return std::to_string(device); };
    facts.push_back("context on " + printable(joined(process.contexts, ",", number), kMostName));
  }
  if (process.worked) facts.emplace_back("worked");
  if (process.nvml) facts.emplace_back("used NVML");
  if (!process.tried.empty()) facts.push_back(first_of(process.tried));
  if (!process.refused.empty()) facts.push_back("refused " + first_of(process.refused));
  return facts.empty() ? "-" : joined(facts, ", ", [](const auto& fact) { return fact; });
}

/// Processes that cannot be told apart.
struct Alike {
  std::string command;
  std::string facts;
  std::vector<uint32_t> pids;
  std::set<std::string> hosts;
};

/// In the order of each one's first process.
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

/// Process ids of several hosts say nothing.
void put_alike(std::string& out, const Alike& row, bool many_hosts) {
  const size_t count = row.pids.size();
  const std::string id = " (" + std::to_string(row.pids[0]) + ")";
  add_row(out, "  " + (count == 1 ? row.command + id : std::to_string(count) + "x " + row.command));
  add_wrapped(out, kFact, row.facts);
  if (count == 1 && !many_hosts) return;
  const auto name = [](const auto& host) { return printable(host); };
  std::string text =
      many_hosts ? "on " + joined(row.hosts, " ", name) : "pids " + id_ranges(row.pids);
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

std::string shown_time(double at) { return utc_time(at, "%Y-%m-%d %H:%M"); }

std::string cell(std::string text, size_t width) {
  text.insert(0, width - std::min(width, text.size()), ' ');
  return text + "  ";
}

std::string words_of(const std::set<Asked>& asked) {
  std::string words;
  for (const Asked one : asked) words.append(words.empty() ? "" : " ").append(word_of(one));
  return words;
}

/// The name is the last column: it may be long.
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

}  // namespace

std::string result_line(const Verdict& verdict) {
  const bool touched = verdict.touched != 0;
  std::string text(word_of(verdict.result));
  text += ": ";
  text += (touched ? grouped(verdict.touched) : "none") + " of " +
          counted(verdict.processes, "process") + " touched " + denied_names(verdict.deny);
  if (verdict.allowed != 0) {
    text += (touched ? ", and " : ", but ") + grouped(verdict.allowed) + " that may";
  }
  if (verdict.result == Verdict::Result::kIncomplete) text += ", as far as is known";
  if (verdict.status != 0) {
    text += (touched ? "; the program " : ", but the program ") + text_of_end(verdict.status);
  }
  return text;
}

std::string text_of_end(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

std::string text_of_verdict(const Verdict& verdict, Symbols& symbols) {
  std::string out;
  add_wrapped(out, "cudaguard: ", result_line(verdict));
  put_nvml(out, verdict);
  put_touchers(out, verdict, symbols, true);
  put_touchers(out, verdict, symbols, false);
  put_tree(out, verdict);
  if (verdict.status != 0 && verdict.no_new_privs) {
    add_row(out, "  fence: sudo and setuid programs kept your rights (no_new_privs; --fence=off)");
  }
  return out + what_was_left_out(verdict.findings);
}

std::string text_of_findings(const Findings& findings, const std::string& left,
                             const std::string& idle) {
  std::string text = totals(findings.processes);
  put_findings_processes(text, findings);
  put_told(text, findings);
  put_lines(text, findings);
  if (!idle.empty()) {
    text += "  " + idle + ":\n    put cudaguard run behind it, in front of the program that does\n";
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
            " (zcat them in front of cudaguard report -)\n";
  }
  if (read.unreadable != 0) {
    text += "  left out: " + counted(read.unreadable, "unreadable path") + " (" + read.why + ")\n";
  }
  return text;
}

}  // namespace cudaguard::launcher
