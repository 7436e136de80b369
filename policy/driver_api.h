// SPDX-License-Identifier: Apache-2.0
// Which API a CUDA attempt asks for. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <string_view>

#include "policy/library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The `api` of an attempt that bypassed the guard.
inline constexpr char kRequestApi[] = "ioctl";

/// The `api` of a process that can look up functions of NVIDIA's library.
inline constexpr char kLookUpApi[] = "dlsym";

/// CUDA_ERROR_NO_DEVICE, by which FORCE_CPU refuses CUDA.
inline constexpr int kNoDevice = 100;

/// CUDA_ERROR_NOT_INITIALIZED, also in a forked child of a process that has called cuInit.
inline constexpr int kNotInitialized = 3;

/// CUDA_ERROR_DEVICE_UNAVAILABLE, by which NO_CONTEXT refuses a context: what cuda.h says about
/// the compute mode PROHIBITED.
inline constexpr int kDeviceUnavailable = 46;

/// CU_COMPUTEMODE_PROHIBITED, which a program sees under NO_CONTEXT.
inline constexpr int kProhibited = 2;

/// The nvmlReturn_t by which FORCE_CPU refuses NVML: "driver not loaded", which programs meet on
/// each machine without NVIDIA's driver. Some programs fail if NVML works and has no GPU. But
/// nvmlInit without a version succeeds: PyTorch's device_count() calls it, and asks CUDA if it
/// fails. No header declares that function any more.
constexpr int nvml_refusal(std::string_view api) { return api == "nvmlInit" ? 0 : 9; }

/// Decides once what a call asks for: Attempt::asked and the record say it from then on. `api` is
/// "cuInit", "nvmlInit_v2", "dlopen" or "dlsym"; for the last two, `object` is the
/// library's name or path. A context has an event of its own, which says so instead.
inline DriverApi driver_api_of(std::string_view api, std::string_view object) {
  if (api.starts_with("nvml")) return DriverApi::kNvml;
  if (api != "dlopen" && api != kLookUpApi) return DriverApi::kCuda;
  const LibraryRequest request = classify(object);
  if (request.library == Library::kNvml) return DriverApi::kNvml;
  return request.refused == nullptr ? DriverApi::kCuda : request.refused->asked;
}

}  // namespace cudaguard
