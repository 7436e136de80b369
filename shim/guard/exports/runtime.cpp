// SPDX-License-Identifier: Apache-2.0
// The runtime calls that a program makes through a *shared* cudart. Under FORCE_CPU the null driver
// would give the same answer through the runtime. With these exports we also see the caller: the
// program's library, not cudart. Under VALIDATE and CLAMP these exports check the device index.
#include "shim/api/cuda.h"
#include "shim/guard/elf/caller_scope.h"
#include "shim/guard/explain/explain.h"
#include "shim/guard/exports/denied.h"
#include "shim/guard/exports/next_definition.h"
#include "shim/guard/record/record.h"

namespace cudaguard {
namespace {

/// Returns the answer of a machine without a device. The runtime's own error state needs no help:
/// cudaGetLastError initialises the runtime, which the null driver answers with 100. (Measured with
/// cudart 11.8, 12.2, 12.9, 13.5.)
[[gnu::cold, gnu::noinline]] cudaError_t denied(const char* api, const void* caller) {
  return static_cast<cudaError_t>(denied(process(), api, caller, cudaErrorNoDevice));
}

bool looks_at_indices(const Process& process) { return process.policy() != Policy::kOff; }

/// Returns the number of devices that the runtime that holds `function` sees, or 0 if it does not
/// answer.
int ask_count(Process& process, const void* function) {
  using GetCount = cudaError_t (*)(int*);
  const auto ask = reinterpret_cast<GetCount>(const_cast<void*>(
      definition_beside(function, "cudaGetDeviceCount", start_objects(), later_objects(function))));
  int count = 0;
  if (ask == nullptr || ask(&count) != cudaSuccess) return 0;
  process.exports.device_count.store(count, std::memory_order_relaxed);
  return count;
}

/// True if the device was selected before. Such a device exists: there is nothing to explain, to
/// clamp or to record.
[[gnu::always_inline]] inline bool was_selected(const Process& process, int device) {
  return static_cast<unsigned>(device) < 64 &&
         (process.exports.selected.load(std::memory_order_relaxed) >> device & 1) != 0;
}

/// A call with a device index.
struct IndexedCall {
  NextDefinition next;
  const char* api;
  const void* caller;
  int asked;     ///< the program's index
  int used;      ///< the index that the runtime gets
  bool selects;  ///< a success selects the device
};

void explain(const IndexedCall& call, int count) {
  BadIndex facts = {.api = call.api, .caller = call.caller, .asked = call.asked, .count = count};
  if (call.used != call.asked) facts.used = call.used;
  print_bad_index(*call.next.process, facts);
}

/// Chooses the index to use. The count is requested before the call, so that the runtime's error
/// state is as if the program had used this index.
[[gnu::noinline]] void check_index(IndexedCall& call) {
  Process& process = *call.next.process;
  if (looks_at_indices(process)) check_fork(process, call.api, call.caller);
  if (!row_of(process.policy()).clamps ||
      call.asked < process.exports.device_count.load(std::memory_order_relaxed)) {
    return;
  }
  const int count = ask_count(process, call.next.function);
  call.used = index_to_use(process.policy(), call.asked, count);
  if (call.used != call.asked) explain(call, count);
}

void note_selected(const IndexedCall& call) {
  Process& process = *call.next.process;
  if (was_selected(process, call.used)) return;
  if (static_cast<unsigned>(call.used) < 64)
    process.exports.selected.fetch_or(uint64_t{1} << call.used);
  if (!looks_at_indices(process)) return;
  check_late_write(process);
  record_event(
      process,
      {.kind = Event::Kind::kSelect, .api = call.api, .caller = call.caller, .device = call.used});
}

/// Explains a refusal, and remembers a selected device.
[[gnu::noinline]] cudaError_t finish(const IndexedCall& call, cudaError_t result) {
  Process& process = *call.next.process;
  if (result == cudaErrorInvalidDevice && looks_at_indices(process)) {
    explain(call, ask_count(process, call.next.function));
  }
  if (result == cudaSuccess && call.selects) note_selected(call);
  return result;
}

/// Calls `forward` with the next definition and the device, after the check of the index.
template <typename Function, typename Forward>
[[gnu::always_inline]] inline cudaError_t indexed(Function* like, const char* api,
                                                  const void* caller, int device,
                                                  const Forward& forward, bool selects = false) {
  const NextDefinition next = next_definition(api, caller);
  if (next.function == nullptr) return denied(api, caller);
  if (was_selected(*next.process, device)) [[likely]] {
    return forward(next.as(like), device);
  }
  IndexedCall call = {next, api, caller, device, device, selects};
  check_index(call);
  return finish(call, forward(next.as(like), call.used));
}

constexpr const char* kSetDevice = "cudaSetDevice";
using SetDevice = cudaError_t(int device);

/// A call that is not the repeated selection of a device.
[[gnu::cold, gnu::noinline]] cudaError_t set_device(int device, const void* caller) {
  constexpr bool kSelects = true;
  return indexed<SetDevice>(
      nullptr, kSetDevice, caller, device, [](auto* real, int index) { return real(index); },
      kSelects);
}

}  // namespace
}  // namespace cudaguard

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

#define CG_INDEXED(function, device, ...) \
  return indexed(&::function, #function, CG_CALLER, device, __VA_ARGS__)

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const NextDefinition next = CG_NEXT(cudaGetDeviceCount);
  if (next.function == nullptr) {
    // The real runtime does not change `count`. 0 helps callers that ignore the error: llama.cpp
    // passes a live field, and OpenCV tests only the count.
    if (count != nullptr) *count = 0;
    return denied("cudaGetDeviceCount", CG_CALLER);
  }
  const cudaError_t result = next.as(&::cudaGetDeviceCount)(count);
  if (!looks_at_indices(*next.process)) return result;
  check_fork(*next.process, "cudaGetDeviceCount", CG_CALLER);
  if (result == cudaSuccess && count != nullptr) {
    note_count(*next.process, "cudaGetDeviceCount", CG_CALLER, static_cast<unsigned>(*count));
  }
  return result;
}

// Programs call this in loops, so the usual case pays for no register that only the others need.
cudaError_t cudaSetDevice(int device) {
  const NextDefinition known = known_definition(kSetDevice, CG_CALLER);
  if (known.function != nullptr && was_selected(*known.process, device)) [[likely]] {
    return known.as<SetDevice>(nullptr)(device);
  }
  return set_device(device, CG_CALLER);
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  CG_INDEXED(cudaInitDevice, device,
             [=](auto* real, int index) { return real(index, device_flags, flags); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  CG_INDEXED(cudaGetDeviceProperties, device,
             [=](auto* real, int index) { return real(properties, index); });
}

cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device) {
  CG_INDEXED(cudaGetDeviceProperties_v2, device,
             [=](auto* real, int index) { return real(properties, index); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  CG_INDEXED(cudaDeviceGetAttribute, device,
             [=](auto* real, int index) { return real(value, attribute, index); });
}

cudaError_t cudaDeviceSynchronize(void) {
  const NextDefinition next = CG_NEXT(cudaDeviceSynchronize);
  if (next.function == nullptr) return denied("cudaDeviceSynchronize", CG_CALLER);
  if (looks_at_indices(*next.process)) {
    check_fork(*next.process, "cudaDeviceSynchronize", CG_CALLER);
  }
  return next.as(&::cudaDeviceSynchronize)();
}
}
#pragma GCC visibility pop
