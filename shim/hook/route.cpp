// SPDX-License-Identifier: Apache-2.0
// Where a dlopen goes. Called by the thunks on every request, so the way of a request that is not
// ours is a few loads and compares: no lock, no allocation, no system call.
#include <dlfcn.h>

#include <atomic>

#include "policy/library.h"
#include "shim/elf/loader.h"
#include "shim/elf/object.h"
#include "shim/elf/reference.h"
#include "shim/hook/standins.h"
#include "shim/record/record.h"
#include "shim/state/process.h"
#include "shim/through/companions.h"

namespace cudaguard {

namespace {

/// The loaded stand-in's own name, or one that cannot exist.
const char* standin_name(StandinKind kind, const char* never) {
  const Standin it = standin(kind);
  if (it.path != nullptr) return it.path;
  say_missing(kind);
  return never;
}

/// The name to give to ld.so. Null: FORCE_CPU has just begun to apply.
const char* act(Process& here, const LibraryRequest& request, const char* name, int mode,
                const void* caller) {
  const Policy policy = here.policy();
  const bool driver = request.library == Library::kDriver;
  switch (action_for(policy, !here.config.visible_devices.empty(), request)) {
    case Action::kStandin:
      return driver ? standin_name(StandinKind::kDriver, kNoDriver.data())
                    : standin_name(StandinKind::kNvml, kNoNvml.data());
    case Action::kCompanion:
      return name_with_companion(here, driver ? CompanionKind::kDriver : CompanionKind::kNvml, name,
                                 mode, caller);
    case Action::kRefuse:  // a row of kRefusedLibraries
      if (policy == Policy::kForceCpu) {
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): as above
        record_touch(here, request.refused->name().data(), name, caller);
      } else {
        say_no_opencl(here, caller);
      }
      return request.refused->never;
    default:
      return name;
  }
}

/// Does what comes now get hold of libc's own dlopen? A handle of libc gives it to whoever asks for
/// the symbol; what is loaded with RTLD_DEEPBIND is bound to it.
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
    if (policy == Policy::kOff) return name;
    load_companions_early(here);
  }
  if (here.policy() == Policy::kForceCpu) {
    // Before the first request of any kind goes on: what it loads may be linked to the driver.
    standin(StandinKind::kDriver);
    const Loader& the = loader();
    if (standins_tried() && the.whole.load(std::memory_order_acquire) && here.only_pid == 0 &&
        the.next_dlopen.get() == the.dlopen.get()) {
      here.steady.store(true, std::memory_order_release);
    }
  }
  const char* chosen = act(here, request, name, mode, caller);
  return chosen != nullptr ? chosen : act(here, request, name, mode, caller);
}

/// Almost every request under FORCE_CPU, decided without a call but strlen.
[[gnu::always_inline]] inline bool is_nobodys_business(const char* name, int mode) {
  const Process* here = lasting.process.load(std::memory_order_acquire);
  return here != nullptr && here->steady.load(std::memory_order_acquire) &&
         (mode & RTLD_DEEPBIND) == 0 && (name == nullptr || !may_be_ours(name));
}

/// Is there a hook of the same function behind ours that looks things up by version?
struct HookBehind {
  const char* function;
  const void* caller;
  bool passed_us = false;
  bool found = false;
  bool calls = false;  // it is the caller
  unsigned long long loaded = 0;
};

[[gnu::cold]] int find_hook(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& look = *static_cast<HookBehind*>(data);
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  if (holds(*object, &lasting)) {
    look.passed_us = true;
  } else if (look.passed_us && elf_symbol(dynamic, object->dlpi_addr, look.function) != nullptr) {
    look.found = version_of_reference(dynamic, object->dlpi_addr, "dlvsym") != nullptr;
    look.calls = holds(*object, look.caller);
    look.loaded = object->dlpi_adds;
  }
  return static_cast<int>(look.found);
}

/// Such a hook may look up RTLD_DEFAULT: bare that passes over its own definition, which has no
/// version, and finds libc's; here it finds ours, and we go to the hook again. Where it calls in
/// tail position nothing tells that from a program's call but that it does not end: when the same
/// is asked for in the same place again and again, and nothing is loaded, it goes to libc's.
[[gnu::noinline, gnu::cold]] bool goes_in_circles(const char* function, const char* name,
                                                  const void* caller) {
  constexpr uint32_t kMany = 16;
  HookBehind look = {.function = function, .caller = caller};
  dl_iterate_phdr(find_hook, &look);
  if (!look.found || look.calls) return look.calls;
  const uintptr_t request =
      reinterpret_cast<uintptr_t>(caller) ^ reinterpret_cast<uintptr_t>(name) ^ look.loaded;
  if (lasting.last_request.exchange(request, std::memory_order_relaxed) != request) {
    lasting.rounds.store(0, std::memory_order_relaxed);
  }
  return lasting.rounds.fetch_add(1, std::memory_order_relaxed) % kMany == kMany - 1;
}

template <typename Function>
[[gnu::always_inline]] inline const void* target(const char* function, Function next,
                                                 Function libcs, const char* name,
                                                 const void* caller) {
  const bool hooked = next != libcs && goes_in_circles(function, name, caller);
  return reinterpret_cast<const void*>(hooked ? libcs : next);
}

}  // namespace
}  // namespace cudaguard

extern "C" {

/// Two registers: the name to ask for and the function to jump to (null: answer null).
struct Route {
  const char* name;
  const void* target;
};

Route cudaguard_route_dlopen(const char* name, const void* caller, int mode) {
  using namespace cudaguard;  // NOLINT(google-build-using-namespace)
  if (is_nobodys_business(name, mode)) [[likely]] {
    return {name, reinterpret_cast<const void*>(lasting.loader.dlopen.get())};
  }
  name = choose_name(name, mode, caller);
  const Loader& the = loader();
  return {name, target("dlopen", the.next_dlopen.get(), the.dlopen.get(), name, caller)};
}

[[gnu::cold]] Route cudaguard_route_dlmopen(const char* name, const void* caller, int mode) {
  using namespace cudaguard;               // NOLINT(google-build-using-namespace)
  name = choose_name(name, mode, caller);  // seldom called
  const Loader& the = loader();
  return {name, target("dlmopen", the.next_dlmopen.get(), the.dlmopen.get(), name, caller)};
}
}
