// SPDX-License-Identifier: Apache-2.0
//
// The driver proxy, libcudaguard-driver.so. It defines only the guarded names. For all other names
// dlsym on its handle finds the real functions, because the real libcuda.so.1 is its DT_NEEDED.
// cuDeviceGetCount returns the driver's own answer or an error: with a false count the CUDA runtime
// answers 103.
#include <cstdint>

#include "shim/proxy/driver_state.h"

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

namespace {

using Event = cudaguard::Event;

#define CG_CALLER __builtin_return_address(0)

/// Records a call that asked for a context or loaded code.
[[gnu::cold, gnu::noinline]] void note(Event::Kind kind, const char* api, const void* caller,
                                       int device, int failed = -1) {
  const Services& guard = the_guard();
  guard.record_event(
      guard.process(),
      {.kind = kind, .api = api, .caller = caller, .device = device, .result = failed});
}

Result noted(Result result, Event::Kind kind, const char* api, const void* caller,
             int device = -1) {
  const bool asked_for_a_context = kind == Event::Kind::kContext && result != kNotInitialized;
  if (result == kSuccess || asked_for_a_context) {
    note(kind, api, caller, device, result == kSuccess ? -1 : result);
  }
  return result;
}

/// Under NO_CONTEXT: reports the call, which the driver does not get. Without cuInit, and in a
/// forked child of a process that has called it, the answer is the driver's own.
[[gnu::cold, gnu::noinline]] Result refuse(const Services& guard, const char* api,
                                           const void* caller) {
  if (!is_open() && real_count() == 0) return kNotInitialized;
  guard.record_no_context(guard.process(), api, caller);
  return kDeviceUnavailable;
}

/// Returns the error of a call that makes a context or takes memory, or kSuccess if it may pass.
Result check_context(const char* api, const void* caller) {
  const Services& guard = the_guard();
  return refuses_contexts(guard.policy(guard.process())) ? refuse(guard, api, caller) : kSuccess;
}

/// Explains why cuDeviceGet answered 101. Under CLAMP it calls cuDeviceGet with a valid index.
[[gnu::cold, gnu::noinline]] Result explain(int* device, int ordinal, const void* caller) {
  const Services& guard = the_guard();
  Process& process = guard.process();
  const Policy policy = guard.policy(process);
  if (!allows_cuda(policy)) return kInvalidDevice;
  const int count = real_count();
  BadIndex facts = {.api = "cuDeviceGet", .caller = caller, .asked = ordinal, .count = count};
  const int index = index_to_use(policy, ordinal, count);
  if (index != ordinal) facts.used = index;
  guard.print_bad_index(process, facts);
  if (index == ordinal) return kInvalidDevice;
  return real_function<Result (*)(int*, int)>(k_cuDeviceGet)(device, index);
}

/// CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
constexpr int kComputeMode = 20;

/// Programs that look at the mode pass a GPU by on which they can make no context.
[[gnu::cold, gnu::noinline]] Result get_compute_mode(Result (*real)(int*, int, int), int* value,
                                                     int device) {
  const Result result = real(value, kComputeMode, device);
  const Services& guard = the_guard();
  if (result == kSuccess && refuses_contexts(guard.policy(guard.process()))) *value = kProhibited;
  return result;
}

/// Replaces a guarded function that the real cuGetProcAddress found with our wrapper.
void put_in_front(void** function) {
  for (size_t i = 0; i < kGuardedCount; ++i) {
    if (*function == driver.real[i] && *function != nullptr) *function = own_functions[i];
  }
}

/// For may_pass(): a look-up succeeds also in a forked child, where CUDA cannot work.
constexpr const char* kLookUp = nullptr;

}  // namespace

/// Defines `real`, the real function, or makes the enclosing function return an error.
#define CG_PASS(name)                                            \
  if (!may_pass(#name, CG_CALLER)) return kNotInitialized;       \
  auto* const real = real_function<decltype(&::name)>(k_##name); \
  if (real == nullptr) return kNotFound /* old driver; looked up before bind() hid the name */

#pragma GCC visibility push(default)
extern "C" {

Result cuInit(unsigned flags) {
  const Services* guard = find_guard();
  if (!may_pass("cuInit", CG_CALLER)) {
    if (flags != 0) return kInvalidValue;
    if (guard != nullptr) guard->record_attempt(guard->process(), "cuInit", nullptr, CG_CALLER);
    return kNoDevice;
  }
  if (flags != 0 || guard->policy(guard->process()) == Policy::kOff) {
    return real_function<decltype(&::cuInit)>(k_cuInit)(flags);
  }
  return init(CG_CALLER);
}

Result cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  may_pass(kLookUp, nullptr);
  auto* const real = real_function<decltype(&::cuGetProcAddress)>(k_cuGetProcAddress);
  if (real == nullptr) return kNotFound;
  const Result result = real(symbol, function, version, flags);
  if (result == kSuccess && function != nullptr) put_in_front(function);
  return result;
}

Result cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                           int* status) {
  may_pass(kLookUp, nullptr);
  auto* const real = real_function<decltype(&::cuGetProcAddress_v2)>(k_cuGetProcAddress_v2);
  if (real == nullptr) return kNotFound;
  const Result result = real(symbol, function, version, flags, status);
  if (result == kSuccess && function != nullptr) put_in_front(function);
  return result;
}

Result cuDeviceGet(int* device, int ordinal) {
  CG_PASS(cuDeviceGet);
  const Result result = real(device, ordinal);
  if (result == kInvalidDevice && device != nullptr) [[unlikely]] {
    return explain(device, ordinal, CG_CALLER);
  }
  return result;
}

Result cuDeviceGetCount(int* count) {
  if (!may_pass("cuDeviceGetCount", CG_CALLER) && count != nullptr) *count = 0;
  CG_PASS(cuDeviceGetCount);
  return real(count);
}

/// Forwards a query until FORCE_CPU applies, which can be after a successful cuInit.
#define CG_QUERY(name, parameters, ...) \
  Result name parameters {              \
    CG_PASS(name);                      \
    return real(__VA_ARGS__);           \
  }
CG_QUERY(cuDeviceGetByPCIBusId, (int* device, const char* id), device, id)
CG_QUERY(cuDeviceGetName, (char* name, int size, int device), name, size, device)
CG_QUERY(cuDeviceGetUuid, (void* uuid, int device), uuid, device)
CG_QUERY(cuDeviceGetUuid_v2, (void* uuid, int device), uuid, device)
CG_QUERY(cuDeviceGetPCIBusId, (char* id, int size, int device), id, size, device)
CG_QUERY(cuDeviceTotalMem, (unsigned* bytes, int device), bytes, device)
CG_QUERY(cuDeviceTotalMem_v2, (size_t * bytes, int device), bytes, device)
#undef CG_QUERY

Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  CG_PASS(cuDeviceGetAttribute);
  if (attribute == kComputeMode) [[unlikely]] {
    return get_compute_mode(real, value, device);
  }
  return real(value, attribute, device);
}

/// `on`: the device's index, or -1.
#define CG_CONTEXT_ON(on, name, parameters, ...)                                  \
  Result name parameters {                                                        \
    CG_PASS(name);                                                                \
    const Result refused = check_context(#name, CG_CALLER);                       \
    if (refused != kSuccess) return refused;                                      \
    const DriverCall call(Beacon::kContext, CG_CALLER);                           \
    return noted(real(__VA_ARGS__), Event::Kind::kContext, #name, CG_CALLER, on); \
  }
#define CG_CONTEXT(name, parameters, ...) CG_CONTEXT_ON(device, name, parameters, __VA_ARGS__)
CG_CONTEXT(cuCtxCreate, (void** context, unsigned flags, int device), context, flags, device)
CG_CONTEXT(cuCtxCreate_v2, (void** context, unsigned flags, int device), context, flags, device)
CG_CONTEXT(cuCtxCreate_v3, (void** context, void* affinity, int count, unsigned flags, int device),
           context, affinity, count, flags, device)
CG_CONTEXT(cuCtxCreate_v4, (void** context, void* parameters, unsigned flags, int device), context,
           parameters, flags, device)
CG_CONTEXT(cuDevicePrimaryCtxRetain, (void** context, int device), context, device)
CG_CONTEXT(cuGreenCtxCreate, (void** context, void* resources, int device, unsigned flags), context,
           resources, device, flags)
CG_CONTEXT(cuGLCtxCreate, (void** context, unsigned flags, int device), context, flags, device)
CG_CONTEXT(cuGLCtxCreate_v2, (void** context, unsigned flags, int device), context, flags, device)
CG_CONTEXT(cuVDPAUCtxCreate,
           (void** context, unsigned flags, int device, unsigned vdp_device, void* vdp), context,
           flags, device, vdp_device, vdp)
CG_CONTEXT(cuVDPAUCtxCreate_v2,
           (void** context, unsigned flags, int device, unsigned vdp_device, void* vdp), context,
           flags, device, vdp_device, vdp)
#undef CG_CONTEXT

/// Forwards what takes a GPU's memory without a context, and a context for what has one already.
#define CG_MEMORY(name, parameters, ...) CG_CONTEXT_ON(-1, name, parameters, __VA_ARGS__)
CG_MEMORY(cuCtxFromGreenCtx, (void** context, void* green), context, green)
CG_MEMORY(cuMemCreate, (void* handle, size_t size, const void* properties, uint64_t flags), handle,
          size, properties, flags)
CG_MEMORY(cuMemImportFromShareableHandle, (void* handle, void* shared, int type), handle, shared,
          type)
CG_MEMORY(cuMemPoolCreate, (void** pool, const void* properties), pool, properties)
CG_MEMORY(cuMemPoolImportFromShareableHandle, (void** pool, void* shared, int type, uint64_t flags),
          pool, shared, type, flags)
CG_MEMORY(cuMulticastCreate, (void* handle, const void* properties), handle, properties)
CG_MEMORY(cuLogicalEndpointCreate, (unsigned id, const void* properties), id, properties)
CG_MEMORY(cuLogicalEndpointImport, (unsigned id, const void* shared, int type), id, shared, type)
#undef CG_MEMORY
#undef CG_CONTEXT_ON

#define CG_WORK(name, parameters, ...)                                     \
  Result name parameters {                                                 \
    CG_PASS(name);                                                         \
    return noted(real(__VA_ARGS__), Event::Kind::kWork, #name, CG_CALLER); \
  }
CG_WORK(cuModuleLoad, (void** module, const char* file), module, file)
CG_WORK(cuModuleLoadData, (void** module, const void* image), module, image)
CG_WORK(cuModuleLoadDataEx,
        (void** module, const void* image, unsigned count, void* options, void** values), module,
        image, count, options, values)
CG_WORK(cuModuleLoadFatBinary, (void** module, const void* image), module, image)
CG_WORK(cuLibraryLoadData,
        (void** library, const void* code, void* jit_options, void** jit_values, unsigned jit_count,
         void* options, void** values, unsigned count),
        library, code, jit_options, jit_values, jit_count, options, values, count)
CG_WORK(cuLibraryLoadFromFile,
        (void** library, const char* file, void* jit_options, void** jit_values, unsigned jit_count,
         void* options, void** values, unsigned count),
        library, file, jit_options, jit_values, jit_count, options, values, count)
#undef CG_WORK
}
#pragma GCC visibility pop

void* const cudaguard::own_functions[kGuardedCount] = {
#define GUARDED_DRIVER(name, where) reinterpret_cast<void*>(&::name),
#include "shim/api/guarded.inc"
};
