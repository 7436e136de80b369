// SPDX-License-Identifier: Apache-2.0
// The real library of a proxy is the proxy's DT_NEEDED, so ld.so maps it before the proxy's code
// runs. We read its own symbol table and never use RTLD_NEXT: TensorFlow exports 608 `cu*`
// trampolines of its own, which would call each other endlessly.
#pragma once

#include <link.h>

#include "shim/guard/elf/loader.h"
#include "shim/guard/elf/symbol_lookup.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

class RealLibrary {
 public:
  constexpr RealLibrary() = default;
  explicit constexpr RealLibrary(const link_map* map) : map_(map) {}
  bool found() const { return map_ != nullptr; }
  const link_map* map() const { return map_; }
  void* symbol(const char* name) const {
    return map_ == nullptr ? nullptr
                           : const_cast<void*>(elf_symbol(map_->l_ld, map_->l_addr, name));
  }

 private:
  const link_map* map_ = nullptr;
};

/// Opens a library by its SONAME in this proxy's namespace. `mode` holds flags such as RTLD_NOLOAD.
/// Keeps a reference, and leaves no dlerror.
RealLibrary open_real(const Loader& loader, const char* soname, int mode);

/// Removes a name that the real library does not have from our own symbol table, so that dlsym
/// answers as it would without us. Does nothing if the kernel does not let us write there.
void hide_own_symbol(const char* name);

}  // namespace cudaguard
