// SPDX-License-Identifier: Apache-2.0
#include "shim/null_driver/report_attempt.h"

#include "shim/null_driver/guard_function.h"

// ld.so binds this to the preloaded guard. It is null without a guard and in dlmopen's namespaces.
extern "C" [[gnu::weak, gnu::visibility("default")]] void cudaguard_attempt_v1(
    unsigned abi, const char* api, const void* return_address);

namespace cudaguard {

namespace {

using Report = void (*)(unsigned, const char*, const void*);
constexpr unsigned kAbi = 1;
[[gnu::section(".data")]] constinit GuardFunction elsewhere;

}  // namespace

void report_attempt(const char* api, const void* caller) {
  Report report = &cudaguard_attempt_v1;
  if (report == nullptr) report = elsewhere.find<Report>("cudaguard_attempt_v1");
  if (report != nullptr) report(kAbi, api, caller);
}

}  // namespace cudaguard
