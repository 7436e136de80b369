// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/command.h"

#include <algorithm>

#include "policy/text.h"

namespace cudaguard::launcher {

void Command::add(std::string_view word) {
  if (is_cut) return;
  if (!text.empty()) text += '\0';
  text += word;
  is_cut = text.size() >= kMost;
}

std::vector<std::string_view> Command::words() const {
  std::vector<std::string_view> all;
  std::string_view rest = text;
  for (size_t end = 0; (end = rest.find('\0')) != std::string_view::npos;) {
    all.push_back(head(rest, end));
    rest = tail(rest, end + 1);
  }
  all.push_back(rest);
  return all;
}

std::string_view Command::program() const { return base_name(head(text, text.find('\0'))); }

std::string Command::shown() const {
  constexpr size_t kMostShown = 1024;
  std::string line(tail(text, text.rfind('/', text.find('\0')) + 1));
  line.resize(std::min(line.size(), line.find('\0', kMostShown)));
  line.resize(line.find_last_not_of('\0') + 1);  // setproctitle leaves zeros after a title
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

}  // namespace cudaguard::launcher
