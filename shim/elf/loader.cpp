// SPDX-License-Identifier: Apache-2.0
#include "shim/elf/loader.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

/// True if the object holds the dl* functions. glibc >= 2.34 has them in libc.so.6, older ones in
/// libdl.so.2. Another libc has no common name, so its library is the one with its other functions.
bool has_dl_functions(const dl_phdr_info& object) {
  if (!sys::is_glibc()) return holds(object, reinterpret_cast<const void*>(&dl_iterate_phdr));
  const char* name = elf_soname(dynamic_section(object), object.dlpi_addr);
  if (name == nullptr) return false;
  const std::string_view soname = name;
  return soname == "libc.so.6" || soname == "libdl.so.2";
}

int visit(dl_phdr_info* object, size_t /*size*/, void* result) {
  auto& into = *static_cast<Loader*>(result);
  const ElfW(Addr) base = object->dlpi_addr;
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  if (!has_dl_functions(*object)) return 0;
  into.dlopen.take(elf_symbol(dynamic, base, "dlopen"));
  into.dlmopen.take(elf_symbol(dynamic, base, "dlmopen"));
  into.dlclose.take(elf_symbol(dynamic, base, "dlclose"));
  into.dlerror.take(elf_symbol(dynamic, base, "dlerror"));
  into.dlsym.take(elf_symbol(dynamic, base, "dlsym"));
  into.dlinfo.take(elf_symbol(dynamic, base, "dlinfo"));
  return 0;
}

/// Calls dlsym(RTLD_NEXT), which identifies its caller by the return address. So the call must come
/// from this library and must not be a tail call.
[[gnu::noinline]] void* ask_next(void* (*dlsym)(void*, const char*), const char* name) {
  void* volatile result = dlsym(RTLD_NEXT, name);
  return result;
}

}  // namespace

void find(Loader& it) {
  dl_iterate_phdr(visit, &it);
  if (it.dlsym != nullptr) {
    it.next_dlopen.take(ask_next(it.dlsym, "dlopen"));
    it.next_dlmopen.take(ask_next(it.dlsym, "dlmopen"));
  }
  if (it.next_dlopen != nullptr && it.dlopen != nullptr && it.dlclose != nullptr &&
      it.dlerror != nullptr) {
    it.whole.store(true, std::memory_order_release);
  }
}

}  // namespace cudaguard
