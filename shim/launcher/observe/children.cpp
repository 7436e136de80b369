// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/children.h"

#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostNames = 4;

/// The fields of /proc/PID/stat: "12 (any ) name) S 1 ...".
struct Stat {
  std::string name;
  pid_t parent = -1;
};

Stat read_stat(const std::string& pid) {
  Stat result;
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line, '\0');
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 4 >= line.size()) {
    return result;
  }
  result.name = line.substr(open + 1, close - open - 1);
  std::from_chars(line.data() + close + 4, line.data() + line.size(), result.parent);
  return result;
}

}  // namespace

std::set<pid_t> children_of_this_process() {
  std::set<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe)
    const char* name = entry->d_name;
    pid_t pid = 0;
    const auto parsed = std::from_chars(name, name + strlen(name), pid);
    if (parsed.ec != std::errc() || *parsed.ptr != '\0') continue;
    if (read_stat(name).parent == getpid()) found.insert(pid);
  }
  return found;
}

bool descends_from_this_process(pid_t pid) {
  while (pid > 1 && pid != getpid()) pid = read_stat(std::to_string(pid)).parent;
  return pid == getpid();
}

std::string names_of(const std::set<pid_t>& processes) {
  std::string text;
  size_t count = 0;
  for (const pid_t pid : processes) {
    if (++count > kMostNames) {
      return text + " and " + std::to_string(processes.size() - kMostNames) + " more";
    }
    const std::string number = std::to_string(pid);
    text.append(text.empty() ? "" : ", ").append(printable(read_stat(number).name));
    text.append(" (").append(number).append(")");
  }
  return text;
}

}  // namespace cudaguard::launcher
