// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include "policy/text.h"

namespace cudaguard {

bool is_user_file(std::string_view file) {
  if (file.starts_with("<frozen ")) return false;
  for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3"}) {
    if (file.find(part) != std::string_view::npos) return false;
  }
  return true;
}

bool passes_calls_on(std::string_view module) {
  const std::string_view file = base_name(module);
  for (const std::string_view name :
       {"libcudaguard", "libcuda.so", "libcudart", "libnvidia-", "libffi.so", "_ctypes.",
        "_cffi_backend.", "libOpenCL.so", "libc.so", "ld-linux"}) {
    if (file.starts_with(name)) return true;
  }
  return false;
}

}  // namespace cudaguard
