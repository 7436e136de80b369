// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/record/record.h"

#include "policy/decision.h"
#include "policy/driver_api.h"
#include "shim/guard/record/beacon.h"
#include "shim/guard/record/output.h"
#include "shim/guard/stack/hash.h"
#include "shim/guard/stack/stack.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

namespace {

/// Adds the files of the Python frames between the call and the user's line, each of them once.
void add_modules(const Stack& stack, Hash& hash) {
  for (unsigned i = 0; i < stack.shown && i < stack.python_count; ++i) {
    const std::string_view file = stack.python[i].file;
    unsigned first = 0;
    while (stack.python[first].file != file) ++first;
    if (first == i) hash.add(file);
  }
}

/// Returns the place of an attempt: the function, the calling library, the user's line and the
/// modules that the line has called, because `--allow` may name one of these. Without a line, the
/// return address is the place. A context on another device, or that failed, is from a new place.
uint64_t hash_of_place(const Attempt& attempt, const void* caller) {
  Hash hash;
  hash.add(attempt.api).add(attempt.object).add(attempt.caller.module);
  hash.add(uint64_t{static_cast<uint32_t>(attempt.device)});
  hash.add(uint64_t{static_cast<uint32_t>(attempt.result)});
  if (attempt.stack != nullptr) add_modules(*attempt.stack, hash);
  const PythonFrame* frame = attempt.stack == nullptr ? nullptr : attempt.stack->named();
  if (frame != nullptr) return hash.add(frame->file).add(frame->line).result();
  return attempt.caller.module.empty() ? hash.add(caller).result()
                                       : hash.add(attempt.caller.offset).result();
}

/// True if every place that asks is wanted, and not only one of each kind.
bool wants_places(const Process& process) {
  return inherited.record.listens.load(std::memory_order_relaxed) ||
         !process.decision.report.empty();
}

/// Returns a hash by which a repeated call is recognised, 0 if there is none. After a dlclose,
/// other code may be at the same address.
uint64_t hash_of(const Process& process, const Event& event) {
  const uint64_t call = call_of(event.api, event.caller, process.python_frames);
  if (call == 0) return 0;
  const uint64_t closes = inherited.hook.closes.load(std::memory_order_relaxed);
  return Hash()
      .add(call)
      .add(closes)
      .add(uint64_t{static_cast<uint32_t>(event.device)})
      .add(uint64_t{static_cast<uint32_t>(event.result)})
      .result();
}

/// Writes the message and the record of an announced event.
void write_down(Process& process, const Event& event, Output& output) {
  if (!prepare(process, output)) return;
  const sys::Mapped<StackRoom> room;
  if (room) read_stack(*room, event.caller, process.python_frames, output.attempt);
  write_out(process, event.caller, output);
}

/// Reports the attempt if its place is new. Known calls are recognised by call_of(), at the cost of
/// reading Python's frames.
void record_place(Process& process, const Event& event, Output& output) {
  const sys::Mapped<StackRoom> room;
  if (room) read_stack(*room, event.caller, process.python_frames, output.attempt);
  using Added = Reported::Added;
  const Added added =
      process.record.reported.add_place(hash_of_place(output.attempt, event.caller));
  if (added == Added::kKnown || added == Added::kTooMany) {
    withdraw(event.caller, output);
  } else {
    output.attempt.last_place = added == Added::kOneTooMany;
    if (prepare(process, output)) write_out(process, event.caller, output);
  }
  process.record.known_calls.add(hash_of(process, event));
}

/// Reports the announced event unless another one with the key was reported.
void record_once(Process& process, const Event& event, uint64_t key, Output& output) {
  if (process.record.reported.add(key)) {
    write_down(process, event, output);
  } else {
    withdraw(event.caller, output);
  }
}

[[gnu::cold, gnu::noinline]] void record_unseen(Process& process, const Event& event,
                                                uint64_t name) {
  const bool every_place = wants_places(process);
  if (every_place) {
    if (process.record.reported.lacks_places() && process.record.reported.has(name)) return;
    const uint64_t call = hash_of(process, event);
    if (call != 0 && process.record.known_calls.has(call)) return;
  }
  const sys::HeldSignals held(every_place);
  Output output;
  announce(event, output);
  // If the table of places is full, each function is reported once more.
  if (wants_places(process) && !process.record.reported.lacks_places()) {
    record_place(process, event, output);
  } else {
    record_once(process, event, name, output);
  }
}

/// Almost every call ends here, unless a report or a launcher wants every place: then no function
/// is in the table, and `names` is empty, until the table of places is full.
[[gnu::always_inline]] inline bool is_known(const Process& process, const char* api) {
  return process.record.names.has(api, inherited.hook.closes.load(std::memory_order_relaxed));
}

[[gnu::cold, gnu::noinline]] void record(Process& process, const Event& event) {
  const uint32_t closes = inherited.hook.closes.load(std::memory_order_relaxed);
  const uint64_t name = Hash().add(std::string_view(event.api)).result();
  if (process.record.reported.has(name)) {
    process.record.names.add(event.api, closes);
    // Meanwhile cudaguard_watch() may have emptied both, the table first.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!process.record.reported.has(name)) process.record.names.forget();
  } else {
    record_unseen(process, event, name);
  }
}

}  // namespace

void record_attempt(Process& process, const char* key, const char* object, const void* caller) {
  if (process.policy() != Policy::kForceCpu) return;
  process.record.attempts.fetch_add(1, std::memory_order_relaxed);
  if (is_known(process, key)) return;
  record(process, {.kind = EventKind::kNone, .api = key, .caller = caller, .object = object});
}

void record_no_context(Process& process, const char* api, const void* caller) {
  process.record.attempts.fetch_add(1, std::memory_order_relaxed);
  if (is_known(process, api)) return;
  record(process, {.kind = EventKind::kNoContext, .api = api, .caller = caller});
}

void record_refused(Process& process, const char* key, const char* object, const void* caller) {
  record(process, {.kind = EventKind::kRefused, .api = key, .caller = caller, .object = object});
}

void report_exposed(Process& process, const char* library) {
  if (wants_places(process)) {
    record(process, {.kind = EventKind::kExposed, .api = kLookUpApi, .object = library});
  }
  const std::string_view path = library;
  const auto write = [](Text& out, const void* context) {
    write_exposed(out, *static_cast<const std::string_view*>(context));
  };
  print_case(process, Hash().add(path).result(), write, &path);
}

bool wants_events(const Process& process) {
  return process.decision.log == Log::kAll || wants_places(process);
}

bool begin_call(Beacon what, const void* caller) {
  return inherited.record.listens.load(std::memory_order_relaxed) && announce(what, caller);
}

void end_call() { announce(Beacon::kWithdrawn, nullptr); }

void record_event(Process& process, const Event& event) {
  const uint64_t key = key_of(process, event);
  if (key == 0) return;
  // As of attempts, verify's `--allow` may name one place and not the next.
  if (event.kind == EventKind::kContext && wants_places(process)) {
    return record_unseen(process, event, key);
  }
  if (process.record.reported.has(key)) return;
  const sys::HeldSignals held(wants_places(process));
  Output output;
  announce(event, output);
  record_once(process, event, key, output);
}

}  // namespace cudaguard

extern "C" {

/// Called by the null drivers (shim/null_driver/report_attempt.cpp); `abi` is 1.
[[gnu::visibility("default")]] void cudaguard_attempt_v1(unsigned abi, const char* api,
                                                         const void* caller) {
  if (abi == 1) cudaguard::record_attempt(cudaguard::process(), api, nullptr, caller);
}

[[gnu::visibility("default")]] int cudaguard_attempts(void) {
  return static_cast<int>(cudaguard::process().record.attempts.load(std::memory_order_relaxed));
}

[[gnu::visibility("default")]] int cudaguard_refuses_contexts(void) {
  return refuses_contexts(cudaguard::process().policy()) ? 1 : 0;
}

[[gnu::visibility("default")]] int cudaguard_watch(const char* report) {
  cudaguard::Process& process = cudaguard::process();
  const cudaguard::Policy policy = process.policy();
  if (policy != cudaguard::Policy::kForceCpu && !refuses_contexts(policy)) return -1;
  if (report != nullptr && !cudaguard::report_to(process, report)) return -1;
  process.record.reported.forget();
  process.record.names.forget();
  process.record.known_calls.forget();
  return static_cast<int>(process.record.attempts.load(std::memory_order_relaxed));
}
}
