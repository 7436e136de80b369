// SPDX-License-Identifier: Apache-2.0
#include "shim/hook/needed.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

#include "shim/elf/objects.h"
#include "shim/state/process.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

bool needs(const link_map& object, Library library) {
  const char* soname = elf_soname(object.l_ld, object.l_addr);
  if (soname != nullptr && std::string_view(soname).starts_with("libcudaguard")) return false;
  const char* strings = elf_detail::table<char>(object.l_ld, object.l_addr, DT_STRTAB);
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && classify(strings + entry->d_un.d_val).library == library) {
      return true;
    }
  }
  return false;
}

using Code = void (*)();
constexpr char kDriverName[] = "cudaguard_driver_is_needed";
constexpr char kNvmlName[] = "cudaguard_nvml_is_needed";

/// Returns any address if an object needs this library. Call it while ld.so's list does not change.
const void* any_needs(Library library) {
  const bool found = visit_objects(start_objects(), LaterObjects::kFree,
                                   [=](const link_map& object) { return needs(object, library); });
  return found ? kDriverName : nullptr;
}

}  // namespace

// dlsym calls the resolver of such a symbol while it holds the lock of dlopen, so no other thread
// can load or unload a library meanwhile. This is the only way to do something under this lock: a
// request with RTLD_NOLOAD takes it anyway, and fork() frees it in the child.
extern "C" {
[[gnu::visibility("hidden")]] Code cudaguard_dl_resolve_driver() {
  return reinterpret_cast<Code>(const_cast<void*>(any_needs(Library::kDriver)));
}
[[gnu::visibility("hidden")]] Code cudaguard_dl_resolve_nvml() {
  return reinterpret_cast<Code>(const_cast<void*>(any_needs(Library::kNvml)));
}
[[gnu::visibility("default"), gnu::ifunc("cudaguard_dl_resolve_driver")]] void
cudaguard_driver_is_needed();
[[gnu::visibility("default"), gnu::ifunc("cudaguard_dl_resolve_nvml")]] void
cudaguard_nvml_is_needed();
}

bool is_needed(Library library) {
  if (start_objects().visit([=](const link_map& object) { return needs(object, library); })) {
    return true;
  }
  if (later_objects() == LaterObjects::kNone) return false;
  if (!sys::is_glibc()) return any_needs(library) != nullptr;  // musl unloads nothing
  const Loader& the = loader();
  // A handle of the guard has no scope, because ld.so has not opened the guard by dlopen.
  return the.dlsym != nullptr &&
         the.dlsym(RTLD_DEFAULT, library == Library::kDriver ? kDriverName : kNvmlName) != nullptr;
}

}  // namespace cudaguard
