// SPDX-License-Identifier: Apache-2.0
// What a record says about the process, its machine and its job. Most of it comes from files below
// /proc. Reading these needs only system calls that loading a library makes, too. Thread-safe,
// async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/guard/text/record.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Room for the texts of ProcessFacts, one after the other: most often in one page.
struct FactsRoom {
  static constexpr size_t kPath = 4096, kHost = 80, kCgroup = 8192;
  char text[kPath + kHost + kCgroup];
};

/// Returns the content of a file, as far as there is room for it.
std::string_view read_all(const char* path, char* to, size_t size);

/// Room for the arguments of this process, and of those that started it.
struct ProgramRoom {
  char arguments[32768];
  char starter[4096];
  char started_by[128];
};
/// Sets the members of `attempt` that are about the program.
void read_program(ProgramRoom& room, Attempt& attempt);

/// Returns the machine's name, empty if there is no /proc.
std::string_view read_host(char* to, size_t size);

/// Sets the user to whom a file belongs that this thread creates. Returns false if there is no
/// /proc.
bool read_file_user(uint32_t& user);

/// Returns the facts for the record of this CUDA attempt, whose `program` must be set.
ProcessFacts gather_facts(FactsRoom& room, uint32_t pid, const Attempt& attempt);

}  // namespace cudaguard
