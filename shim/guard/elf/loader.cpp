// SPDX-License-Identifier: Apache-2.0
// The next dlopen is found in libc's own symbol table, so that one binary runs with every glibc
// from 2.17 on. Our exports have no version, so ld.so binds every import to them, and dlvsym skips
// them. The guard therefore exports dlvsym, too. If a search for dlopen passes the guard, our
// dlvsym gives a second form, which goes on to libc. All other requests go to the next dlvsym,
// which sees the true caller.
#include "shim/guard/elf/loader.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <string_view>

#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

namespace {

void take_from(Loader& into, const link_map& object) {
  const elf_detail::Tables tables = elf_detail::read_tables(object.l_ld, object.l_addr);
  const auto take = [&](AnyFound& to, const char* name) {
    to.take(elf_detail::lookup(tables, name));
  };
  take(into.dlopen, "dlopen");
  take(into.dlmopen, "dlmopen");
  take(into.dlclose, "dlclose");
  take(into.dlvsym, "dlvsym");
  take(into.dlerror, "dlerror");
  take(into.dlsym, "dlsym");
  take(into.dladdr1, "dladdr1");
  take(into.single_threaded, "__libc_single_threaded");
}

/// glibc < 2.34 has the dl* functions in libdl.so.2. If the program is not linked to it, a library
/// that libc itself has loaded may be. libc's own dlopen, which all these releases have, finds it.
void take_from_late_libdl(Loader& into, const link_map& libc) {
  using OpenMode = void* (*)(const char*, int);
  const auto open = reinterpret_cast<OpenMode>(
      const_cast<void*>(elf_symbol(libc.l_ld, libc.l_addr, "__libc_dlopen_mode")));
  // volatile prevents a tail call, because this function looks at its caller.
  void* volatile libdl = open != nullptr ? open("libdl.so.2", RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (libdl != nullptr) take_from(into, *static_cast<const link_map*>(libdl));
}

/// glibc >= 2.34 has the dl* functions in libc.so.6.
void take_from_glibc(Loader& into, const StartObjects& start) {
  const link_map* libc = nullptr;
  start.visit([&](const link_map& object) {
    const char* name = elf_soname(object.l_ld, object.l_addr);
    if (name == nullptr) return false;
    const bool is_libc = name == std::string_view("libc.so.6");
    if (is_libc) libc = &object;
    if (is_libc || name == std::string_view("libdl.so.2")) take_from(into, object);
    return false;
  });
  if (into.dlsym == nullptr && libc != nullptr) take_from_late_libdl(into, *libc);
}

/// Takes what dlsym(RTLD_NEXT) finds, which identifies its caller by the return address. So the
/// call must come from this library and must not be a tail call.
/// If libdl.so.2 is only in a local scope, where libc loads name services, it finds nothing, and
/// libc's own is the next.
[[gnu::noinline]] void take_next(AnyFound& to, void* (*dlsym)(void*, const char*), const char* name,
                                 const AnyFound& libcs) {
  const void* const next = dlsym(RTLD_NEXT, name);
  to.take(next != nullptr ? next : libcs.address());
}

}  // namespace

void find(Loader& loader, const StartObjects& start) {
  if (sys::is_glibc()) {
    take_from_glibc(loader, start);
  } else if (const link_map* libc = start.holder(reinterpret_cast<const void*>(&getauxval))) {
    // Another libc has no common name, so its library is the one with its other functions.
    take_from(loader, *libc);
  }
  if (loader.dlsym != nullptr) {
    take_next(loader.next_dlopen, loader.dlsym, "dlopen", loader.dlopen);
    take_next(loader.next_dlmopen, loader.dlsym, "dlmopen", loader.dlmopen);
    take_next(loader.next_dlclose, loader.dlsym, "dlclose", loader.dlclose);
    take_next(loader.next_dlvsym, loader.dlsym, "dlvsym", loader.dlvsym);
  }
  if (loader.next_dlopen != nullptr && loader.dlopen != nullptr && loader.dlclose != nullptr &&
      loader.dlerror != nullptr) {
    loader.whole.store(true, std::memory_order_release);
  }
}

}  // namespace cudaguard
