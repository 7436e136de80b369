// SPDX-License-Identifier: Apache-2.0
// Decides where a dlopen goes. The thunks call this code on every request. A request for another
// library costs only a few loads and compares: no lock, no allocation, no system call.
#include <dlfcn.h>

#include <atomic>

#include "policy/library.h"
#include "shim/elf/loader.h"
#include "shim/elf/objects.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/hook/later_lookups.h"
#include "shim/hook/needed.h"
#include "shim/hook/null_drivers.h"
#include "shim/proxy_loader/proxies.h"
#include "shim/record/record.h"
#include "shim/state/process.h"
#include "shim/sys/system.h"

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

/// True for an RTLD_NOLOAD request if the program itself has not loaded this library. Libraries
/// that we have loaded in its place or for a proxy do not count. None of them is in another
/// namespace.
bool is_loaded_for_us_alone(const LibraryRequest& request, int mode, long space) {
  const bool driver = request.library == Library::kDriver;
  return (mode & RTLD_NOLOAD) != 0 && space == LM_ID_BASE &&
         (driver || request.library == Library::kNvml) &&
         inherited.handles[driver ? 0 : 1].load(std::memory_order_relaxed) == 0 &&
         !is_needed(request.library);
}

/// Counts the handle that ld.so is about to give for one of our libraries.
void count_handle(const char* path, int mode) {
  if ((mode & (RTLD_LAZY | RTLD_NOW)) == 0) return;  // ld.so refuses the request
  for (int which = 0; which < 2; ++which) {
    if (path == nullptr || (path != inherited.null_drivers[which].path.load() &&
                            path != inherited.proxies[which].path.load())) {
      continue;
    }
    inherited.had_handle[which].store(true, std::memory_order_relaxed);
    if ((mode & RTLD_NODELETE) != 0) {
      inherited.handles[which].fetch_or(InheritedState::kKept, std::memory_order_relaxed);
    } else {
      inherited.handles[which].fetch_add(1, std::memory_order_relaxed);
    }
  }
}

/// Returns the name to give to ld.so, or kNotLoaded, or null if FORCE_CPU has just begun to apply.
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
    case Action::kRefuse:               // a row of kRefusedLibraries
      if ((mode & RTLD_NOLOAD) != 0) {  // loads nothing, so it is no attempt
        const bool is_ours = request.refused->asked == DriverApi::kOpenCl && null_drivers_tried();
        return is_ours ? kNotLoaded : name;  // ld.so may know a null driver by this name
      }
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

/// True if ld.so answers to this name with an object that it has mapped for the program's start.
bool names_start_object(const char* name) {
  return start_objects().visit([=](const link_map& object) {
    const char* soname = elf_soname(object.l_ld, object.l_addr);
    return elf_detail::same(object.l_name, name) ||
           (soname != nullptr && elf_detail::same(soname, name));
  });
}

/// True if ld.so may look for a file in directories that only this caller names: those of its own
/// object, or DT_RPATH of an object that has loaded it.
bool has_run_path(const Loader& the, const void* caller) {
  const link_map* own = object_of(the, caller);
  return own == nullptr || elf_detail::dynamic_value(own->l_ld, DT_RUNPATH) != 0 ||
         elf_detail::dynamic_value(own->l_ld, DT_RPATH) != 0 ||
         start_objects().visit([](const link_map& object) {
           return elf_detail::dynamic_value(object.l_ld, DT_RPATH) != 0;
         });
}

/// True if ld.so certainly maps no file for this request: it has the library, or finds no file.
bool loads_nothing(const char* name, int mode, const void* caller) {
  if (name == nullptr || (mode & RTLD_NOLOAD) != 0 || names_start_object(name)) return true;
  const Loader& the = loader();
  if (the.dlopen == nullptr || the.dlclose == nullptr || the.dlerror == nullptr) return false;
  if (void* handle = the.dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
    the.dlclose(handle);
    return true;
  }
  // There is no error if ld.so has found a file that is not loaded.
  const bool found = the.dlerror() == nullptr;
  const std::string_view path = name;
  const bool any_caller = path.find('/') != std::string_view::npos
                              ? path.find('$') == std::string_view::npos
                              : !has_run_path(the, caller);
  return !found && any_caller;
}

/// True if the request loads no library and we must not load one either: ld.so would take a lock
/// that this child may have inherited locked, and the program's own request does not take.
[[gnu::noinline]] bool must_load_nothing(Process& here, const LibraryRequest& request,
                                         const char* name, int mode, const void* caller) {
  return (request.library == Library::kOther || request.library == Library::kLibc) &&
         may_inherit_locks(here) && loads_nothing(name, mode, caller);
}

[[gnu::noinline, gnu::cold]] const char* choose_name(const char* name, int mode, const void* caller,
                                                     long space = LM_ID_BASE) {
  Process& here = process();
  const LibraryRequest request = name == nullptr ? LibraryRequest{} : classify(name);
  if (passes_by_us(request, mode)) need_dev_names();
  const Policy policy = here.policy();
  if (policy != Policy::kForceCpu) {
    libraries_may_change(name, mode);
    if (policy == Policy::kOff) {
      leave_later_lookups(here);
      inherited.may_have_loaded.store(true, std::memory_order_release);
      return name;
    }
  }
  if (is_loaded_for_us_alone(request, mode, space)) {
    // Before the null drivers are loaded, ld.so knows no library of that name either.
    return policy == Policy::kForceCpu && !null_drivers_tried() ? name : kNotLoaded;
  }
  const bool tried = policy == Policy::kForceCpu
                         ? null_drivers_tried()
                         : here.proxies_looked.load(std::memory_order_relaxed);
  if (!tried && must_load_nothing(here, request, name, mode, caller)) return name;
  if (policy != Policy::kForceCpu) load_proxies_early(here);
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
  inherited.may_have_loaded.store(true, std::memory_order_release);
  const char* chosen = act(here, request, name, mode, caller);
  if (chosen == nullptr) chosen = act(here, request, name, mode, caller);
  if (chosen == kNoDriver.data() || chosen == kNoNvml.data()) {
    record_refused(here, chosen, name, caller);
  }
  return chosen;
}

/// True if this caller's search for a versioned definition would come to our export before it finds
/// one. The search skips our export and other libraries' hooks, which have no version.
[[gnu::cold]] bool comes_past_us(const void* handle, const void* caller, const char* name,
                                 const char* version) {
  const link_map* after = nullptr;  // the search begins after this object
  if (handle == RTLD_NEXT) {
    after = start_objects().holder(caller);
    if (after == nullptr) return false;
  } else if (handle != RTLD_DEFAULT && handle != start_objects().first()) {
    return false;
  }
  bool searched = after == nullptr;
  bool past_us = false;
  start_objects().visit([&](const link_map& object) {
    if (object.l_ld == _DYNAMIC) past_us = searched;
    if (object.l_ld == _DYNAMIC ||
        (searched && elf_versioned(object.l_ld, object.l_addr, name, version) != nullptr)) {
      return true;
    }
    searched = searched || &object == after;
    return false;
  });
  return past_us;
}

/// True for almost every request under FORCE_CPU; calls nothing but strlen.
[[gnu::always_inline]] inline bool is_nobodys_business(const char* name, int mode) {
  const Process* here = inherited.process.load(std::memory_order_acquire);
  return here != nullptr && here->steady.load(std::memory_order_acquire) &&
         (mode & RTLD_DEEPBIND) == 0 && (name == nullptr || !may_be_ours(name));
}

}  // namespace
}  // namespace cudaguard

extern "C" {

/// Two registers: the name to request and the function to jump to. If `target` is null, the thunk
/// returns `name`.
struct Route {
  const char* name;
  const void* target;
};

static Route route(const cudaguard::Loader& the, const char* name, const void* target) {
  if (name != cudaguard::kNotLoaded && target != nullptr) return {name, target};
  if (the.dlerror != nullptr) the.dlerror();  // clears an earlier error, as the real call would
  return {nullptr, nullptr};
}

Route cudaguard_route_dlopen(const char* name, const void* caller, int mode) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  if (is_nobodys_business(name, mode)) [[likely]] {
    return {name, inherited.loader.dlopen.address()};
  }
  name = choose_name(name, mode, caller);
  count_handle(name, mode);
  const Loader& the = loader();
  return route(the, name, the.next_dlopen.address());
}

[[gnu::cold]] Route cudaguard_route_dlmopen(const char* name, const void* caller, int mode,
                                            long space) {
  using namespace cudaguard;                      // NOLINT(google-build-using-namespace)
  name = choose_name(name, mode, caller, space);  // seldom called
  if (space == LM_ID_BASE) count_handle(name, mode);
  const Loader& the = loader();
  return route(the, name, the.next_dlmopen.address());
}

Route cudaguard_route_libcs_dlopen(const char* name, const void* caller, int mode) {
  const Route next = cudaguard_route_dlopen(name, caller, mode);
  if (next.target == nullptr) return next;
  return {next.name, cudaguard::inherited.loader.dlopen.address()};
}

[[gnu::cold]] Route cudaguard_route_libcs_dlmopen(const char* name, const void* caller, int mode,
                                                  long space) {
  const Route next = cudaguard_route_dlmopen(name, caller, mode, space);
  if (next.target == nullptr) return next;
  return {next.name, cudaguard::inherited.loader.dlmopen.address()};
}

// The thunks.
void cudaguard_dlopen();
void cudaguard_dlmopen();
void cudaguard_dlvsym();
void cudaguard_libcs_dlopen();
void cudaguard_libcs_dlmopen();

/// Gives our own function where dlvsym would come past it, and leaves all other requests to ld.so.
[[gnu::cold]] Route cudaguard_route_dlvsym(const char* name, const void* caller,
                                           const char* version, void* handle) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  const Loader& the = loader();
  auto* const next = the.next_dlvsym.get();
  if (next == nullptr || name == nullptr) return {name, the.next_dlvsym.address()};
  const struct {
    const char* name;
    const void* next;
    void (*ours)();
    void (*libcs)();
  } hooks[] = {
      {"dlopen", the.next_dlopen.address(), cudaguard_dlopen, cudaguard_libcs_dlopen},
      {"dlmopen", the.next_dlmopen.address(), cudaguard_dlmopen, cudaguard_libcs_dlmopen},
      {"dlvsym", the.next_dlvsym.address(), cudaguard_dlvsym, nullptr},
  };
  for (const auto& hook : hooks) {
    if (!elf_detail::same(name, hook.name) || !comes_past_us(handle, caller, name, version)) {
      continue;
    }
    // A search that begins after us finds what this caller would find without us.
    const void* found = next(RTLD_NEXT, name, version);
    if (found == nullptr) break;  // ld.so's error names the caller
    auto* const ours = found == hook.next ? hook.ours : hook.libcs;
    if (ours != nullptr) return {reinterpret_cast<const char*>(ours), nullptr};
  }
  return {name, the.next_dlvsym.address()};
}
}
