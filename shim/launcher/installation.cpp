// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/installation.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>

#include "policy/text.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload.h"

namespace cudaguard::launcher {

namespace {

/// The path of this executable.
std::string own_path() {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  if (length > 0 && static_cast<size_t>(length) < sizeof self) {
    return {self, static_cast<size_t>(length)};
  }
  // A root without /proc. The kernel gives the path that was started, from this very folder.
  const char* started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  const std::unique_ptr<char, void (*)(void*)> path(
      started == nullptr ? nullptr : realpath(started, nullptr), free);
  if (path == nullptr) {
    throw Refusal(kRefused, "no /proc, and no path of cudaguard itself: where is libcudaguard.so?");
  }
  return path.get();
}

}  // namespace

Installation find_installation() {
  const std::string self = own_path();
  const std::string_view bin = folder_of(self);
  const std::string lib = std::string(folder_of(bin)) + "/lib";
  if (!can_be_preloaded(lib)) {
    throw Refusal(kRefused, "installed in " + in_quotes(folder_of(bin)) +
                                ", a path with a space or a colon: ld.so splits LD_PRELOAD there");
  }
  Installation found;
  found.guard = lib + "/libcudaguard.so";
  found.standin_cuda = lib + "/cudaguard/libcuda.so.1";
  found.standin_nvml = lib + "/cudaguard/libnvidia-ml.so.1";
  found.companion_cuda = lib + "/cudaguard/libcudaguard-driver.so";
  found.companion_nvml = lib + "/cudaguard/libcudaguard-nvml.so";
  if (access(found.guard.c_str(), R_OK) != 0) {
    throw Refusal(kRefused, printable(found.guard) + " is missing or cannot be read");
  }
  return found;
}

}  // namespace cudaguard::launcher
