// SPDX-License-Identifier: Apache-2.0
// What a record says of the process, its machine and its job. Of files below /proc: no system call
// that loading a library does not make as well. Thread-safe, async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/message.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Where the texts of ProcessFacts lie, one behind the other: most often in one page.
struct FactsRoom {
  static constexpr size_t kPath = 4096, kHost = 80, kCgroup = 8192;
  char text[kPath + kHost + kCgroup];
};

/// What is in a file, as far as there is room for it.
std::string_view read_all(const char* path, char* to, size_t size);

/// The machine's name; empty if there is no /proc.
std::string_view read_host(char* to, size_t size);

/// For a record of this touch, whose `program` is known.
ProcessFacts gather_facts(FactsRoom& room, uint32_t pid, const Touch& touch);

}  // namespace cudaguard
