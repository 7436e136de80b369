// SPDX-License-Identifier: Apache-2.0
// Decides where a dlopen goes. The thunks call this code on every request. A request for another
// library costs only a few loads and compares: no lock, no allocation, no system call.
#include <dlfcn.h>

#include <atomic>

#include "policy/library.h"
#include "shim/elf/loader.h"
#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/hook/dlopen_recursion.h"
#include "shim/hook/later_lookups.h"
#include "shim/hook/null_drivers.h"
#include "shim/proxy_loader/proxies.h"
#include "shim/record/record.h"
#include "shim/state/process.h"

namespace cudaguard {

namespace {

/// Returns the path of the loaded null driver, or `never`, a name that cannot exist.
const char* null_driver_name(NullDriverKind kind, const char* never) {
  const NullDriver it = null_driver(kind);
  if (it.path != nullptr) return it.path;
  print_missing(kind);
  return never;
}

/// A result of choose_name(): dlopen returns null without an error.
constexpr char kNotLoaded[] = "";

/// True if a loaded object that is not ours is linked to this library.
bool is_needed(Library library) {
  return dl_iterate_phdr(
             [](dl_phdr_info* object, size_t, void* wanted) {
               const ElfW(Dyn)* dynamic = dynamic_section(*object);
               const char* soname = elf_soname(dynamic, object->dlpi_addr);
               if (soname != nullptr && std::string_view(soname).starts_with("libcudaguard"))
                 return 0;
               const char* strings = elf_detail::table<char>(dynamic, object->dlpi_addr, DT_STRTAB);
               for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
                 if (dynamic->d_tag == DT_NEEDED &&
                     classify(strings + dynamic->d_un.d_val).library ==
                         *static_cast<const Library*>(wanted)) {
                   return 1;
                 }
               }
               return 0;
             },
             &library) != 0;
}

/// True for an RTLD_NOLOAD request if the program itself has not loaded this library. Libraries
/// that we have loaded in its place or for a proxy do not count. The function remembers every
/// request that loads the library.
bool is_loaded_for_us_alone(const LibraryRequest& request, int mode) {
  const bool driver = request.library == Library::kDriver;
  if (!driver && request.library != Library::kNvml) return false;
  std::atomic<bool>& requested = inherited.requested[driver ? 0 : 1];
  if ((mode & RTLD_NOLOAD) == 0) requested.store(true, std::memory_order_relaxed);
  return !requested.load(std::memory_order_relaxed) && !is_needed(request.library);
}

/// Returns the name to give to ld.so, or null if FORCE_CPU has just begun to apply.
const char* act(Process& here, const LibraryRequest& request, const char* name, int mode,
                const void* caller) {
  const Policy policy = here.policy();
  const bool driver = request.library == Library::kDriver;
  switch (action_for(policy, !here.config.visible_devices.empty(), request)) {
    case Action::kNullDriver:
      return driver ? null_driver_name(NullDriverKind::kDriver, kNoDriver.data())
                    : null_driver_name(NullDriverKind::kNvml, kNoNvml.data());
    case Action::kProxy:
      return name_with_proxy(here, driver ? ProxyKind::kDriver : ProxyKind::kNvml, name, mode,
                             caller);
    case Action::kRefuse:  // a row of kRefusedLibraries
      if (policy == Policy::kForceCpu) {
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): as above
        record_attempt(here, request.refused->name().data(), name, caller);
      } else {
        print_no_opencl(here, caller);
      }
      return request.refused->never.data();
    default:
      return name;
  }
}

/// True if this request lets the caller bypass our hook. A handle of libc gives libc's own dlopen
/// to any caller of dlsym. ld.so binds a library that is loaded with RTLD_DEEPBIND to libc's
/// dlopen.
bool passes_by_us(const LibraryRequest& request, int mode) {
  return request.library == Library::kLibc || (mode & RTLD_DEEPBIND) != 0;
}

[[gnu::noinline, gnu::cold]] const char* choose_name(const char* name, int mode,
                                                     const void* caller) {
  Process& here = process();
  const LibraryRequest request = name == nullptr ? LibraryRequest{} : classify(name);
  if (passes_by_us(request, mode)) need_dev_names();
  const Policy policy = here.policy();
  if (policy != Policy::kForceCpu) {
    libraries_may_change(name, mode);
    if (policy == Policy::kOff) {
      leave_later_lookups(here);
      return name;
    }
    load_proxies_early(here);
  }
  if (here.policy() == Policy::kForceCpu) {
    // The null drivers come before the first request of any kind, because the requested library may
    // be linked to the driver.
    null_driver(NullDriverKind::kDriver);
    const Loader& the = loader();
    if (inherited.null_drivers[0].path.load(std::memory_order_acquire) != nullptr &&
        inherited.null_drivers[1].path.load(std::memory_order_acquire) != nullptr) {
      leave_later_lookups(here);
    }
    if (null_drivers_tried() && the.whole.load(std::memory_order_acquire) && here.only_pid == 0 &&
        the.next_dlopen.get() == the.dlopen.get()) {
      here.steady.store(true, std::memory_order_release);
    }
  }
  if (is_loaded_for_us_alone(request, mode)) return kNotLoaded;
  const char* chosen = act(here, request, name, mode, caller);
  if (chosen == nullptr) chosen = act(here, request, name, mode, caller);
  if (chosen == kNoDriver.data() || chosen == kNoNvml.data()) {
    record_refused(here, chosen, name, caller);
  }
  return chosen;
}

/// True for almost every request under FORCE_CPU; calls nothing but strlen.
[[gnu::always_inline]] inline bool is_nobodys_business(const char* name, int mode) {
  const Process* here = inherited.process.load(std::memory_order_acquire);
  return here != nullptr && here->steady.load(std::memory_order_acquire) &&
         (mode & RTLD_DEEPBIND) == 0 && (name == nullptr || !may_be_ours(name));
}

template <typename Function>
[[gnu::always_inline]] inline const void* target(const char* function, Function next,
                                                 Function libcs, const char* name,
                                                 const void* caller) {
  const bool hooked = next != libcs && is_recursive_dlopen(function, name, caller);
  return reinterpret_cast<const void*>(hooked ? libcs : next);
}

}  // namespace
}  // namespace cudaguard

extern "C" {

/// Two registers: the name to request and the function to jump to. If `target` is null, dlopen
/// returns null.
struct Route {
  const char* name;
  const void* target;
};

/// Clears an earlier dlerror, as the real call would.
static Route answer_null(const cudaguard::Loader& the) {
  if (the.dlerror != nullptr) the.dlerror();
  return {nullptr, nullptr};
}

Route cudaguard_route_dlopen(const char* name, const void* caller, int mode) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  if (is_nobodys_business(name, mode)) [[likely]] {
    return {name, reinterpret_cast<const void*>(inherited.loader.dlopen.get())};
  }
  name = choose_name(name, mode, caller);
  const Loader& the = loader();
  if (name == kNotLoaded) return answer_null(the);
  return {name, target("dlopen", the.next_dlopen.get(), the.dlopen.get(), name, caller)};
}

[[gnu::cold]] Route cudaguard_route_dlmopen(const char* name, const void* caller, int mode) {
  using namespace cudaguard;               // NOLINT(google-build-using-namespace)
  name = choose_name(name, mode, caller);  // seldom called
  const Loader& the = loader();
  if (name == kNotLoaded) return answer_null(the);
  return {name, target("dlmopen", the.next_dlmopen.get(), the.dlmopen.get(), name, caller)};
}
}
