// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/preload.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "policy/text.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kGuard = "/libcudaguard.so";

/// The path of this executable, without links.
std::string own_path() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length > 0) return {path, static_cast<size_t>(length)};
  // Without /proc, resolves the path of the start command from the current directory.
  const char* started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (started == nullptr || realpath(started, path) == nullptr) {
    throw Refusal(
        kRefused,
        "libcudaguard.so is not found: there is no /proc; start cudaguard by its full path");
  }
  return path;
}

/// Follows `way` from `directory`, which contains no links.
std::string go(std::string_view directory, std::string_view way) {
  for (; way.starts_with("../"); way.remove_prefix(3)) directory = directory_of(directory);
  return std::string(directory) + "/" + std::string(way);
}

}  // namespace

bool is_own_library(std::string_view entry) {
  const std::string_view name = base_name(entry);
  if (name == "libcudaguard.so" || name.starts_with("libcudaguard-")) return true;
  return (name == "libcuda.so.1" || name == "libnvidia-ml.so.1") &&
         base_name(directory_of(entry)) == "cudaguard";
}

bool is_sanitizer_runtime(std::string_view path) {
  const std::string_view name = base_name(path);
  for (const std::string_view kind : {"asan", "tsan", "ubsan", "lsan", "hwasan"}) {
    if (name.starts_with("lib" + std::string(kind) + ".so")) return true;
    if (name.starts_with("libclang_rt." + std::string(kind))) return true;
  }
  return false;
}

std::vector<std::string> preload_entries(const char* list) {
  std::vector<std::string> entries;
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(" :"), rest.size());
    if (end > 0) entries.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return entries;
}

std::string preload_list(const char* before, const std::vector<std::string>& first,
                         const std::vector<std::string>& own) {
  std::vector<std::string> entries = first;
  std::vector<std::string> others;
  for (const std::string& entry : preload_entries(before)) {
    if (is_own_library(entry)) continue;
    if (std::find(entries.begin(), entries.end(), entry) != entries.end()) continue;
    // A user who preloads a sanitizer's runtime knows that it must come first.
    (is_sanitizer_runtime(entry) ? entries : others).push_back(entry);
  }
  entries.insert(entries.end(), own.begin(), own.end());
  entries.insert(entries.end(), others.begin(), others.end());
  std::string result;
  for (const std::string& entry : entries) result += (result.empty() ? "" : ":") + entry;
  return result;
}

Installation expected_installation() {
  const std::string self = own_path();
  const std::string_view bin = directory_of(self);
  // The packager may choose another name for lib; a build tree always has lib.
  std::string lib = go(bin, CUDAGUARD_LIB_FROM_BIN);
  const std::string plain = go(bin, "../lib");
  if (access((lib + kGuard).c_str(), R_OK) != 0 && access((plain + kGuard).c_str(), R_OK) == 0) {
    lib = plain;
  }
  Installation found;
  found.guard = lib + kGuard;
  found.null_driver_cuda = lib + "/cudaguard/libcuda.so.1";
  found.null_driver_nvml = lib + "/cudaguard/libnvidia-ml.so.1";
  found.proxy_cuda = lib + "/cudaguard/libcudaguard-driver.so";
  found.proxy_nvml = lib + "/cudaguard/libcudaguard-nvml.so";
  found.probe = lib + "/cudaguard/cudaguard-probe";
  return found;
}

Installation find_installation() {
  Installation found = expected_installation();
  if (!can_be_preloaded(found.guard)) {
    throw Refusal(kRefused,
                  in_quotes(directory_of(directory_of(own_path()))) +
                      ": LD_PRELOAD takes no path with a space or a colon; install cudaguard "
                      "elsewhere");
  }
  if (access(found.guard.c_str(), R_OK) != 0) {
    throw Refusal(kRefused, printable(found.guard) +
                                " is missing or cannot be read; install cudaguard again");
  }
  return found;
}

}  // namespace cudaguard::launcher
