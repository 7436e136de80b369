// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/real_library.h"

#include <dlfcn.h>

#include <cerrno>

#include "shim/guard/elf/own_symbols.h"

namespace cudaguard {

RealLibrary open_real(const Loader& loader, const char* soname, int mode) {
  if (loader.dlopen == nullptr) return {};
  const int saved_errno = errno;
  // volatile prevents a tail call, because dlopen looks at its caller, which must be this function.
  void* volatile handle = loader.dlopen(soname, RTLD_LAZY | mode);
  if (handle == nullptr && loader.dlerror != nullptr) loader.dlerror();
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
