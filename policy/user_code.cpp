// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include "policy/text.h"

namespace cudaguard {

bool is_user_code(std::string_view file, std::string_view function) {
  // A dataclass's; whose __post_init__ asks may be somebody else's.
  if (begins(file, "<string>\0") != 0 && begins(function, "__init__\0") != 0) return false;
  // Below lib64/ too. NumPy, attrs, torch.fx and decorator make code of their own; "<string>" is
  // what `python -c` runs, "<ipython-input-...>" a cell.
  return find_any(file,
                  "<frozen \0/site-packages/\0/dist-packages/\0/lib/python3\0/lib64/python3\0"
                  "<__array_function__ \0<attrs \0<eval_with_key>\0<decorator-gen\0") ==
         std::string_view::npos;
}

bool passes_calls_on(std::string_view module) {
  return begins(base_name(module),
                "libcudaguard\0libcuda.so\0libcudart\0libnvidia-\0libffi.so\0_ctypes.\0"
                "_cffi_backend.\0libOpenCL.so\0libc.so\0ld-linux\0") != 0;
}

}  // namespace cudaguard
