// SPDX-License-Identifier: Apache-2.0
// The state of proxy_loader/ (see shim/guard/state/process.h).
#pragma once

#include <atomic>

#include "shim/guard/elf/own_files.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct ProxyLoaderProcess {
  std::atomic<bool> no_nvml{false};  ///< NVML's proxy cannot be used
};

struct ProxyLoaderInherited {
  SharedOwnLibrary proxies[2];
};

}  // namespace cudaguard
