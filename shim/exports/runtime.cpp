// SPDX-License-Identifier: Apache-2.0
// The runtime calls that a program makes through a *shared* cudart. Under FORCE_CPU the null driver
// would give the same answer through the runtime. With these exports we also see the caller: the
// program's library, not cudart. Under VALIDATE and CLAMP these exports check the device index.
#include <cuda_runtime_api.h>

#include "shim/elf/caller_scope.h"
#include "shim/exports/denied.h"
#include "shim/exports/next_definition.h"
#include "shim/proxy_loader/services.h"
#include "shim/record/record.h"

// The headers of some versions define one of these names as a macro for the other.
#undef cudaGetDeviceProperties
#undef cudaGetDeviceProperties_v2

namespace cudaguard {
namespace {

/// Returns the answer of a machine without a device. The runtime's own error state needs no help:
/// cudaGetLastError initialises the runtime, which the null driver answers with 100. (Measured with
/// cudart 11.8, 12.2, 12.9, 13.5.)
[[gnu::cold, gnu::noinline]] cudaError_t denied(const char* api, const void* caller) {
  return static_cast<cudaError_t>(denied(process(), api, caller, cudaErrorNoDevice));
}

bool looks_at_indices(const Process& here) { return here.config.policy != Policy::kOff; }

/// Returns null if this process was not allowed any CUDA, so that there is nothing to explain.
const Explainer* explainer() { return inherited.explainer.load(std::memory_order_acquire); }

void check_fork(Process& here, const char* api) {
  if (here.fork_checked.load(std::memory_order_relaxed)) return;
  if (const Explainer* it = explainer()) it->check_fork(here, api);
}

void print_bad_index(Process& here, const BadIndex& facts) {
  if (const Explainer* it = explainer()) it->print_bad_index(here, facts);
}

/// Returns the number of devices that the runtime that holds `function` sees, or 0 if it does not
/// answer.
int ask_count(Process& here, const void* function) {
  using GetCount = cudaError_t (*)(int*);
  const auto ask = reinterpret_cast<GetCount>(const_cast<void*>(
      definition_beside(function, "cudaGetDeviceCount", start_objects(), later_objects(function))));
  int count = 0;
  if (ask == nullptr || ask(&count) != cudaSuccess) return 0;
  here.device_count.store(count, std::memory_order_relaxed);
  return count;
}

/// Returns the index to use. The count is requested before the call, so that the runtime's error
/// state is as if the program had used this index.
int clamped(Process& here, BadIndex facts, const void* function) {
  facts.count = ask_count(here, function);
  const int index = index_to_use(here.config.policy, facts.asked, facts.count);
  if (index == facts.asked) return index;
  facts.used = index;
  print_bad_index(here, facts);
  return index;
}

constexpr char kSetDevice[] = "cudaSetDevice";

/// True if the device was selected before. Such a device exists: there is nothing to explain, to
/// clamp or to record.
[[gnu::always_inline]] inline bool was_selected(const Process& here, int device) {
  return static_cast<unsigned>(device) < 64 &&
         (here.selected.load(std::memory_order_relaxed) >> device & 1) != 0;
}

void note_selected(Process& here, int device, const void* caller) {
  if (static_cast<unsigned>(device) < 64) here.selected.fetch_or(uint64_t{1} << device);
  if (!looks_at_indices(here)) return;
  if (const Explainer* it = explainer()) it->check_late_write(here);
  record_event(
      here, {.kind = Event::Kind::kSelect, .api = kSetDevice, .caller = caller, .device = device});
}

/// Calls the real function with the index; all other arguments come from `context`.
using Call = cudaError_t (*)(void* real, const void* context, int index);

[[gnu::noinline]] cudaError_t look_at_index(const char* api, const void* caller, int device,
                                            Call call, const void* context) {
  const NextDefinition it = next_definition(api, caller);
  if (it.function == nullptr) return denied(api, caller);
  Process& here = *it.process;
  if (looks_at_indices(here)) check_fork(here, api);
  BadIndex facts = {.api = api, .caller = caller, .asked = device};
  if (rules_of(here.config.policy).clamps &&
      device >= here.device_count.load(std::memory_order_relaxed)) {
    facts.asked = clamped(here, facts, it.function);
  }
  const cudaError_t result = call(it.function, context, facts.asked);
  if (result == cudaErrorInvalidDevice && looks_at_indices(here)) {
    facts.count = ask_count(here, it.function);
    print_bad_index(here, facts);
  }
  if (result == cudaSuccess && api == kSetDevice && !was_selected(here, facts.asked)) {
    note_selected(here, facts.asked, caller);
  }
  return result;
}

/// Calls `lambda` with the next definition and the device, after the check of the index.
template <typename Function, typename Lambda>
[[gnu::always_inline]] inline cudaError_t indexed(Function* like, const char* api,
                                                  const void* caller, int device,
                                                  const Lambda& lambda) {
  const NextDefinition it = next_definition(api, caller);
  if (it.function != nullptr && was_selected(*it.process, device)) [[likely]] {
    return lambda(it.as(like), device);
  }
  return look_at_index(
      api, caller, device,
      [](void* real, const void* context, int index) {
        return (*static_cast<const Lambda*>(context))(reinterpret_cast<Function*>(real), index);
      },
      &lambda);
}

}  // namespace
}  // namespace cudaguard

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

#define CG_INDEXED(function, device, ...) \
  return indexed(&::function, #function, CG_CALLER, device, __VA_ARGS__)

#pragma GCC visibility push(default)
extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device);

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  const NextDefinition it = CG_NEXT(cudaGetDeviceCount);
  if (it.function == nullptr) {
    // The real runtime does not change `count`. 0 helps callers that ignore the error: llama.cpp
    // passes a live field, and OpenCV tests only the count.
    if (count != nullptr) *count = 0;
    return denied("cudaGetDeviceCount", CG_CALLER);
  }
  const cudaError_t result = it.as(&::cudaGetDeviceCount)(count);
  if (!looks_at_indices(*it.process)) return result;
  check_fork(*it.process, "cudaGetDeviceCount");
  const Explainer* const explain = explainer();
  if (explain != nullptr && result == cudaSuccess && count != nullptr) {
    explain->note_count(*it.process, "cudaGetDeviceCount", static_cast<unsigned>(*count));
  }
  return result;
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return indexed(&::cudaSetDevice, kSetDevice, CG_CALLER, device,
                 [](auto* real, int index) { return real(index); });
}

cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  CG_INDEXED(cudaInitDevice, device,
             [=](auto* real, int index) { return real(index, device_flags, flags); });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  CG_INDEXED(cudaGetDeviceProperties, device,
             [=](auto* real, int index) { return real(properties, index); });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device) {
  CG_INDEXED(cudaGetDeviceProperties_v2, device,
             [=](auto* real, int index) { return real(properties, index); });
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  CG_INDEXED(cudaDeviceGetAttribute, device,
             [=](auto* real, int index) { return real(value, attribute, index); });
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  const NextDefinition it = CG_NEXT(cudaDeviceSynchronize);
  if (it.function == nullptr) return denied("cudaDeviceSynchronize", CG_CALLER);
  if (looks_at_indices(*it.process)) check_fork(*it.process, "cudaDeviceSynchronize");
  return it.as(&::cudaDeviceSynchronize)();
}
}
#pragma GCC visibility pop
