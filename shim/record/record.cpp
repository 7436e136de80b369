// SPDX-License-Identifier: Apache-2.0
#include "shim/record/record.h"

#include "shim/record/output.h"
#include "shim/stack/stack.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

[[gnu::cold, gnu::noinline]] void write_down(Process& process, const Event& event) {
  Output output;
  if (!prepare(process, event, output)) return;
  const sys::Mapped<StackRoom> room;
  if (room) read_stack(*room, event.caller, output.attempt);
  write_out(process, event.caller, output);
}

}  // namespace

void record_attempt(Process& process, const char* key, const char* object, const void* caller) {
  if (process.policy() != Policy::kForceCpu) return;
  process.touches.fetch_add(1, std::memory_order_relaxed);
  for (const auto& slot : process.seen) {
    const char* here = slot.load(std::memory_order_relaxed);
    if (here == key) return;
    if (here == nullptr) break;
  }
  if (!is_new(process, key)) return;
  write_down(process, {.kind = EventKind::kNone, .api = key, .caller = caller, .object = object});
}

void record_event(Process& process, const Event& event) {
  if (is_new(process, event)) write_down(process, event);
}

}  // namespace cudaguard

extern "C" {

/// Called by the null drivers (shim/null_driver/report_attempt.cpp); `abi` is 1.
[[gnu::visibility("default")]] void cudaguard_touch_v1(unsigned abi, const char* api,
                                                       const void* caller) {
  if (abi == 1) cudaguard::record_attempt(cudaguard::process(), api, nullptr, caller);
}

[[gnu::visibility("default")]] int cudaguard_touches(void) {
  return static_cast<int>(cudaguard::process().touches.load(std::memory_order_relaxed));
}

[[gnu::visibility("default")]] int cudaguard_watch(const char* report) {
  cudaguard::Process& here = cudaguard::process();
  if (here.policy() != cudaguard::Policy::kForceCpu) return -1;
  if (report != nullptr) cudaguard::report_to(here, report);
  for (auto& slot : here.seen) slot.store(nullptr, std::memory_order_relaxed);
  return static_cast<int>(here.touches.load(std::memory_order_relaxed));
}
}
