// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/format.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostPlaces = 20;
constexpr size_t kMostCommand = 60;
constexpr size_t kMostPrograms = 20;
constexpr size_t kMostName = 36;
constexpr size_t kMostDoubt = 8000;  ///< its remedy follows a path
constexpr size_t kMostFrames = 10;
constexpr size_t kLastFrames = 2;          ///< of these, the outermost ones
constexpr std::string_view kRow = "    ";  ///< before the rows of a place or a site
constexpr std::string_view kMark = "> ";   ///< the user's own line
constexpr size_t kLabel = 9;               ///< "python   "
constexpr size_t kRoom = kColumns - kRow.size() - kLabel - kMark.size();
constexpr size_t kNoFrame = SIZE_MAX;
constexpr const char* kMissing = "not available: ";

/// The path as a reader knows it: relative to this directory, otherwise whole. In a package, the
/// part after site-packages; in the standard library, "python3.11/json/decoder.py".
std::string short_file(const std::string& file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(part);
    if (at != std::string::npos) return printable(tail(file, at + part.size()));
  }
  for (const std::string_view part : {"/lib/python3", "/lib64/python3"}) {
    const size_t at = file.find(part);
    if (at != std::string::npos) return printable(tail(file, file.find('p', at)));
  }
  const std::unique_ptr<char, void (*)(void*)> directory(getcwd(nullptr, 0), free);
  const std::string prefix = directory == nullptr ? "/" : std::string(directory.get()) + "/";
  return printable(file.starts_with(prefix) ? tail(file, prefix.size()) : std::string_view(file));
}

/// "torch/cuda/__init__.py:118 in is_available". If that is too long for a row, a long function
/// loses its template arguments, and the path its first directories, because the function says
/// more.
std::string code_row(std::string path, const std::string& function) {
  constexpr std::string_view kCut = "...";
  const bool fits = path.size() + 4 + function.size() <= kRoom;
  const std::string name =
      fits || function.size() <= kRoom / 2 ? function : short_function(function);
  const std::string rest = name.empty() ? "" : " in " + name;
  if (path.size() + rest.size() > kRoom) {
    size_t slash = path.find('/', 1);
    while (slash != std::string::npos && path.find('/', slash + 1) != std::string::npos &&
           kCut.size() + path.size() - slash + rest.size() > kRoom) {
      slash = path.find('/', slash + 1);
    }
    if (slash != std::string::npos) path.replace(0, slash, kCut);
  }
  return path + rest;
}

std::string row_of(const NativeFrame& frame) {
  const std::string module = printable(base_name(frame.module));
  const std::string name = printable(frame.symbol);
  if (!frame.line.empty()) return code_row(short_file(frame.line), name);
  if (!name.empty()) {
    const bool fits = module.size() + 2 + name.size() <= kRoom;
    return module + ": " + (fits ? name : short_function(name));
  }
  return text_of([&](Text& out) { out.put(module).put("+").put_hex(frame.offset); });
}

/// Omits the interpreter's own frames if there are Python frames.
std::span<const NativeFrame> native_frames(const Stack& stack) {
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

/// "torch/cuda/__init__.py:118 in is_available"
std::string row_of(const PythonFrame& frame) {
  const std::string line = frame.line == 0 ? "" : ":" + std::to_string(frame.line);
  return code_row(short_file(frame.file) + line, printable(frame.function));
}

/// Prints "    python   ROW" and more rows below it, and marks row `own`. A long list is cut in the
/// middle.
void put_frames(std::string& out, std::string_view label, const std::vector<std::string>& rows,
                size_t own = kNoFrame) {
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

/// Prints Python's frames, and marks the one that the guard's message names.
void put_python(std::string& out, const CallSite& site) {
  const std::vector<PythonFrame>& frames = site.stack.python;
  const PythonFrame* named = own_frame(site.stack);
  // A record has no number for the frame of a notebook's cell.
  const auto cell = std::ranges::find_if(
      frames, [&](const PythonFrame& one) { return !site.line.empty() && is_cell(one.file); });
  if (named == nullptr && cell != frames.end()) named = &*cell;
  std::vector<std::string> rows;
  rows.reserve(frames.size());
  for (const PythonFrame& one : frames) rows.push_back(row_of(one));
  const size_t own = named == nullptr ? kNoFrame : static_cast<size_t>(named - frames.data());
  // A single frame repeats the title.
  if (rows.size() > 1 || own == kNoFrame) put_frames(out, "python", rows, own);
}

/// Prints Python's frames and the native ones, or why there are none.
void put_stack(std::string& out, const CallSite& site) {
  const Stack& stack = site.stack;
  const std::span<const NativeFrame> native = native_frames(stack);
  std::vector<std::string> rows;
  rows.reserve(native.size() + 1);
  for (const NativeFrame& frame : native) rows.push_back(row_of(frame));
  size_t own = kNoFrame;
  put_python(out, site);
  if (stack.python.empty()) {
    const NativeFrame* frame = own_frame(native);
    if (frame != nullptr) {
      own = static_cast<size_t>(frame - native.data());
    }
    if (rows.size() == 1 && own == 0) {
      add_row(out, std::string(kRow) + std::string(kMark) + rows[own]);
      rows.clear();
      own = kNoFrame;
    }
    const std::string& reason = stack.python_missing;
    if (!reason.empty() && reason != kNoPython)
      put_frames(out, "python", {kMissing + printable(reason)});
  }
  if (!stack.native_missing.empty()) {
    // At most the caller is known.
    rows.push_back(std::string(native.empty() ? "" : "its callers: ") + kMissing +
                   printable(stack.native_missing));
  }
  put_frames(out, "native", rows, own);
}

/// "64x python3 w.py (71-134)"
void put_processes(std::string& out, const Verdict& verdict, std::string_view label,
                   const std::vector<size_t>& numbers) {
  std::map<std::string, std::vector<uint32_t>> commands;
  for (const size_t number : numbers) {
    const ObservedProcess& process = verdict.findings.processes[number];
    commands[printable(process.command.shown(), kMostCommand)].push_back(process.pid);
  }
  std::vector<std::string> rows;
  rows.reserve(commands.size());
  for (const auto& [command, pids] : commands) {
    std::string row = pids.size() == 1 ? "" : std::to_string(pids.size()) + "x ";
    row.append(command).append(" (");
    rows.push_back(row + whole_words(id_ranges(pids), kRoom - row.size() - 1) + ")");
  }
  put_frames(out, label, rows);
}

/// "cuInit by libc10_cuda.so"
std::string call_of(const CallSite& site) {
  if (site.bypassed_guard()) {
    return "ioctl " + printable(site.object) + " to NVIDIA's driver";
  }
  std::string call = printable(site.api);
  if (!site.object.empty()) call += " of " + printable(base_name(site.object));
  if (!site.library.empty()) call += " by " + printable(site.library);
  if (!site.denied) call += " (its own policy allowed it)";
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
  for (const size_t number : place.sites) {
    const CallSite& site = findings.sites[number];
    if (!site.counts) continue;
    const std::string row = call_of(site);
    const auto known = std::find(calls.rows.begin(), calls.rows.end(), row);
    if (known == calls.rows.end()) calls.rows.push_back(row);
    calls.processes.insert(calls.processes.end(), site.processes.begin(), site.processes.end());
    calls.stacks.insert(site.stack.python);
    const bool better = calls.first != nullptr && calls.first->forbidden.empty();
    if (calls.first == nullptr || (better && !site.forbidden.empty())) calls.first = &site;
  }
  std::sort(calls.processes.begin(), calls.processes.end());
  calls.processes.erase(std::unique(calls.processes.begin(), calls.processes.end()),
                        calls.processes.end());
  return calls;
}

/// Prints "ppo.py:159 in main", and below it the source line. What has started a deleted script is
/// named, too.
void put_title(std::string& out, const Place& place, const CallSite& first,
               const std::string& label) {
  const PythonFrame* frame = own_frame(first.stack);
  if (frame == nullptr) {
    add_row(out, "  " + label + printable(place.name));
    return;
  }
  std::string row = row_of(*frame);
  if (!first.started_by.empty()) row += ", started by " + printable(first.started_by);
  add_row(out, "  " + label + row);
  const std::string source = printable(frame->source);
  if (!source.empty()) add_row(out, "      " + source);
}

void put_place(std::string& out, const Verdict& verdict, const Place& place) {
  const Calls calls = calls_of(verdict.findings, place);
  const bool fails = !place.forbidden.empty();
  put_title(out, place, *calls.first, fails ? "" : "allowed: ");
  put_frames(out, "asked", calls.rows);
  if (!calls.first->bypassed_guard()) put_stack(out, *calls.first);
  if (calls.stacks.size() > 1) {
    put_frames(out, "stacks", {std::to_string(calls.stacks.size() - 1) + " more (--json has all)"});
  }
  std::vector<size_t> others;
  std::set_difference(calls.processes.begin(), calls.processes.end(), place.forbidden.begin(),
                      place.forbidden.end(), std::back_inserter(others));
  put_processes(out, verdict, "process", fails ? place.forbidden : others);
  if (fails) put_processes(out, verdict, "allowed", others);
}

/// Says with which options the run would not fail. A user copies them, so none is cut.
void put_remedy(std::string& out, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return;
  std::string all = "  to accept this:";
  for (const std::string& pattern : patterns) all += " --allow " + shell_quoted(pattern);
  const std::string first = "  to accept the first: --allow " + shell_quoted(patterns.front());
  if (all.size() <= kColumns) {
    add_row(out, all);
  } else if (patterns.size() > 1 && first.size() <= kColumns) {
    add_row(out, first);
  }
}

void put_places(std::string& out, const Verdict& verdict, bool failing) {
  size_t count = 0;
  for (const Place& place : verdict.findings.places) {
    if (!place.counts || place.forbidden.empty() == failing) continue;
    if (++count <= kMostPlaces) put_place(out, verdict, place);
  }
  add_more(out, count, kMostPlaces, "(--json has all)");
  if (failing) put_remedy(out, patterns_for(verdict));
}

/// "NVML was asked by 2 processes: monitor.py:17 (not denied)". Empty if there was no such attempt.
std::string what_asked(const Verdict& verdict, DriverApi kind) {
  std::set<uint32_t> processes;
  std::vector<std::string> places;
  for (const Place& place : verdict.findings.places) {
    const size_t before = processes.size();
    for (const size_t number : place.sites) {
      const CallSite& site = verdict.findings.sites[number];
      if (site.asked != kind) continue;
      for (const size_t process : site.processes) {
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

/// "200x ./stat (static)"
std::string row_of(const ProgramGroup& group) {
  const TreeTruth::Unguarded& one = *group.first;
  std::string text = group.starts == 1 ? "" : grouped(group.starts) + "x ";
  text += printable(name_of(one)) + " (" + printable(one.reason);
  if (one.has_driver) text += one.only_nvml ? "; it has NVML" : "; it has the driver open";
  if (one.fails) text += ", which counts as a CUDA attempt";
  return text + ")";
}

struct Account {
  std::string text;               ///< "3 programs started: 2 guarded, 1 unguarded: ./stat (static)"
  std::vector<std::string> rows;  ///< of programs that are not in the text, because they are many
};

Account account_of(const TreeTruth& tree) {
  const std::vector<ProgramGroup> groups = groups_of(tree);
  Account account;
  std::vector<std::string> parts;
  if (tree.guarded != 0) parts.push_back(grouped(tree.guarded) + " guarded");
  for (const bool known : {true, false}) {
    std::vector<std::string> rows;
    for (const ProgramGroup& group : groups) {
      if (group.known == known) rows.push_back(row_of(group));
    }
    if (rows.empty()) continue;
    const std::string kind = known ? "unguarded" : "unknown";
    parts.push_back(grouped((known ? tree.unguarded : tree.unknown).size()) + " " + kind);
    if (rows.size() == 1) {
      parts.back() += ": " + rows[0];
    } else {
      for (const std::string& row : rows) account.rows.push_back(kind + ": " + row);
    }
  }
  account.text = counted(tree.started(), "program") + " started" + (parts.empty() ? "" : ": ") +
                 joined(parts, ", ");
  return account;
}

void put_tree(std::string& out, const Verdict& verdict) {
  const TreeTruth& tree = verdict.tree;
  const std::vector<std::string> rows = account_of(tree).rows;
  for (size_t i = 0; i < std::min(rows.size(), kMostPrograms); ++i) {
    add_wrapped(out, std::string(kRow), rows[i]);
  }
  add_more(out, rows.size(), kMostPrograms, "(--json has all)");
  for (const std::string& doubt : tree.doubts) {
    add_wrapped(out, "  in doubt: ", printable(doubt, kMostDoubt));
  }
  if (!tree.left.empty()) add_wrapped(out, "  not waited for: ", printable(tree.left));
}

std::string_view result_word(Verdict::Result result) {
  using Result = Verdict::Result;
  return result == Result::kPass ? "PASS" : result == Result::kFail ? "FAIL" : "INCOMPLETE";
}

std::string counted_allowed(size_t processes) { return counted(processes, "allowed process"); }

/// "no CUDA use (12 processes checked)", "2 lines asked for CUDA, in 3 of 12 processes". If no
/// place made an attempt, an unguarded process has the driver.
std::string what_asked(const Verdict& verdict) {
  const std::string all = " of " + counted(verdict.processes, "process");
  const std::string kinds = denied_names(verdict.deny);
  if (verdict.asked == 0) {
    std::string text = verdict.queries() ? "no use of " + kinds : "no " + kinds + " use";
    if (!verdict.passed() && verdict.is_in_doubt()) text += " seen";
    if (verdict.allowed != 0) text += " except in " + counted_allowed(verdict.allowed);
    return text + " (" + counted(verdict.processes, "process") + " checked)";
  }
  const std::string some = grouped(verdict.asked) + all;
  if (verdict.places == 0) return some + " asked for " + kinds;
  return counted(verdict.places, verdict.lines == verdict.places ? "line" : "place") +
         " asked for " + kinds + ", in " + some;
}

}  // namespace

std::string denied_names(const std::set<DriverApi>& denied) {
  std::vector<std::string_view> names;
  names.reserve(denied.size());
  for (const DriverApi one : denied) names.emplace_back(name_of(one));
  return joined(names, " or ");
}

std::string result_line(const Verdict& verdict) {
  const bool asked = verdict.asked != 0;
  std::string text = std::string(result_word(verdict.result)) + ": " + what_asked(verdict);
  if (asked && verdict.allowed != 0) text += " (and in " + counted_allowed(verdict.allowed) + ")";
  if (verdict.status != 0) {
    text += (asked ? "; the program " : ", but the program ") + text_of_end(verdict.status);
  }
  return text;
}

std::string account_line(const TreeTruth& tree) { return account_of(tree).text; }

std::vector<std::string> notes_of(const Verdict& verdict) {
  std::vector<std::string> notes;
  if (verdict.torch_asked) {
    notes.emplace_back(
        "PyTorch keeps the first answer, so later attempts in the same process are not reported");
  }
  for (const DriverApi kind : kDriverApis) {
    // A process that has re-enabled CUDA may have made a context.
    const bool is_denied_too =
        kind == DriverApi::kContext && verdict.deny.contains(DriverApi::kCuda);
    if (verdict.deny.contains(kind) || is_denied_too) continue;
    std::string note = what_asked(verdict, kind);
    if (note.empty()) continue;
    // A program that asks NVML first finds no GPU there, and may therefore not ask CUDA at all.
    if (kind == DriverApi::kNvml && verdict.asked == 0 && !verdict.queries()) {
      note += "; if NVML finds a GPU, CUDA may follow: --deny=init,nvml fails this";
    }
    notes.push_back(note);
  }
  if (verdict.status != 0 && verdict.no_new_privs) {
    notes.push_back(
        std::string(
            "sudo and setuid programs got no more rights under the fence (no_new_privs); ") +
        (verdict.lost_rights ? "to check it: sudo cudaguard verify -- PROGRAM"
                             : "--fence=off avoids this"));
  }
  if (verdict.devices_fenced) {
    // The kernel reports Landlock's refusals to root's audit log alone. A listener of openat would
    // stop every open of the tree, and could be deceived.
    notes.emplace_back(
        "no GPU device node could be opened (--fence=devices); processes that tried are not known");
  }
  if (verdict.tree.value == TreeTruth::Value::kNotWatched) return notes;
  notes.push_back(account_line(verdict.tree));
  return notes;
}

std::string text_of_end(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

std::string in_colour(const Verdict& verdict, std::string text) {
  using Result = Verdict::Result;
  const std::string_view word = result_word(verdict.result);
  const char* const colour = verdict.result == Result::kPass   ? "\033[1;32m"   // green
                             : verdict.result == Result::kFail ? "\033[1;31m"   // red
                                                               : "\033[1;33m";  // yellow
  const size_t at = text.find(word);
  return text.insert(at + word.size(), "\033[0m").insert(at, colour);
}

std::string text_of_verdict(const Verdict& verdict) {
  std::string out;
  add_wrapped(out, "cudaguard: ", result_line(verdict));
  put_places(out, verdict, true);
  put_places(out, verdict, false);
  for (const std::string& note : unused_patterns(verdict)) add_wrapped(out, "  ", note);
  for (const std::string& note : notes_of(verdict)) add_wrapped(out, "  ", note);
  put_tree(out, verdict);
  return out + what_was_left_out(verdict.findings);
}

}  // namespace cudaguard::launcher
