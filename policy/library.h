// SPDX-License-Identifier: Apache-2.0
// Which library a dlopen request names. Judged by the exact basename: a suffix or prefix match
// would take libraries that are nobody's business (libcuda.so-like.so, libGLdlfakerut.so in
// VirtualGL). Pure, async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Library : uint8_t {
  kOther,    ///< not ours
  kDriver,   ///< libcuda.so, libcuda.so.<digits and dots>, Debian's alternatives of that name
  kNvml,     ///< libnvidia-ml.so likewise
  kRefused,  ///< a row of kRefusedLibraries
  kLibc,     ///< libc.so or libdl.so, in which dlopen itself is found
};

/// What a touch asks for. A library load counts as what that library would do.
enum class DriverApi : uint8_t { kCuda, kNvml, kOpenCl };

/// A library that must not be loaded under FORCE_CPU.
struct RefusedLibrary {
  const char* never;  ///< the name to ask ld.so for instead; cannot exist, so the error is its own
  DriverApi asked = DriverApi::kCuda;  ///< what the library would do
  bool under_list = false;             ///< also under an allow-list, which it does not keep to

  /// The basename, a C string too; a version (".1", ".535.2") may follow in a request.
  constexpr std::string_view name() const;
};

/// /proc/self is made by the kernel: nobody can put a file there.
#define CG_NEVER "/proc/self/cudaguard-refused/"
inline constexpr RefusedLibrary kRefusedLibraries[] = {
    // Opens the device without libcuda; the OpenCL loader then skips NVIDIA.
    {CG_NEVER "libnvidia-opencl.so", DriverApi::kOpenCl, true},
    // Makes and opens /dev/nvidiactl by itself. It configures the driver and does no CUDA:
    // nvidia-persistenced ends without it, nvidia-xconfig and nvidia-settings know no GPU.
    {CG_NEVER "libnvidia-cfg.so", DriverApi::kNvml},
    // ONNX Runtime raises where a driver says "no device", and falls back where these are missing.
    {CG_NEVER "libonnxruntime_providers_cuda.so"},
    {CG_NEVER "libonnxruntime_providers_tensorrt.so"},
};
constexpr std::string_view RefusedLibrary::name() const { return never + sizeof CG_NEVER - 1; }
/// What is asked for in the driver's place when a null driver cannot be loaded.
inline constexpr std::string_view kNoDriver = CG_NEVER "libcuda.so.1";
inline constexpr std::string_view kNoNvml = CG_NEVER "libnvidia-ml.so.1";
#undef CG_NEVER

struct LibraryRequest {
  Library library = Library::kOther;
  const RefusedLibrary* refused = nullptr;  ///< for kRefused
};

/// False for most requests, at the price of a few compares: every name of ours ends in "da.so",
/// "ml.so", "cl.so", "fg.so", "rt.so", "bc.so" or "dl.so" and perhaps a version, or in Debian's
/// way. (To look for the basename costs 13-24 ns; measured by scripts/bench, S3.)
[[gnu::always_inline]] constexpr bool may_be_ours(std::string_view request) {
  size_t end = request.size();
  while (end > 0 && request[end - 1] <= '9' && request[end - 1] >= '.') --end;  // '/' does no harm
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

/// `request` is what was given to dlopen: a name or any path.
LibraryRequest classify(std::string_view request);

}  // namespace cudaguard
