// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/env_line.h"

#include <algorithm>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kPreload = "LD_PRELOAD";

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

/// A group of short options: "-i", "-vS", "-uNAME". `rest` has the words after it.
bool group_takes_preload(std::string_view group, std::string_view& rest) {
  for (size_t at = 1; at < group.size(); ++at) {
    if (group[at] == 'i') return true;
    if (group[at] == 'u' || group[at] == 'C') {
      std::string_view value = group.substr(at + 1);
      if (value.empty()) value = take_word(rest);
      return group[at] == 'u' && value == kPreload;
    }
    if (group[at] == 'S') {
      // The text after S is more of the line: "-Spython3", "-S-i".
      const std::string_view more = group.substr(at + 1);
      return more.starts_with("-") && more.size() > 1 && group_takes_preload(more, rest);
    }
  }
  return group.size() == 1;  // "-" means "-i"
}

bool long_takes_preload(std::string_view option, std::string_view& rest) {
  if (option == "--ignore-environment") return true;
  if (option == "--unset") return take_word(rest) == kPreload;
  return is_assignment(option, "--unset") && option.ends_with("=LD_PRELOAD");
}

}  // namespace

std::string started_by_env(std::string_view argument) {
  const bool split = argument.starts_with("-S");
  if (!split) {
    const bool plain =
        !argument.starts_with("-") && argument.find_first_of("=\"'\\$") == std::string_view::npos;
    return plain ? std::string(argument) : std::string();
  }
  argument.remove_prefix(2);
  while (!without_blanks(argument).empty()) {
    const std::string_view word = take_word(argument);
    if (word.starts_with("-") || word.find_first_of("\"'\\$") != std::string_view::npos) return {};
    if (is_assignment(word, "PATH")) return {};  // env would search the program there
    if (word.find('=') == std::string_view::npos) return std::string(word);
  }
  return {};
}

bool env_takes_preload(std::string_view argument) {
  std::string_view rest = argument;
  while (!without_blanks(rest).empty()) {
    const std::string_view word = take_word(rest);
    if (word.starts_with("--")) {
      if (long_takes_preload(word, rest)) return true;
    } else if (word.starts_with("-")) {
      if (group_takes_preload(word, rest)) return true;
    } else if (is_assignment(word, kPreload)) {
      return true;
    } else if (word.find('=') == std::string_view::npos && base_name(word) != "env") {
      return false;  // this word is the program; env may start env
    }
  }
  return false;
}

}  // namespace cudaguard::launcher
