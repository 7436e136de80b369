// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/children.h"

#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <memory>

#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostNames = 4;

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
    if (read_stat(pid).parent == getpid()) found.insert(pid);
  }
  return found;
}

bool descends_from_this_process(pid_t pid) {
  while (pid > 1 && pid != getpid()) pid = read_stat(pid).parent;
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
    text.append(text.empty() ? "" : ", ").append(printable(read_stat(pid).name));
    text.append(" (").append(number).append(")");
  }
  return text;
}

}  // namespace cudaguard::launcher
