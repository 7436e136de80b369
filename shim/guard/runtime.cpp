// SPDX-License-Identifier: Apache-2.0
// The runtime calls that a program makes through a *shared* cudart. The stand-in would give the
// same answer through the runtime; in front of it we also see who asked: the program's library, not
// cudart.
#include <cuda_runtime_api.h>

#include "shim/guard/caller_scope.h"
#include "shim/guard/process.h"
#include "shim/guard/record.h"

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

#define CG_CALLER __builtin_return_address(0)
/// Under OFF: the caller's own runtime. Else: no device. The runtime's own error state needs no
/// help: its cudaGetLastError initialises the runtime, which the stand-in answers with 100
/// (measured with cudart 11.8, 12.2, 12.9, 13.5).
#define CG_NO_DEVICE(function, ...)                                                               \
  do {                                                                                            \
    Process& here = process();                                                                    \
    if (here.config.policy == Policy::kOff) {                                                     \
      auto* real = reinterpret_cast<decltype(&::function)>(definition_for(#function, CG_CALLER)); \
      return real != nullptr ? real(__VA_ARGS__) : cudaErrorNoDevice;                             \
    }                                                                                             \
    record_touch(here, #function, nullptr, CG_CALLER);                                            \
  } while (false)

#pragma GCC visibility push(default)
extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  CG_NO_DEVICE(cudaGetDeviceCount, count);
  // The real runtime leaves it alone; 0 helps callers that ignore the error (llama.cpp passes a
  // live field; OpenCV tests the count alone).
  if (count != nullptr) *count = 0;
  return cudaErrorNoDevice;
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  CG_NO_DEVICE(cudaSetDevice, device);
  return cudaErrorNoDevice;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  CG_NO_DEVICE(cudaDeviceSynchronize);
  return cudaErrorNoDevice;
}
}
#pragma GCC visibility pop
