// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/alike.h"

#include <algorithm>

namespace cudaguard::launcher {

namespace {

/// The number that begins there; empty: none does.
std::string number_at(const std::string& text, size_t i) {
  if (i >= text.size()) return {};
  return text.substr(i, std::min(text.find_first_not_of("0123456789*", i), text.size()) - i);
}

}  // namespace

std::string without_numbers(const std::string& command) {
  std::string result;
  for (size_t i = 0; i < command.size();) {
    const std::string number = number_at(command, i);
    result += number.empty() ? command[i] : '*';
    i += std::max<size_t>(number.size(), 1);
  }
  return result;
}

std::string in_common(const std::string& a, const std::string& b) {
  std::string result;
  for (size_t i = 0, j = 0; i < a.size();) {
    const std::string left = number_at(a, i);
    const std::string right = number_at(b, j);
    result += left.empty() ? a.substr(i, 1) : left == right ? left : "*";
    i += std::max<size_t>(left.size(), 1);
    j += std::max<size_t>(right.size(), 1);
  }
  return result;
}

}  // namespace cudaguard::launcher
