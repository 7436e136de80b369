// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/installation.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "policy/text.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

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

Installation find_installation() {
  const std::string self = own_path();
  const std::string_view bin = directory_of(self);
  // The packager may choose another name for lib; a build tree always has lib.
  std::string lib = go(bin, CUDAGUARD_LIB_FROM_BIN);
  const std::string plain = go(bin, "../lib");
  if (access((lib + kGuard).c_str(), R_OK) != 0 && access((plain + kGuard).c_str(), R_OK) == 0) {
    lib = plain;
  }
  if (!can_be_preloaded(lib)) {
    throw Refusal(kRefused,
                  in_quotes(directory_of(bin)) +
                      ": LD_PRELOAD takes no path with a space or a colon; install cudaguard "
                      "elsewhere");
  }
  Installation found;
  found.guard = lib + kGuard;
  found.null_driver_cuda = lib + "/cudaguard/libcuda.so.1";
  found.null_driver_nvml = lib + "/cudaguard/libnvidia-ml.so.1";
  found.proxy_cuda = lib + "/cudaguard/libcudaguard-driver.so";
  found.proxy_nvml = lib + "/cudaguard/libcudaguard-nvml.so";
  if (access(found.guard.c_str(), R_OK) != 0) {
    throw Refusal(kRefused, printable(found.guard) +
                                " is missing or cannot be read; install cudaguard again");
  }
  return found;
}

}  // namespace cudaguard::launcher
