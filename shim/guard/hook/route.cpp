// SPDX-License-Identifier: Apache-2.0
// Answers a dlopen in four steps: makes the process ready, reads the situation, lets policy/dlopen
// decide, and carries the decision out. The thunks call this code on every request. A request for
// another library costs only a few loads and compares: no lock, no allocation, no system call.
#include <dlfcn.h>

#include <atomic>
#include <climits>
#include <cstring>

#include "policy/device_list.h"
#include "policy/dlopen.h"
#include "shim/guard/elf/loader.h"
#include "shim/guard/elf/objects.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/hook/later_lookups.h"
#include "shim/guard/hook/null_drivers.h"
#include "shim/guard/proxy_loader/proxies.h"
#include "shim/guard/record/record.h"
#include "shim/guard/state/process.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

namespace {

/// A call that has arrived in a thunk.
struct Call {
  const char* name;
  int mode;
  const void* caller;
  DlopenRequest request;

  Call(const char* asked, int flags, const void* from) : name(asked), mode(flags), caller(from) {
    request.name = name == nullptr ? std::string_view{} : name;
    request.wanted = classify(request.name);
    request.no_load = (mode & RTLD_NOLOAD) != 0;
    request.deep_bind = (mode & RTLD_DEEPBIND) != 0;
  }
  Library library() const { return request.wanted.library; }
  bool wants_driver() const { return library() == Library::kDriver || library() == Library::kNvml; }
};

/// True if an object that is not ours is linked to this library.
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

/// True for an RTLD_NOLOAD request if neither the program nor an object of its start has loaded
/// this library. Libraries that we have loaded in its place or for a proxy do not count, and
/// libraries that the program has loaded later are not asked: to walk them, we would need ld.so's
/// lock. None of ours is in another namespace.
bool is_loaded_for_us_alone(const Call& call, long space) {
  return call.request.no_load && space == LM_ID_BASE && call.wants_driver() &&
         inherited.hook.handles[index_of(call.library())].load(std::memory_order_relaxed) == 0 &&
         !start_objects().visit(
             [&](const link_map& object) { return needs(object, call.library()); });
}

/// Call this before a request for a library goes on. Only such a request can put other code at a
/// caller's address.
void libraries_may_change(const char* name, int mode) {
  inherited.hook.answers_age.fetch_add(HookInherited::kOneAge, std::memory_order_release);
  if ((mode & RTLD_GLOBAL) != 0 && name != nullptr) inherited.hook.global_names.add(name);
}

/// Counts the handle that ld.so is about to give for our library.
void count_handle(Library library, int mode) {
  if ((mode & (RTLD_LAZY | RTLD_NOW)) == 0) return;  // ld.so refuses the request
  const int which = index_of(library);
  inherited.hook.had_handle[which].store(true, std::memory_order_relaxed);
  if ((mode & RTLD_NODELETE) != 0) {
    inherited.hook.handles[which].fetch_or(HookInherited::kKept, std::memory_order_relaxed);
  } else {
    inherited.hook.handles[which].fetch_add(1, std::memory_order_relaxed);
  }
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
/// object, or DT_RPATH of an object that has loaded it. ld.so does not tell which one that is.
bool has_run_path(const Loader& loader, const void* caller) {
  const link_map* own = object_of(loader, caller);
  return own == nullptr || elf_detail::dynamic_value(own->l_ld, DT_RUNPATH) != 0 ||
         has_rpath(start_objects(),
                   may_inherit_locks(process()) ? LaterObjects::kFree : LaterObjects::kLocked);
}

/// True if ld.so finds for this caller the same file as for us.
bool finds_the_same_for_us(const Loader& loader, const Call& call) {
  const FileSearch search = search_for(call.request.name);
  return search == FileSearch::kName ||
         (search == FileSearch::kRunPath && !has_run_path(loader, call.caller));
}

/// True if ld.so certainly maps no file for this request: it has the library, or finds no file.
bool loads_nothing(const Call& call) {
  if (call.name == nullptr || call.request.no_load || names_start_object(call.name)) return true;
  const Loader& loader = cudaguard::loader();
  if (loader.dlopen == nullptr || loader.dlclose == nullptr || loader.dlerror == nullptr)
    return false;
  if (void* handle = loader.dlopen(call.name, RTLD_LAZY | RTLD_NOLOAD)) {
    loader.dlclose(handle);
    return true;
  }
  // There is no error if ld.so has found a file that is not loaded.
  return loader.dlerror() != nullptr && finds_the_same_for_us(loader, call);
}

/// True if the request loads no library and we must not load one either: ld.so would take a lock
/// that this child may have inherited locked, and the program's own request does not take.
[[gnu::noinline]] bool must_load_nothing(Process& process, const Call& call) {
  return needs_nothing_of_ours(call.request) && may_inherit_locks(process) && loads_nothing(call);
}

/// Loads the null drivers before the first request of any kind goes on, because the requested
/// library may be linked to the driver.
void load_null_drivers(Process& process) {
  null_driver(Library::kDriver);
  const Loader& loader = cudaguard::loader();
  if (inherited.hook.null_drivers[0].is_loaded() && inherited.hook.null_drivers[1].is_loaded()) {
    leave_later_lookups(process);
  }
  if (!null_drivers_tried()) return;
  process.hook.advance(HookState::kFresh, HookState::kReady);
  if (loader.whole.load(std::memory_order_acquire) && process.only_pid == 0 &&
      loader.next_dlopen.get() == loader.dlopen.get()) {
    process.hook.advance(HookState::kReady, HookState::kSteady);
  }
}

/// True if what the policy needs before any request goes on was tried. A forked child inherits the
/// null drivers, but not the look for proxies.
bool is_ready(const Process& process, Policy loads) {
  return loads == Policy::kForceCpu ? null_drivers_tried() : !process.hook.is(HookState::kFresh);
}

/// What make_ready() has found out about a request.
struct Readiness {
  bool loaded_for_us_alone = false;
  bool is_ready = false;  ///< false: the request loads nothing, so we do not either
  Substitute proxy = Substitute::kNone;
};

/// The first of four steps: loads what the request needs, or nothing if it needs nothing. Only this
/// step changes the process: FORCE_CPU may apply after it.
Readiness make_ready(Process& process, const Call& call, long space) {
  const Policy loads = process.loads();
  if (lets_bypass(call.request)) need_dev_names();
  if (loads != Policy::kForceCpu) libraries_may_change(call.name, call.mode);
  if (loads == Policy::kOff) {
    leave_later_lookups(process);
    inherited.hook.may_have_loaded.store(true, std::memory_order_release);
    return {};
  }
  if (is_loaded_for_us_alone(call, space)) return {.loaded_for_us_alone = true};
  if (!is_ready(process, loads) && must_load_nothing(process, call)) return {};
  if (loads != Policy::kForceCpu) load_proxies_early(process);
  if (process.loads() == Policy::kForceCpu) load_null_drivers(process);
  inherited.hook.may_have_loaded.store(true, std::memory_order_release);
  Readiness done = {.is_ready = true};
  if (call.wants_driver() && allows_cuda(process.loads())) {
    done.proxy = make_proxy_ready(process, call.library(), call.name, call.mode, call.caller);
    if (done.proxy == Substitute::kNoLibrary && !finds_the_same_for_us(loader(), call)) {
      done.proxy = Substitute::kForCallerOnly;
    }
  }
  return done;
}

/// The second step: reads the policy, once, after all that may change it.
DlopenSituation situation(const Process& process, const Call& call, const Readiness& done) {
  const bool fallen = process.has_fallen();
  DlopenSituation now = {.loads = fallen ? Policy::kForceCpu : process.decision.loads,
                         .calls = fallen ? Policy::kForceCpu : process.decision.calls,
                         .list = !process.decision.allow_list.text.empty(),
                         .null_drivers_tried = null_drivers_tried(),
                         .loaded_for_us_alone = done.loaded_for_us_alone,
                         .substitute = done.proxy};
  // The null driver takes the place of a proxy that has led to FORCE_CPU.
  if (done.is_ready && call.wants_driver() && now.loads == Policy::kForceCpu) {
    now.substitute =
        null_driver(call.library()).path != nullptr ? Substitute::kReady : Substitute::kUnusable;
    now.null_drivers_tried = null_drivers_tried();
  }
  return now;
}

/// Prints and records what the decision says.
void report(Process& process, const Call& call, const DlopenDecision& decision) {
  switch (decision.report) {
    case Report::kNothing:
      return;
    case Report::kAttempt:
      return record_attempt(process, call.request.wanted.refused->name().data(), call.name,
                            call.caller);
    case Report::kNoOpenCl:
      return print_no_opencl(process, call.caller);
    case Report::kNoDriver:
      return record_no_driver(process, "dlopen", call.caller);
    case Report::kUnusableNullDriver:
      print_missing(call.library());
      break;
    case Report::kUnusableProxy:
      print_not_ours(call.library(), call.name);
      break;
    case Report::kRefusedLoad:
      break;
  }
  record_refused(process, decision.never, call.name, call.caller);
}

/// Returns the name that ld.so gets.
const char* name_for_ldso(const Call& call, const DlopenDecision& decision) {
  switch (decision.action) {
    case Action::kNullDriver:
      return inherited.hook.null_drivers[index_of(call.library())].get().path;
    case Action::kProxy:
      return inherited.proxy_loader.proxies[index_of(call.library())].get().path;
    case Action::kRefuse:
      return decision.never;
    default:
      return call.name;
  }
}

struct Answer {
  Action action;
  const char* name;
};

[[gnu::noinline, gnu::cold]] Answer answer(const char* name, int mode, const void* caller,
                                           long space = LM_ID_BASE) {
  Process& process = cudaguard::process();
  const Call call(name, mode, caller);
  const Readiness done = make_ready(process, call, space);
  const DlopenDecision decision = decide(call.request, situation(process, call, done));
  report(process, call, decision);
  const bool ours = decision.action == Action::kNullDriver || decision.action == Action::kProxy;
  if (ours && space == LM_ID_BASE) count_handle(call.library(), mode);
  return {decision.action, name_for_ldso(call, decision)};
}

/// True if this caller's search for a versioned definition would come to our export before it finds
/// one.
[[gnu::cold]] bool comes_past_us(const void* handle, const void* caller, const char* name,
                                 const char* version) {
  const link_map* after = nullptr;
  if (handle == RTLD_NEXT) {
    after = start_objects().holder(caller);
    if (after == nullptr) return false;
  } else if (handle != RTLD_DEFAULT && handle != start_objects().first()) {
    return false;
  }
  VersionedSearch search(after != nullptr);
  start_objects().visit([&](const link_map& object) {
    const bool found =
        search.has_begun() && elf_versioned(object.l_ld, object.l_addr, name, version) != nullptr;
    return search.ends_at(object.l_ld == _DYNAMIC, found, &object == after);
  });
  return search.comes_past_us();
}

/// True for almost every request under FORCE_CPU. Calls nothing but libc's strnlen: the guard's own
/// strlen looks at one byte after the other, 20 ns longer for a usual path (scripts/bench, S3).
[[gnu::always_inline]] inline bool is_nobodys_business(const char* name, int mode) {
  const Process* process = inherited.process.load(std::memory_order_acquire);
  if (process == nullptr || !process->hook.is(HookState::kSteady) || (mode & RTLD_DEEPBIND) != 0) {
    return false;
  }
  if (name == nullptr) return true;
  const size_t size = strnlen(name, PATH_MAX);
  return size < PATH_MAX && !may_be_ours({name, size});
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

static Route route(const cudaguard::Loader& loader, const cudaguard::Answer& answer,
                   const void* target) {
  if (answer.action != cudaguard::Action::kNotLoaded && target != nullptr) {
    return {answer.name, target};
  }
  if (loader.dlerror != nullptr)
    loader.dlerror();  // clears an earlier error, as the real call would
  return {nullptr, nullptr};
}

Route cudaguard_route_dlopen(const char* name, const void* caller, int mode) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  if (is_nobodys_business(name, mode)) [[likely]] {
    return {name, inherited.loader.dlopen.address()};
  }
  const Answer answer = cudaguard::answer(name, mode, caller);
  const Loader& loader = cudaguard::loader();
  return route(loader, answer, loader.next_dlopen.address());
}

[[gnu::cold]] Route cudaguard_route_dlmopen(const char* name, const void* caller, int mode,
                                            long space) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  const Answer answer = cudaguard::answer(name, mode, caller, space);
  const Loader& loader = cudaguard::loader();
  return route(loader, answer, loader.next_dlmopen.address());
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
  const Loader& loader = cudaguard::loader();
  auto* const next = loader.next_dlvsym.get();
  const struct {
    const char* name;
    const void* next;
    void (*ours)();
    void (*libcs)();
  } hooks[] = {
      {"dlopen", loader.next_dlopen.address(), cudaguard_dlopen, cudaguard_libcs_dlopen},
      {"dlmopen", loader.next_dlmopen.address(), cudaguard_dlmopen, cudaguard_libcs_dlmopen},
      {"dlvsym", loader.next_dlvsym.address(), cudaguard_dlvsym, nullptr},
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
  return {name, loader.next_dlvsym.address()};
}
}
