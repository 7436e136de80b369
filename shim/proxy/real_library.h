// SPDX-License-Identifier: Apache-2.0
// The real library behind a proxy: its DT_NEEDED, mapped before any of the proxy's code
// runs. Functions come from its own symbol table, never by RTLD_NEXT: TensorFlow exports 608 `cu*`
// trampolines of its own, which would call each other for ever.
#pragma once

#include <link.h>

#include "shim/elf/loader.h"
#include "shim/elf/symbol_lookup.h"

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

/// By its SONAME, in this proxy's namespace; `mode` RTLD_NOLOAD or not. Keeps a reference;
/// leaves no dlerror.
RealLibrary open_real(const Loader& the, const char* soname, int mode);

/// A name of ours that the real library does not have: taken out of our own symbol table, so that
/// dlsym answers as it would without us, if the kernel lets us write there.
void hide_own_symbol(const char* name);

}  // namespace cudaguard
