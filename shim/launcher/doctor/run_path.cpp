// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/run_path.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

#include "policy/library.h"
#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

#if defined(__x86_64__)
constexpr const char* kLibs[] = {"lib/x86_64-linux-gnu", "lib64"};  // Debian's, everybody else's
#elif defined(__aarch64__)
constexpr const char* kLibs[] = {"lib/aarch64-linux-gnu", "lib64"};
#endif

/// Every $NAME and ${NAME}.
std::string replaced(std::string text, const std::string& name, std::string_view value) {
  for (const std::string& word : {"${" + name + "}", "$" + name}) {
    for (size_t at = text.find(word); at != std::string::npos;
         at = text.find(word, at + value.size())) {
      text.replace(at, word.size(), value);
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> run_path_folders(std::string_view run_path, const std::string& file) {
  std::string origin(folder_of(file));
  if (origin.empty()) origin = file.starts_with("/") ? "/" : ".";
  std::vector<std::string> folders;
  while (!run_path.empty()) {
    const size_t end = std::min(run_path.find(':'), run_path.size());
    const std::string folder = replaced(std::string(run_path.substr(0, end)), "ORIGIN", origin);
    run_path.remove_prefix(std::min(end + 1, run_path.size()));
    for (const char* lib : kLibs) {
      std::string expanded = replaced(folder, "LIB", lib);
      if (expanded.empty()) expanded = ".";
      if (std::find(folders.begin(), folders.end(), expanded) == folders.end()) {
        folders.push_back(std::move(expanded));
      }
    }
  }
  return folders;
}

std::vector<std::string> drivers_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(folder.c_str()), closedir);
  std::vector<std::string> found;
  if (stream == nullptr) return found;
  while (const dirent* entry = readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (classify(entry->d_name).library != Library::kOther) {
      found.push_back(folder + "/" + entry->d_name);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace cudaguard::launcher
