// SPDX-License-Identifier: Apache-2.0
// For test_declarations.py: NVIDIA's own headers in place of ours. Each name means itself, not its
// newest version.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvml.h>
#undef cudaGetDeviceProperties
