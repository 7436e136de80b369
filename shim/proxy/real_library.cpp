// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/real_library.h"

#include <dlfcn.h>

#include <cerrno>

#include "shim/guard/elf/own_symbols.h"

namespace cudaguard {

RealLibrary open_real(const Loader& the, const char* soname, int mode) {
  if (the.dlopen == nullptr) return {};
  const int saved_errno = errno;
  // volatile prevents a tail call, because dlopen looks at its caller, which must be this function.
  void* volatile handle = the.dlopen(soname, RTLD_LAZY | mode);
  if (handle == nullptr && the.dlerror != nullptr) the.dlerror();
  errno = saved_errno;
  return RealLibrary(static_cast<const link_map*>(handle));
}

void hide_own_symbol(const char* name) {
  hide_own_symbols(
      [](const char* other, const void* wanted) {
        return elf_detail::same(other, static_cast<const char*>(wanted));
      },
      name);
}

}  // namespace cudaguard
