// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/elf/binfmt.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostFiles = 32;    // env starts a new chain, and may form a cycle
constexpr size_t kScriptHead = 256;  // the kernel reads this much of a "#!" line
constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kPreload = "LD_PRELOAD";
constexpr const char* kDefaultPath = "/bin:/usr/bin";  // execvp's, if PATH is unset

/// Returns 0 if the file can be started, otherwise EISDIR, EACCES, ENOENT...
int cannot_start(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return access(path.c_str(), X_OK) == 0 && S_ISREG(status.st_mode) ? 0 : EACCES;
}

/// Returns what to do if the file of a command is not found; empty if unknown.
std::string remedy(const std::string& name) {
  if (name.find('/') == std::string::npos && access(name.c_str(), F_OK) == 0 && !name.empty()) {
    return "; did you mean ./" + printable(name) + "?";
  }
  const size_t equals = name.find('=');
  if (equals != std::string::npos && equals != 0 && name.find_first_of(" /") > equals) {
    return "; to set a variable: env " + printable(name) + " PROGRAM";
  }
  const std::string first = name.substr(0, name.find(' '));
  const bool path = first.find('/') != std::string::npos;
  if (first == name || (path && access(first.c_str(), F_OK) != 0)) return "";
  return "; to start a program with arguments, leave out the quotes: " + printable(name);
}

/// `found` is the file that gave the error; another one than `path` if that is a name in PATH.
[[noreturn]] void refuse(const std::string& path, int error, const std::string& whose,
                         const std::string& found) {
  std::string why = std::string(": ") + strerror(error);
  struct stat status = {};
  if (error == EACCES) {
    why += stat(found.c_str(), &status) == 0 ? " (it is not executable)"
                                             : " (you may not enter a directory of its path)";
  }
  if (error == ENOENT && whose.empty()) why += remedy(path);
  throw Refusal(error == ENOENT ? kNotFound : kCannotRun, whose + in_quotes(path) + why);
}

std::string look_up(const std::string& name, const char* search, const std::string& whose) {
  if (name.find('/') != std::string::npos) {
    if (const int error = cannot_start(name); error != 0) refuse(name, error, whose, name);
    return name;
  }
  int worst = ENOENT;
  std::string found;
  std::string_view rest = search == nullptr ? kDefaultPath : search;
  while (!name.empty()) {
    const size_t colon = rest.find(':');
    std::string path(rest.substr(0, colon));
    if (!path.empty()) path += "/";
    path += name;
    const int error = cannot_start(path);
    if (error == 0) return path;
    if (error == EACCES || (error == EISDIR && worst == ENOENT)) {
      worst = error;
      found = path;
    }
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  refuse(name, worst, whose, found);
}

std::string_view without_blanks(std::string_view text) {
  const size_t start = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(start);
}

/// Removes and returns the first word. Keeps its quotes.
std::string_view take_word(std::string_view& text) {
  text = without_blanks(text);
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

bool is_assignment(std::string_view word, std::string_view name) {
  return word.starts_with(name) && word.substr(name.size()).starts_with("=");
}

void follow(const std::string& path, const char* search, int depth, Program& program) {
  program.files.push_back(path);
  std::optional<FileBytes> file(std::in_place, path);
  // It may be executed nevertheless: its mode is 0711, or no descriptor is left.
  if (file->error() != 0) {
    program.not_read = strerror(file->error());
    return;
  }
  if (ElfFacts facts = read_elf(*file); facts.is_elf) {
    if (!facts.damage.empty()) {
      throw Refusal(kCannotRun, in_quotes(path) + " is damaged: " + facts.damage);
    }
    // A static executable needs no libraries, even if it names some.
    if (facts.interpreter.empty() && !facts.needed.empty()) {
      throw Refusal(kCannotRun, in_quotes(path) + " is a shared library, no program");
    }
    program.executables.push_back({path, std::move(facts)});
    return;
  }
  const std::string head = read_head(*file);
  file.reset();  // descriptors may be scarce
  ScriptLine script = read_script(head);
  if (script.interpreter.empty()) {
    if (depth > 0 || head.find('\0') != std::string::npos || is_emulated(head, path)) {
      program.unknown = true;
      return;
    }
    // Does the same as execvp, which env and timeout use.
    if (path == program.path) program.by_shell = true;
    script.interpreter = kShell;
  }
  if (depth == kMostScripts || program.files.size() > kMostFiles) {
    throw Refusal(kCannotRun, in_quotes(program.path) +
                                  ": more than 5 scripts, each the "
                                  "interpreter of another");
  }
  if (const int reason = cannot_start(script.interpreter); reason != 0) {
    refuse(script.interpreter, reason, "the interpreter of " + in_quotes(path) + ", ",
           script.interpreter);
  }
  follow(script.interpreter, search, depth + 1, program);
  if (base_name(script.interpreter) != "env") return;
  const std::string next = started_by_env(script.argument);
  if (next.empty() || base_name(next) == "env") program.env_words = script.argument;
  if (next.empty()) return;
  follow(look_up(next, search, "the interpreter of " + in_quotes(path) + ", "), search, 0, program);
}

}  // namespace

std::string read_head(const FileBytes& file) {
  std::string head(static_cast<size_t>(std::min<uint64_t>(file.size(), kScriptHead)), '\0');
  return file.read(0, head.data(), head.size()) ? head : "";
}

ScriptLine read_script(std::string_view head) {
  if (!head.starts_with("#!")) return {};
  std::string_view line = head.substr(2, head.find('\n') - 2);
  line = line.substr(0, line.find('\0'));
  ScriptLine script;
  script.interpreter = take_word(line);
  // The kernel refuses a name whose end it has not read.
  if (line.empty() && head.size() == kScriptHead && head.ends_with(script.interpreter)) return {};
  line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
  script.argument = without_blanks(line);
  return script;
}

Program find_program(const std::string& name, const char* search) {
  Program program;
  program.path = look_up(name, search, "");
  follow(program.path, search, 0, program);
  return program;
}

std::string started_by_env(std::string_view argument) {
  constexpr std::string_view kSplit = "--split-string=";
  if (argument.starts_with(kSplit)) {
    argument.remove_prefix(kSplit.size());
  } else if (argument.starts_with("-S")) {
    argument.remove_prefix(2);
  } else {
    const bool plain =
        !argument.starts_with("-") && argument.find_first_of("=\"'\\$") == std::string_view::npos;
    return plain ? std::string(argument) : std::string();
  }
  while (!without_blanks(argument).empty()) {
    const std::string_view word = take_word(argument);
    if (word.starts_with("-") || word.find_first_of("\"'\\$") != std::string_view::npos) return {};
    // With PATH, env would search the program there.
    if (is_assignment(word, "PATH") || is_assignment(word, kPreload)) return {};
    if (word.find('=') == std::string_view::npos) return std::string(word);
  }
  return {};
}

}  // namespace cudaguard::launcher
