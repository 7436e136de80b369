// SPDX-License-Identifier: Apache-2.0
// Counts CUDA attempts, and records them as the configuration says: the first of each kind in a
// process, and for a report or a launcher every place that asks. Each message or record is one
// write(2). Nothing is allocated, errno is unchanged. Thread-safe, async-signal-safe.
#pragma once

#include <cstdint>

#include "policy/text.h"
#include "shim/guard/state/process.h"
#include "shim/guard/text/attempt.h"
#include "shim/guard/text/beacon.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Counts and records a denied attempt. An attempt is never marked as known before a launcher has
/// heard of it. `key` names its kind, and is a constant of a library. `object` is the library of a
/// dlopen request, or null; `caller` is the return address. Does nothing unless FORCE_CPU applies.
void record_attempt(Process& process, const char* key, const char* object, const void* caller);

/// Counts and records a context that NO_CONTEXT has refused. `api` is a constant of a library.
void record_no_context(Process& process, const char* api, const void* caller);

/// Records that a file of cudaguard cannot be used, so that a request for `object` was refused. The
/// program might have got a GPU. `key` is as above. Counts no attempt.
void record_refused(Process& process, const char* key, const char* object, const void* caller);

/// Reports that look-ups by dlsym may find the functions of NVIDIA's library at this path. Called
/// once for a library. Counts no attempt.
void report_exposed(Process& process, const char* library);

/// Something that the guard allowed. Not for functions that are called often.
struct Event {
  using Kind = EventKind;
  Kind kind = Kind::kInit;
  const char* api = nullptr;
  const void* caller = nullptr;
  int device = -1;               ///< an index, for kContext and kSelect
  const char* object = nullptr;  ///< for kInit: the list of GPUs that the driver got; may be null
  int result = 0;                ///< of kInit and kNvml: the answer; of kContext: the error or -1
};

/// Records the first event of its kind, device and result if wants_events() is true, and a context
/// from each place if a launcher or a report wants places. Reports mistakes in the configuration,
/// once.
void record_event(Process& process, const Event& event);
/// Tells the launcher that the driver is about to initialise itself or to make a context, because
/// the process may end in that call. Returns false if no launcher listens. Otherwise call
/// end_call() when the driver has answered and the event is recorded.
bool begin_call(Beacon what, const void* caller);
void end_call();
/// True if a message, a report or a launcher wants events. Callers need not collect details
/// otherwise.
bool wants_events(const Process& process);

/// Writes the sentence of one message.
using Writer = void (*)(Text& out, const void* context);
/// Prints a message once per process and `bit`, unless messages are off.
void print_message(Process& process, Message bit, Writer write, const void* context);
/// Prints a message once per process and case; `key` is a hash of the case.
void print_case(Process& process, uint64_t key, Writer write, const void* context);

/// Records that the program called `api`, but there is no driver.
void record_no_driver(Process& process, const char* api, const void* caller);

/// Reports that NVIDIA's OpenCL was refused.
void print_no_opencl(Process& process, const void* caller);

/// Reports which null driver or proxy cannot be used, once per process and `bit`.
void print_unusable(Message bit, const char* file, Unusable why);

}  // namespace cudaguard
