// SPDX-License-Identifier: Apache-2.0
// Prints where the launcher would find its files, if it were this program.
#include <cstdio>

#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

int main() {
  using namespace cudaguard::launcher;
  try {
    const Installation found = find_installation();
    for (const std::string& file : {found.guard, found.null_driver_cuda, found.null_driver_nvml,
                                    found.proxy_cuda, found.proxy_nvml}) {
      puts(file.c_str());
    }
  } catch (const Refusal& refusal) {
    puts(refusal.what());
    return refusal.code();
  }
  return 0;
}
