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
#include "shim/launcher/print/summary.h"

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

}  // namespace cudaguard::launcher
