// SPDX-License-Identifier: Apache-2.0
// What a record says of the process, its machine and its job. Of files below /proc: no system call
// that loading a library does not make as well. Thread-safe, async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/message.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Where the texts of ProcessFacts lie.
struct FactsRoom {
  char executable[4096];
  char arguments[32768];
  char host[80];
  char cgroup[8192];
};

/// What is in a file, as far as there is room for it.
std::string_view read_all(const char* path, char* to, size_t size);

ProcessFacts gather_facts(FactsRoom& room, uint32_t pid);

}  // namespace cudaguard
