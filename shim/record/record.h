// SPDX-License-Identifier: Apache-2.0
// Touches: counted, and the first of each kind in a process written down as its configuration says.
// Writing is one write(2) per line or record; nothing is allocated, errno is unchanged.
// Thread-safe, async-signal-safe.
#pragma once

#include <cstdint>

#include "policy/message.h"
#include "policy/text.h"
#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A denied request. `key` names its kind: a constant, compared by address and kept. `object` is
/// what dlopen was asked for, or null; `caller` the return address. Does nothing under OFF.
void record_touch(Process& process, const char* key, const char* object, const void* caller);

/// Something that was allowed. Seldom: not for a path that is called often.
struct Event {
  using Kind = EventKind;
  Kind kind = Kind::kInit;
  const char* api = nullptr;
  const void* caller = nullptr;
  int device = -1;               ///< an index, for kContext and kSelect
  const char* object = nullptr;  ///< for kInit: what the driver was told to show; may be null
  int result = 0;                ///< of kInit and kNvml: what the real function answered
};

/// Writes the first event of its kind and device down, where somebody wants to know. Says what is
/// wrong with the configuration, if that was not said yet.
void record_event(Process& process, const Event& event);
/// Does anybody? (So that callers need not ask for the details.)
inline bool wants_events(const Process& process) {
  return process.config.log == Log::kAll || !process.config.report.empty() ||
         process.listens.load(std::memory_order_relaxed);
}

/// Writes the sentence of one line.
using Writer = void (*)(Text& out, const void* context);
/// Says a line once per process and `bit`, unless lines are off.
void print_message(Process& process, Process::Message bit, Writer write, const void* context);
/// Says a line once per process and case; `key` is any hash of it.
void say_case(Process& process, uint64_t key, Writer write, const void* context);

/// There is no driver, and somebody has asked for it by `api`.
void record_no_driver(Process& process, const char* api, const void* caller);

/// Says that NVIDIA's OpenCL was refused.
void say_no_opencl(Process& process, const void* caller);

/// Says which null driver cannot be used, once per process and `bit`.
void print_missing_null_driver(Process::Message bit, const char* file, const char* why);
/// The same of a proxy; FORCE_CPU applies.
void print_missing_proxy(Process::Message bit, const char* file, const char* why);

}  // namespace cudaguard
