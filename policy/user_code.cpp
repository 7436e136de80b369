// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

/// Does one of the names stand in `text`; `where` 0: in front? Each ends in a zero byte, the list
/// in two.
bool has_any(std::string_view text, const char* names, bool in_front) {
  for (; *names != '\0'; names += std::string_view(names).size() + 1) {
    const size_t at = text.find(names);
    if (in_front ? at == 0 : at != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

bool is_user_file(std::string_view file) {
  return !has_any(
      file, "<frozen \0/site-packages/\0/dist-packages/\0/lib/python3\0/lib64/python3\0", false);
}

bool passes_calls_on(std::string_view module) {
  return has_any(base_name(module),
                 "libcudaguard\0libcuda.so\0libcudart\0libnvidia-\0libffi.so\0_ctypes.\0"
                 "_cffi_backend.\0libOpenCL.so\0libc.so\0ld-linux\0",
                 true);
}

}  // namespace cudaguard
