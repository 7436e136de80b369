// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/native_lines.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>
#include <vector>

#include "policy/text.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{10};  ///< for all files together
constexpr size_t kMostFrames = 1000;           ///< per file, because they are words of a command

/// The question about one file.
struct Question {
  std::set<uint64_t> offsets;
  double first = 0;  ///< time of the first record of a frame; 0: unknown
};

std::map<std::string, Question> questions_of(const Findings& findings) {
  std::map<std::string, Question> questions;
  for (const CallSite& toucher : findings.touchers) {
    for (const NativeFrame& frame : toucher.stack.native) {
      if (!frame.module.starts_with("/") || frame.offset == 0) continue;
      Question& question = questions[frame.module];
      if (question.offsets.size() < kMostFrames) question.offsets.insert(frame.offset);
      if (question.first == 0 || toucher.first < question.first) question.first = toucher.first;
    }
  }
  return questions;
}

/// Runs in the child, because a crafted file must not use up this machine's memory.
bool limit_memory() {
  const rlimit most = {uint64_t{4} << 30, uint64_t{4} << 30};
  return setrlimit(RLIMIT_AS, &most) == 0;
}

bool has_changed(const std::string& path, double since) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return true;
  const timespec& time = status.st_ctim;
  return since != 0 &&
         static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec) > since;
}

/// "/src/app.cpp:12 (discriminator 3)"; if unknown, "??:0", "??:?" or "/src/app.cpp:?".
std::string line_of(std::string_view answer) {
  answer = head(answer, answer.find(" (discriminator "));
  const std::string_view number = tail(answer, std::min(answer.size(), answer.rfind(':') + 1));
  const bool is_known = !answer.starts_with("?") && !number.empty() && number != "0" &&
                        number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_known ? std::string(answer) : std::string();
}

void ask(const std::string& tool, const std::string& path, const std::set<uint64_t>& offsets,
         std::chrono::milliseconds patience, NativeLines& lines) {
  const FileBytes file(path);
  const ElfFunctions functions(file);
  if (!functions.has_lines()) return;
  std::vector<std::string> words = {tool, "-e", path};
  for (const uint64_t offset : offsets) {
    // The call precedes the return address, which may belong to the next line.
    words.push_back(text_of([&](Text& out) { out.put_hex(functions.address_of(offset - 1)); }));
  }
  const char* const no_variables[] = {nullptr};
  const ChildEnd end = run_child(std::move(words), Variables(no_variables), patience, limit_memory);
  if (!end.in_time || end.status != 0) return;
  // The answer must have one line for each offset.
  if (std::count(end.out.begin(), end.out.end(), '\n') !=
      static_cast<std::ptrdiff_t>(offsets.size()))
    return;
  std::string_view rest = end.out;
  for (const uint64_t offset : offsets) {
    const std::string_view answer = head(rest, rest.find('\n'));
    rest = tail(rest, answer.size() + 1);
    if (std::string line = line_of(answer); !line.empty()) lines[{path, offset}] = std::move(line);
  }
}

NativeLines find_native_lines(const Findings& findings, const char* search) {
  NativeLines lines;
  const std::map<std::string, Question> questions = questions_of(findings);
  if (questions.empty()) return lines;
  const auto limit = Clock::now() + kPatience;
  try {
    const std::string tool = find_program("addr2line", search).path;
    for (const auto& [path, question] : questions) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now());
      if (left <= left.zero()) break;
      if (!has_changed(path, question.first)) ask(tool, path, question.offsets, left, lines);
    }
  } catch (const Refusal&) {
    // addr2line is not installed, or no process can be created.
  }
  return lines;
}

}  // namespace

void name_native_lines(Findings& findings, Symbols& symbols, const char* search) {
  symbols.set_lines(find_native_lines(findings, search));
  for (CallSite& toucher : findings.touchers) {
    if (!toucher.line.empty() || !toucher.stack.python.empty()) continue;
    const NativeFrame* own = own_frame(toucher.stack.native, symbols);
    if (own != nullptr) toucher.line = base_name(symbols.line_of(*own));
  }
}

}  // namespace cudaguard::launcher
