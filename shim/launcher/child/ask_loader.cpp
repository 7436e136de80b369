// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/ask_loader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "shim/launcher/child/child.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

/// The time limit of the second run, which only finds out where the first one hangs.
constexpr std::chrono::seconds kSecondPatience{2};

/// "\tlibc.so.6 => /lib/libc.so.6 (0x7f)", "\t/lib/ld.so (0x7f)", "\tlibx.so => not found".
void read_line(std::string_view line, LoaderAnswer& answer) {
  if (!line.starts_with("\t")) return;
  line.remove_prefix(1);
  const size_t address = line.rfind(" (0x");
  const bool found = address != std::string_view::npos;
  if (found) line = line.substr(0, address);
  const size_t arrow = line.find(" => ");
  LoadedLibrary library;
  library.name = line.substr(0, arrow);
  if (found) library.path = arrow == std::string_view::npos ? line : line.substr(arrow + 4);
  answer.libraries.push_back(std::move(library));
}

/// The last file that LD_DEBUG=libs,files names: "trying file=/x/libcuda.so.1",
/// "file=/x/y.so [0];  needed by ...".
std::string last_file(std::string_view errors) {
  constexpr std::string_view kMark = "file=";
  const size_t at = errors.rfind(kMark);
  if (at == std::string_view::npos) return {};
  errors.remove_prefix(at + kMark.size());
  errors = errors.substr(0, errors.find('\n'));
  return std::string(errors.substr(0, errors.find(" [")));
}

/// Describes the hang. Runs ld.so once more to find the file, unless a process cannot be killed.
std::string trouble_of(const std::vector<std::string>& words, Variables variables,
                       std::chrono::seconds patience, pid_t stuck) {
  std::string trouble = "gave no answer within " + std::to_string(patience.count()) + " s";
  if (stuck == 0) {
    variables.set("LD_DEBUG", "libs,files");
    const ChildEnd again = run_child(words, variables, std::min(patience, kSecondPatience));
    const std::string file = again.in_time ? "" : last_file(again.err);
    if (!file.empty()) trouble += ", at " + printable(file);
    stuck = again.stuck;
  }
  if (stuck != 0) trouble += "; process " + std::to_string(stuck) + " does not die of SIGKILL";
  return trouble;
}

}  // namespace

const LoadedLibrary* LoaderAnswer::find(std::string_view name) const {
  const auto found = std::find_if(libraries.begin(), libraries.end(),
                                  [&](const LoadedLibrary& row) { return row.name == name; });
  return found == libraries.end() ? nullptr : &*found;
}

void unset_loader_questions(Variables& variables) {
  for (const char* name : {"LD_AUDIT", "LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_PROFILE",
                           "LD_PROFILE_OUTPUT", "LD_SHOW_AUXV", "LD_TRACE_LOADED_OBJECTS",
                           "LD_TRACE_PRELINKING", "LD_VERBOSE", "LD_WARN"}) {
    variables.unset(name);
  }
}

LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables, std::chrono::seconds patience) {
  Variables own = variables;
  unset_loader_questions(own);
  own.unset("LD_BIND_NOW");  // in this mode it makes ld.so do more
  own.set("LD_TRACE_LOADED_OBJECTS", "1");
  // Works like ldd: ld.so as a command is never privileged. An ld.so that does not know the
  // variable would start the program, so it gets --list, which stops at a missing library.
  std::vector<std::string> words = {loader};
  if (!has_constant(FileBytes(loader), "TRACE_LOADED_OBJECTS")) words.emplace_back("--list");
  // Without a slash, ld.so would search for the executable like for a library.
  words.push_back(executable.find('/') == std::string::npos ? "./" + executable : executable);
  ChildEnd end = run_child(words, own, patience);
  if (end.not_started != 0) {
    const bool missing = end.not_started == ENOENT;
    throw Refusal(missing ? kNotFound : kCannotRun, "the interpreter of " + in_quotes(executable) +
                                                        ", " + in_quotes(loader) + ": " +
                                                        strerror(end.not_started));
  }
  LoaderAnswer answer;
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) read_line(line, answer);
  answer.errors = std::move(end.err);
  if (!end.in_time) answer.trouble = trouble_of(words, own, patience, end.stuck);
  return answer;
}

}  // namespace cudaguard::launcher
