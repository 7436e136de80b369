// SPDX-License-Identifier: Apache-2.0
// The runtime calls that a program makes through a *shared* cudart. Under FORCE_CPU the stand-in
// would give the same answer through the runtime; in front of it we also see who asked: the
// program's library, not cudart. Under VALIDATE and CLAMP the device index is looked at here.
#include <cuda_runtime_api.h>

#include "shim/elf/caller_scope.h"
#include "shim/exports/hot_calls.h"
#include "shim/record/record.h"
#include "shim/state/process.h"
#include "shim/through/services.h"

// Headers of some versions make one name of the two.
#undef cudaGetDeviceProperties
#undef cudaGetDeviceProperties_v2

namespace cudaguard {
namespace {

/// The function that the caller would have reached without us. Null under FORCE_CPU, and where
/// there is none.
[[gnu::noinline]] void* find_behind(const char* name, const void* caller) {
  Process& here = process();
  if (here.policy() == Policy::kForceCpu) [[unlikely]] {
    record_touch(here, name, nullptr, caller);
    return nullptr;
  }
  return here.answers.find(name, caller, &definition_for);
}

/// With the type of `like`.
template <typename Function>
[[gnu::always_inline]] inline Function* behind(Function* /*like*/, const char* name,
                                               const void* caller) {
  return reinterpret_cast<Function*>(find_behind(name, caller));
}

bool looks_at_indices(const Process& here) { return here.config.policy != Policy::kOff; }

/// Null: no CUDA was let through in this process, and there is nothing to explain.
const Explainer* explainer() { return lasting.explainer.load(std::memory_order_acquire); }

void check_fork(Process& here, const char* api) {
  if (here.fork_checked.load(std::memory_order_relaxed)) return;
  if (const Explainer* it = explainer()) it->check_fork(here, api);
}

void say_bad_index(Process& here, const BadIndex& facts) {
  if (const Explainer* it = explainer()) it->say_bad_index(here, facts);
}

/// How many devices the runtime that holds `function` sees; 0: it does not say.
int ask_count(Process& here, const void* function) {
  using GetCount = cudaError_t (*)(int*);
  const auto ask = reinterpret_cast<GetCount>(
      const_cast<void*>(definition_beside(function, "cudaGetDeviceCount")));
  int count = 0;
  if (ask == nullptr || ask(&count) != cudaSuccess) return 0;
  here.device_count.store(count, std::memory_order_relaxed);
  return count;
}

/// CLAMP: the index to use. Asked for before the call, so that the runtime's error state is as if
/// the program had used it.
[[gnu::cold, gnu::noinline]] int clamped(Process& here, const BadIndex& given,
                                         const void* function) {
  BadIndex facts = given;
  facts.count = ask_count(here, function);
  if (facts.count <= 0 || facts.asked < facts.count) return facts.asked;
  facts.used = facts.count - 1;
  say_bad_index(here, facts);
  return facts.used;
}

[[gnu::cold, gnu::noinline]] void explain(Process& here, const BadIndex& given,
                                          const void* function) {
  BadIndex facts = given;
  facts.count = ask_count(here, function);
  say_bad_index(here, facts);
}

/// Calls the real function, with all its arguments but the index from `context`.
using Call = cudaError_t (*)(void* real, const void* context, int index);

/// call(real, context, device) with the index looked at; `device` becomes what was used.
[[gnu::noinline]] cudaError_t indexed(const char* api, const void* caller, int& device, Call call,
                                      const void* context) {
  void* real = find_behind(api, caller);
  if (real == nullptr) return cudaErrorNoDevice;
  Process& here = process();
  if (!looks_at_indices(here)) return call(real, context, device);
  check_fork(here, api);
  if (here.config.policy == Policy::kClamp &&
      device >= here.device_count.load(std::memory_order_relaxed)) {
    device = clamped(here, {.api = api, .caller = caller, .asked = device}, real);
  }
  const cudaError_t result = call(real, context, device);
  if (result == cudaErrorInvalidDevice) {
    explain(here, {.api = api, .caller = caller, .asked = device}, real);
  }
  return result;
}

/// The same for a lambda that takes the real function, of the type of `like`, and an index.
template <typename Function, typename Lambda>
[[gnu::always_inline]] inline cudaError_t indexed(Function* /*like*/, const char* api,
                                                  const void* caller, int& device,
                                                  const Lambda& lambda) {
  return indexed(
      api, caller, device,
      [](void* real, const void* context, int index) {
        return (*static_cast<const Lambda*>(context))(reinterpret_cast<Function*>(real), index);
      },
      &lambda);
}

}  // namespace

int set_device_slowly(int device, const void* caller) {
  const cudaError_t result = indexed(&::cudaSetDevice, kSetDevice, caller, device,
                                     [](auto* real, int index) { return real(index); });
  Process& here = process();
  if (!looks_at_indices(here)) {
    if (here.only_pid == 0) here.selected.store(~uint64_t{0}, std::memory_order_relaxed);
    return result;
  }
  if (result != cudaSuccess || was_selected(here, device)) return result;
  if (static_cast<unsigned>(device) < 64 && here.only_pid == 0) {
    here.selected.fetch_or(uint64_t{1} << device);
  }
  if (here.policy() == Policy::kForceCpu) here.selected.store(0);  // fallen meanwhile
  if (const Explainer* it = explainer()) it->check_late_write(here);
  record_event(
      here, {.kind = Event::Kind::kSelect, .api = kSetDevice, .caller = caller, .device = device});
  return result;
}

}  // namespace cudaguard

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

#define CG_CALLER __builtin_return_address(0)
/// `real`, or the answer of a machine without a device. The runtime's own error state needs no
/// help: its cudaGetLastError initialises the runtime, which the stand-in answers with 100
/// (measured with cudart 11.8, 12.2, 12.9, 13.5).
#define CG_BEHIND(function)                                     \
  auto* const real = behind(&::function, #function, CG_CALLER); \
  if (real == nullptr) return cudaErrorNoDevice
#define CG_INDEXED(function, device, ...) \
  return indexed(&::function, #function, CG_CALLER, device, __VA_ARGS__)

#pragma GCC visibility push(default)
extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device);

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  auto* const real = behind(&::cudaGetDeviceCount, "cudaGetDeviceCount", CG_CALLER);
  if (real == nullptr) {
    // The real runtime leaves it alone; 0 helps callers that ignore the error (llama.cpp passes a
    // live field; OpenCV tests the count alone).
    if (count != nullptr) *count = 0;
    return cudaErrorNoDevice;
  }
  const cudaError_t result = real(count);
  Process& here = process();
  if (!looks_at_indices(here)) return result;
  check_fork(here, "cudaGetDeviceCount");
  const Explainer* const it = explainer();
  if (it != nullptr && result == cudaSuccess && count != nullptr) {
    it->note_count(here, "cudaGetDeviceCount", static_cast<unsigned>(*count));
  }
  return result;
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
  CG_BEHIND(cudaDeviceSynchronize);
  Process& here = process();
  if (looks_at_indices(here)) check_fork(here, "cudaDeviceSynchronize");
  return real();
}
}
#pragma GCC visibility pop
