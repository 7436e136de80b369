// SPDX-License-Identifier: Apache-2.0
// The exports by which NO_CONTEXT reaches programs and plug-ins that are *linked* to the driver:
// each leads to the proxy, which decides. Functions that few programs link to are not here,
// because an export is found also if an older driver has none of that name. No headers, as in
// shim/proxy/driver.cpp: the versions of cuda.h declare different functions.
#include <cstddef>
#include <cstdint>

#include "shim/guard/exports/next_definition.h"

using namespace cudaguard;  // NOLINT(google-build-using-namespace): only extern "C" below

namespace {

/// The answer if there is no next definition: CUDA_ERROR_NOT_INITIALIZED, as the driver's under
/// FORCE_CPU, otherwise CUDA_ERROR_NOT_FOUND, because an older driver lacks the function.
int missing(const Process& process) { return process.policy() == Policy::kForceCpu ? 3 : 500; }

}  // namespace

/// Calls the next definition, if there is one. This is a tail call, so the proxy sees our caller.
#define CG_CONTEXT(name, parameters, ...)          \
  int name parameters {                            \
    const NextDefinition next = CG_NEXT(name);     \
    auto* const real = next.as(&::name);           \
    if (real != nullptr) return real(__VA_ARGS__); \
    return missing(*next.process);                 \
  }

#pragma GCC visibility push(default)
extern "C" {
CG_CONTEXT(cuCtxCreate, (void** context, unsigned flags, int device), context, flags, device)
CG_CONTEXT(cuCtxCreate_v2, (void** context, unsigned flags, int device), context, flags, device)
// A program that was built with CUDA 13 calls this form.
CG_CONTEXT(cuCtxCreate_v4, (void** context, void* parameters, unsigned flags, int device), context,
           parameters, flags, device)
CG_CONTEXT(cuDevicePrimaryCtxRetain, (void** context, int device), context, device)
CG_CONTEXT(cuGLCtxCreate_v2, (void** context, unsigned flags, int device), context, flags, device)
CG_CONTEXT(cuMemCreate, (void* handle, size_t size, const void* properties, uint64_t flags), handle,
           size, properties, flags)
CG_CONTEXT(cuMemImportFromShareableHandle, (void* handle, void* shared, int type), handle, shared,
           type)
CG_CONTEXT(cuMemPoolCreate, (void** pool, const void* properties), pool, properties)
CG_CONTEXT(cuMemPoolImportFromShareableHandle,
           (void** pool, void* shared, int type, uint64_t flags), pool, shared, type, flags)
}
#pragma GCC visibility pop
