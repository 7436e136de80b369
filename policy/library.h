// SPDX-License-Identifier: Apache-2.0
// Which library a dlopen request names. Only the exact basename counts: a suffix or prefix match
// would catch unrelated libraries (libcuda.so-like.so, libGLdlfakerut.so in VirtualGL). Pure,
// async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Library : uint8_t {
  kOther,    ///< a library that the guard ignores
  kDriver,   ///< libcuda.so, libcuda.so.<digits and dots>, Debian's alternatives of that name
  kNvml,     ///< libnvidia-ml.so likewise
  kRefused,  ///< a row of kRefusedLibraries
  kLibc,     ///< libc.so or libdl.so, which define dlopen itself
};

/// What a CUDA attempt asks for. A library load counts as what that library would do.
/// kContext is a CUDA context, or what NO_CONTEXT refuses with it; everything else of CUDA is
/// kCuda.
enum class DriverApi : uint8_t { kCuda, kNvml, kOpenCl, kContext };
inline constexpr DriverApi kDriverApis[] = {DriverApi::kCuda, DriverApi::kNvml, DriverApi::kOpenCl,
                                            DriverApi::kContext};

constexpr const char* name_of(DriverApi api) {
  constexpr const char* kNames[] = {"CUDA", "NVML", "OpenCL", "a CUDA context"};
  return kNames[static_cast<size_t>(api)];
}

/// The same as a word in records and in JSON documents.
constexpr const char* word_of(DriverApi api) {
  constexpr const char* kWords[] = {"cuda", "nvml", "opencl", "context"};
  return kWords[static_cast<size_t>(api)];
}

/// A library that must not be loaded under FORCE_CPU.
struct RefusedLibrary {
  /// The name for ld.so instead. It cannot exist, so the error is ld.so's own.
  char never[66];
  DriverApi asked = DriverApi::kCuda;  ///< what the library would do
  /// Also under an allow-list and NO_CONTEXT: the library needs no libcuda, which has the proxy.
  bool no_proxy = false;

  /// The basename, which is also a C string; a version (".1", ".535.2") may follow in a request.
  constexpr std::string_view name() const;
};

/// The kernel makes /proc/self, so no user can put a file there.
#define CG_NEVER "/proc/self/cudaguard-refused/"
inline constexpr RefusedLibrary kRefusedLibraries[] = {
    // This library opens the device without libcuda. The OpenCL loader then skips NVIDIA.
    {CG_NEVER "libnvidia-opencl.so", DriverApi::kOpenCl, true},
    // This library itself makes and opens /dev/nvidiactl. It configures the driver and does no
    // CUDA. Without it nvidia-persistenced ends, and nvidia-xconfig and nvidia-settings know no
    // GPU.
    {CG_NEVER "libnvidia-cfg.so", DriverApi::kNvml},
    // With a driver that reports "no device", ONNX Runtime raises: 1.16 always, 1.31 if TensorRT is
    // listed, too, as in get_available_providers(). If these libraries are missing, it falls back
    // to the CPU, as on a machine without a driver.
    {CG_NEVER "libonnxruntime_providers_cuda.so"},
    {CG_NEVER "libonnxruntime_providers_tensorrt.so"},
};
constexpr std::string_view RefusedLibrary::name() const { return never + sizeof CG_NEVER - 1; }
inline constexpr char kDriverSoname[] = "libcuda.so.1";
/// The name that replaces the driver's when a null driver cannot be loaded.
inline constexpr char kAbsentDriver[] = CG_NEVER "libcuda.so.1";
inline constexpr char kAbsentNvml[] = CG_NEVER "libnvidia-ml.so.1";
#undef CG_NEVER

struct LibraryRequest {
  Library library = Library::kOther;
  const RefusedLibrary* refused = nullptr;  ///< for kRefused
};

/// False for most requests, at the cost of a few compares. Every guarded name ends in "da.so",
/// "ml.so", "cl.so", "fg.so", "rt.so", "bc.so" or "dl.so", perhaps with a version, or as Debian's
/// alternatives do. (Finding the basename costs 13-24 ns; measured by scripts/bench, S3.)
[[gnu::always_inline]] constexpr bool may_be_ours(std::string_view request) {
  size_t end = request.size();
  while (end > 0 && request[end - 1] <= '9' && request[end - 1] >= '.') --end;  // '/' is harmless
  if (end < 5 || request[end - 1] != 'o' || request[end - 2] != 's' || request[end - 3] != '.') {
    return request.ends_with("-linux-gnu");
  }
  const char last = request[end - 4];
  const char before = request[end - 5];
  return (last == 'a' && before == 'd') ||
         (last == 'l' && (before == 'm' || before == 'c' || before == 'd')) ||
         (last == 'g' && before == 'f') || (last == 't' && before == 'r') ||
         (last == 'c' && before == 'b');
}

/// `request` is the argument of dlopen: a name or any path.
LibraryRequest classify(std::string_view request);

}  // namespace cudaguard
