// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "policy/text.h"
#include "shim/launcher/elf/env_line.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr int kMostScripts = 5;      // the kernel's own limit
constexpr size_t kMostFiles = 32;    // env starts a new chain, and may form a cycle
constexpr size_t kScriptHead = 256;  // the kernel reads this much of a "#!" line
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

[[noreturn]] void refuse(const std::string& path, int error, const std::string& whose) {
  std::string why = std::string(": ") + strerror(error);
  if (error == EACCES) why += " (it is not executable)";
  if (error == ENOENT && whose.empty()) why += remedy(path);
  throw Refusal(error == ENOENT ? kNotFound : kCannotRun, whose + in_quotes(path) + why);
}

std::string look_up(const std::string& name, const char* search, const std::string& whose) {
  if (name.find('/') != std::string::npos) {
    if (const int error = cannot_start(name); error != 0) refuse(name, error, whose);
    return name;
  }
  int worst = ENOENT;
  std::string_view rest = search == nullptr ? kDefaultPath : search;
  while (!name.empty()) {
    const size_t colon = rest.find(':');
    std::string path(rest.substr(0, colon));
    if (!path.empty()) path += "/";
    path += name;
    const int error = cannot_start(path);
    if (error == 0) return path;
    if (error == EACCES || (error == EISDIR && worst == ENOENT)) worst = error;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  refuse(name, worst, whose);
}

struct Script {
  std::string interpreter;
  std::string argument;  ///< the kernel passes one word, including blanks
};

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// Reads the "#!" line like the kernel. Returns false if it names no interpreter.
bool read_script(const std::string& head, Script& script) {
  std::string line = head.substr(2, head.find('\n') - 2);
  line.resize(std::min(line.size(), line.find('\0')));
  while (!line.empty() && is_blank(line.back())) line.pop_back();
  size_t start = 0;
  while (start < line.size() && is_blank(line[start])) ++start;
  size_t end = start;
  while (end < line.size() && !is_blank(line[end])) ++end;
  script.interpreter = line.substr(start, end - start);
  while (end < line.size() && is_blank(line[end])) ++end;
  script.argument = line.substr(end);
  return !script.interpreter.empty();
}

/// The beginning of a file.
struct Start {
  int error = 0;
  ElfFacts facts;
  std::string head;  ///< empty for an ELF file
};

/// Closes the file, because descriptors may be scarce.
Start read_start(const std::string& path) {
  const FileBytes file(path);
  Start start = {file.error(), read_elf(file), ""};
  if (start.error != 0 || start.facts.is_elf) return start;
  start.head.resize(static_cast<size_t>(std::min<uint64_t>(file.size(), kScriptHead)));
  if (!file.read(0, start.head.data(), start.head.size())) start.head.clear();
  return start;
}

void follow(const std::string& path, const char* search, int depth, Program& program) {
  program.files.push_back(path);
  auto [error, facts, head] = read_start(path);
  if (error == EMFILE || error == ENFILE) {
    program.not_read = strerror(error);
    return;
  }
  if (error != 0) {
    throw Refusal(kRefused,
                  in_quotes(path) + " cannot be read, which the check needs: " + strerror(error));
  }
  if (facts.is_elf) {
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
  Script script;
  if (!head.starts_with("#!") || !read_script(head, script)) {
    if (depth > 0 || head.find('\0') != std::string::npos) {
      throw Refusal(kCannotRun, in_quotes(path) + " is neither an ELF file nor a script");
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
  if (const int error = cannot_start(script.interpreter); error != 0) {
    refuse(script.interpreter, error, "the interpreter of " + in_quotes(path) + ", ");
  }
  follow(script.interpreter, search, depth + 1, program);
  if (base_name(script.interpreter) != "env") return;
  const std::string next = started_by_env(script.argument);
  if (env_takes_preload(script.argument)) program.env_clears = true;
  if (next.empty() || base_name(next) == "env" || program.env_clears) {
    program.env_words = script.argument;
  }
  if (next.empty()) return;
  follow(look_up(next, search, "the interpreter of " + in_quotes(path) + ", "), search, 0, program);
}

}  // namespace

Program find_program(const std::string& name, const char* search) {
  Program program;
  program.path = look_up(name, search, "");
  follow(program.path, search, 0, program);
  return program;
}

}  // namespace cudaguard::launcher
