// SPDX-License-Identifier: Apache-2.0
// The way from a touch to its stack. Compiled with unwind tables.
#include "shim/record/record.h"

#include <cstring>

#include "shim/record/output.h"
#include "shim/stack/stacks.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

/// `touch` lacks its caller and its stack.
[[gnu::cold, gnu::noinline]] void write_both(Process& process, Touch& touch, const void* caller,
                                             bool line_wanted) {
  if (!line_wanted && process.config.report.empty()) return;
  const sys::Mapped<Stacks> stacks;
  if (stacks) read_stacks(*stacks, caller, touch);
  write_out(process, touch, caller, line_wanted);
}

[[gnu::cold, gnu::noinline]] void write_down(Process& process, const char* key, const char* object,
                                             const void* caller) {
  say_complaints(process);
  Touch touch;
  touch.api = object != nullptr ? "dlopen" : key;
  if (object != nullptr) touch.object = object;
  // NVML's refusal is no news after CUDA's; CUDA's is, after NVML's.
  const Log log = process.config.log;
  const bool first =
      wants_line(log, true) &&
      (touch.api.starts_with("nvml") ? Process::say_once(Process::kDeniedNvml, Process::kDenied)
                                     : Process::say_once(Process::kDenied));
  write_both(process, touch, caller, wants_line(log, first));
}

[[gnu::cold, gnu::noinline]] void write_event(Process& process, const Event& event) {
  Touch touch;
  touch.api = event.api;
  touch.event = event.kind;
  touch.device = event.device;
  using Kind = Event::Kind;
  if (event.kind == Kind::kInit || event.kind == Kind::kNvml) touch.result = event.result;
  if (event.object != nullptr) touch.object = event.object;
  write_both(process, touch, event.caller, process.config.log == Log::kAll);
}

/// Takes a place in the list of what was seen. False: it, or an equal name at another address (a
/// stand-in in another namespace), is there already.
bool is_new(Process& process, const char* name) {
  bool is_known = false;
  for (auto& slot : process.seen) {
    const char* here = slot.load(std::memory_order_relaxed);
    if (here == nullptr && slot.compare_exchange_strong(here, name, std::memory_order_relaxed)) {
      return !is_known;
    }
    if (here == name) return false;
    if (strcmp(here, name) == 0) is_known = true;
  }
  return false;  // more kinds than there are: impossible with our own constants
}

}  // namespace

void record_touch(Process& process, const char* key, const char* object, const void* caller) {
  if (process.policy() != Policy::kForceCpu) return;
  process.touches.fetch_add(1, std::memory_order_relaxed);
  for (const auto& slot : process.seen) {
    const char* here = slot.load(std::memory_order_relaxed);
    if (here == key) return;
    if (here == nullptr) break;
  }
  if (is_new(process, key)) write_down(process, key, object, caller);
}

void record_event(Process& process, const Event& event) {
  say_complaints(process);
  if (!wants_events(process)) return;
  // The first of its kind: what a process *does* is what counts, not by which of the functions.
  const bool of_device = event.kind == Event::Kind::kContext || event.kind == Event::Kind::kSelect;
  const auto which = static_cast<uint32_t>(of_device ? event.device : event.result);
  const uint64_t key = static_cast<uint64_t>(event.kind) + (uint64_t{which} << 8);
  if (Process::first_case(process.events, key)) write_event(process, event);
}

}  // namespace cudaguard

extern "C" {

/// Called by the stand-ins (shim/standin/touch.cpp); `abi` is 1.
[[gnu::visibility("default")]] void cudaguard_touch_v1(unsigned abi, const char* api,
                                                       const void* caller) {
  if (abi == 1) cudaguard::record_touch(cudaguard::process(), api, nullptr, caller);
}

[[gnu::visibility("default")]] int cudaguard_touches(void) {
  return static_cast<int>(cudaguard::process().touches.load(std::memory_order_relaxed));
}

[[gnu::visibility("default")]] int cudaguard_watch(const char* report) {
  cudaguard::Process& here = cudaguard::process();
  if (here.policy() != cudaguard::Policy::kForceCpu) return -1;
  if (report != nullptr) cudaguard::report_to(here, report);
  for (auto& slot : here.seen) slot.store(nullptr, std::memory_order_relaxed);
  return cudaguard_touches();
}
}
