// SPDX-License-Identifier: Apache-2.0
// What a touch asks for. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/library.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// What was asked for. A library load counts as what that library would do.
enum class Asked : uint8_t { kCuda, kNvml, kOpenCl };

/// `api`: "cuInit", "nvmlInit_v2", "dlopen"; `object`: of dlopen, the library's name or path.
/// libnvidia-cfg configures the driver and does no CUDA, as NVML; ONNX Runtime's plug-ins do CUDA.
inline Asked asked_for(std::string_view api, std::string_view object) {
  if (api.starts_with("nvml")) return Asked::kNvml;
  if (api != "dlopen") return Asked::kCuda;
  const LibraryRequest request = classify(object);
  if (request.library == Library::kNvml) return Asked::kNvml;
  if (request.refused == nullptr) return Asked::kCuda;
  const std::string_view name = request.refused->name();
  if (name == "libnvidia-opencl.so") return Asked::kOpenCl;
  return name == "libnvidia-cfg.so" ? Asked::kNvml : Asked::kCuda;
}

}  // namespace cudaguard
