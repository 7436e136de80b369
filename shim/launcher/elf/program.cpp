// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr int kMostScripts = 5;      // the kernel's own limit
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

/// Long options of env that matter here. getopt accepts the beginning of a name.
bool is_long(std::string_view name, std::string_view whole, size_t shortest) {
  return name.size() >= shortest && whole.starts_with(name);
}

/// Splits as `env -S` does. A variable's value is not known here, so it stays as it is written.
std::vector<std::string> split_like_env(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool some = false;  // also for ''
  char quote = 0;
  const auto end = [&] {
    if (some) words.push_back(word);
    word.clear();
    some = false;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
      some = true;
    } else if (quote == 0 && std::string_view(" \t\n\f\r\v").find(c) != std::string_view::npos) {
      end();
    } else if (quote == 0 && !some && c == '#') {
      return words;
    } else if (c != '\\' || at + 1 == text.size()) {
      word += c;
      some = true;
    } else {
      const char next = text[++at];
      constexpr std::string_view kLetters = "fnrtv";
      const size_t letter = kLetters.find(next);
      if (quote == '\'') {
        // Only \\ and \' are special here.
        word += next == '\\' || next == quote ? std::string(1, next) : std::string{c, next};
      } else if (next == 'c') {
        end();
        return words;
      } else if (next == '_' && quote == 0) {
        end();
        continue;
      } else {
        word += next == '_' ? ' ' : letter == std::string_view::npos ? next : "\f\n\r\t\v"[letter];
      }
      some = true;
    }
  }
  end();
  return words;
}

/// The words that env still has to read.
class EnvWords {
 public:
  explicit EnvWords(std::string_view argument) { words_.emplace_back(argument); }
  bool empty() const { return words_.empty(); }
  std::string take() {
    if (words_.empty()) return {};
    std::string word = std::move(words_.front());
    words_.pop_front();
    return word;
  }
  void split(std::string_view text) {
    const std::vector<std::string> words = split_like_env(text);
    words_.insert(words_.begin(), words.begin(), words.end());
  }

 private:
  std::deque<std::string> words_;
};

/// A group of short options: "-i", "-vS", "-uNAME".
bool group_takes_preload(std::string_view group, EnvWords& words) {
  for (size_t at = 1; at < group.size(); ++at) {
    const char option = group[at];
    if (option == 'i') return true;
    if (option != 'u' && option != 'C' && option != 'a' && option != 'S') continue;
    std::string value(group.substr(at + 1));
    if (value.empty()) value = words.take();
    if (option == 'S') words.split(value);
    return option == 'u' && value == kPreload;
  }
  return group.size() == 1;  // "-" means "-i"
}

bool long_takes_preload(std::string_view option, EnvWords& words) {
  const size_t equals = option.find('=');
  const std::string_view name = option.substr(2, equals == option.npos ? equals : equals - 2);
  if (is_long(name, "ignore-environment", 8)) return true;
  const bool unset = is_long(name, "unset", 1);
  const bool split = is_long(name, "split-string", 1);
  if (!unset && !split && !is_long(name, "chdir", 1) && !is_long(name, "argv0", 1)) return false;
  const std::string value =
      equals == option.npos ? words.take() : std::string(option.substr(equals + 1));
  if (split) words.split(value);
  return unset && value == kPreload;
}

struct Script {
  std::string interpreter;
  std::string argument;  ///< the kernel passes one word, including blanks
};

/// Reads the "#!" line like the kernel. Returns false if it names no interpreter.
bool read_script(const std::string& head, Script& script) {
  std::string_view line = std::string_view(head).substr(2, head.find('\n') - 2);
  line = line.substr(0, line.find('\0'));
  line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
  script.interpreter = take_word(line);
  script.argument = without_blanks(line);
  return !script.interpreter.empty();
}

/// Reads the beginning of a file that is no ELF file; empty if that fails.
std::string read_head(const FileBytes& file) {
  std::string head(static_cast<size_t>(std::min<uint64_t>(file.size(), kScriptHead)), '\0');
  return file.read(0, head.data(), head.size()) ? head : "";
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
  Script script;
  if (!head.starts_with("#!") || !read_script(head, script)) {
    if (depth > 0 || head.find('\0') != std::string::npos) {
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
    refuse(script.interpreter, reason, "the interpreter of " + in_quotes(path) + ", ");
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
    if (is_assignment(word, "PATH")) return {};  // env would search the program there
    if (word.find('=') == std::string_view::npos) return std::string(word);
  }
  return {};
}

bool env_takes_preload(std::string_view argument) {
  EnvWords words(argument);
  bool options = true;
  while (!words.empty()) {
    const std::string word = words.take();
    if (options && word == "--") {
      options = false;
    } else if (options && word.starts_with("--")) {
      if (long_takes_preload(word, words)) return true;
    } else if (options && word.starts_with("-")) {
      if (group_takes_preload(word, words)) return true;
    } else if (is_assignment(word, kPreload)) {
      return true;
    } else if (word.find('=') != std::string::npos) {
      options = false;
    } else if (base_name(word) != "env") {
      return false;  // this word is the program
    } else {
      options = true;  // env may start env
    }
  }
  return false;
}

}  // namespace cudaguard::launcher
