// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/proxy_loader/proxies.h"

#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <string_view>

#include "policy/decision.h"
#include "policy/library.h"
#include "policy/text.h"
#include "shim/guard/elf/loader.h"
#include "shim/guard/elf/own_files.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/proxy_loader/services.h"
#include "shim/guard/record/record.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

namespace {

constexpr Services kServices = {
    .process = &process,
    .policy = [](const Process& process) { return process.policy(); },
    .loader = &loader,
    .variable = &variable,
    .fall_back = &fall_back,
    .record_event = &record_event,
    .begin_call = &begin_call,
    .end_call = &end_call,
    .record_attempt = &record_attempt,
    .record_no_context = &record_no_context,
    .print_message = &print_message,
    .print_bad_index = &print_bad_index,
    .check_fork = &check_fork,
    .note_count = &note_count,
    .note_init = &note_init,
    .note_no_device = &note_no_device,
};

struct Files {
  char file[23];  // below our own directory
  char real[18];  // its DT_NEEDED
  Message missing;
  Message stub;
  char init[3][18];  // what initialises the real library; the first one is the usual one
};
constexpr Files kFiles[] = {{"libcudaguard-driver.so",
                             "libcuda.so.1",
                             Message::kNoDriverProxy,
                             Message::kStubDriver,
                             {"cuInit"}},
                            {"libcudaguard-nvml.so",
                             "libnvidia-ml.so.1",
                             Message::kNoNvmlProxy,
                             Message::kStubNvml,
                             {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlInit"}}};
static_assert(std::string_view(kFiles[0].real) == kDriverSoname);

/// Restores errno, and removes the dlerror that a failed open() leaves.
class Quiet {
 public:
  explicit Quiet(const Loader& loader) : loader_(loader), saved_(errno) {}
  ~Quiet() {
    if (failed_) loader_.dlerror();
    errno = saved_;
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

  void* open(const char* name, int mode) {
    void* handle = loader_.dlopen(name, mode);
    failed_ = failed_ || handle == nullptr;
    return handle;
  }
  void* find(void* handle, const char* name) {
    void* found = loader_.dlsym(handle, name);
    failed_ = failed_ || found == nullptr;
    return found;
  }

 private:
  const Loader& loader_;
  int saved_;
  bool failed_ = false;
};

bool can_load(const Loader& loader) {
  return loader.dlopen != nullptr && loader.dlclose != nullptr && loader.dlerror != nullptr &&
         loader.dlsym != nullptr;
}

/// NVML can be refused alone. Without the driver's proxy, FORCE_CPU applies.
void give_up(Process& process, const Files& files, const char* file, Unusable why) {
  if (files.missing == Message::kNoNvmlProxy) {
    process.proxy_loader.no_nvml.store(true, std::memory_order_relaxed);
  } else {
    fall_back(process, Fallen::kNoProxy);
  }
  print_unusable(files.missing, file, why);
}

/// True if this process already has a library of that SONAME.
bool is_mapped(const Loader& loader, Quiet& quiet, const char* soname) {
  void* handle = quiet.open(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  loader.dlclose(handle);
  return true;
}

/// True if a program finds no function in this library, or in one that it needs, by which it could
/// initialise CUDA or NVML.
bool is_stub(Quiet& quiet, void* library, const Files& files) {
  for (const char* name : files.init) {
    if (*name != '\0' && quiet.find(library, name) != nullptr) return false;
  }
  return true;
}

/// Returns false if the real library is no stub. Otherwise names its file, and leaves it to the
/// program, so that ld.so's error is about that file. A driver without cuInit may still have
/// functions that the proxy cannot guard, so FORCE_CPU applies if it must not have them all.
bool leaves_stub(Process& process, const Files& files, Quiet& quiet) {
  void* real = quiet.open(files.real, RTLD_LAZY | RTLD_NOLOAD);
  if (real == nullptr) return false;
  const bool found = is_stub(quiet, real, files);
  if (found) {
    const bool list = !process.decision.allow_list.text.empty();
    const bool denies = files.missing == Message::kNoDriverProxy &&
                        (list || process.decision.children != Children::kUnset ||
                         refuses_contexts(process.decision.calls));
    const StubFacts facts = {static_cast<const link_map*>(real)->l_name, files.init[0], denies};
    print_message(process, files.stub, write_line_of<write_stub, StubFacts>, &facts);
    if (denies) fall_back(process, list ? Fallen::kNotEnforced : Fallen::kNoProxy);
  }
  loader().dlclose(real);
  return found;
}

/// Loads the proxy in `path`. Nothing happens if there is no real library.
void load(Process& process, const Files& files, const char* path, Quiet& quiet,
          SharedOwnLibrary& result) {
  void* handle = quiet.open(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    Unusable why = why_unusable(path);
    if (why == Unusable::kNo) {
      // The file looks complete. If there is no real library, the failure is no error.
      void* real = quiet.open(files.real, RTLD_LAZY | RTLD_LOCAL);
      if (real == nullptr) return;
      loader().dlclose(real);
      why = why_not_loaded();
    }
    // A shortage is temporary, so this request is refused and the next one may work.
    if (why == Unusable::kPassing) return print_unusable(files.missing, path, why);
    return give_up(process, files, path, why);
  }
  if (leaves_stub(process, files, quiet)) {
    loader().dlclose(handle);
    return;
  }
  const auto* map = static_cast<const link_map*>(handle);
  const auto prepare = reinterpret_cast<cudaguard_prepare_v2*>(
      const_cast<void*>(elf_symbol(map->l_ld, map->l_addr, "cudaguard_proxy_prepare_v2")));
  const Prepared prepared = prepare != nullptr ? prepare(&kServices) : Prepared::kOtherBuild;
  if (prepared == Prepared::kReady) {
    // From now on the program gets handles of the proxy. However often it closes them, the proxy
    // must stay, because the guard and the driver refer to it.
    quiet.open(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    result.publish(*map);
    return;
  }
  if (prepared == Prepared::kOtherBuild) give_up(process, files, path, Unusable::kOtherBuild);
  // The driver must not stay, because a library that is linked to it must find the null driver.
  loader().dlclose(handle);
}

[[gnu::cold, gnu::noinline]] void load_proxy(Process& process, Library library) {
  const Loader& loader = cudaguard::loader();
  if (!can_load(loader)) return;
  const Files& files = kFiles[index_of(library)];
  Quiet quiet(loader);
  const sys::Mapped<PathRoom> room;
  if (!room) return;
  OwnPath directory(*room, sizeof *room);
  struct stat status = {};
  const bool there = directory.set_directory(own_path(start_objects())) &&
                     sys::stat(directory.file(files.file), &status) == 0;
  if (!there) directory.set_real_directory();
  const char* path = directory.file(files.file);
  if (!there && sys::stat(path, &status) != 0) {
    const Unusable why =
        is_own_file_there(start_objects()) ? why_unusable(path) : Unusable::kUnreachable;
    return give_up(process, files, path, why != Unusable::kNo ? why : Unusable::kMissing);
  }
  load(process, files, path, quiet, inherited.proxy_loader.proxies[index_of(library)]);
}

/// True for NVIDIA's own libraries, which must see each other as they are.
bool is_nvidias(const Loader& loader, const void* caller) {
  const link_map* object = object_of(loader, caller);
  if (object == nullptr) return false;
  const std::string_view base = base_name(object->l_name);
  return base.starts_with("libnvidia-") || base.starts_with("libcuda.so");
}

}  // namespace

OwnLibrary proxy(Process& process, Library library) {
  const SharedOwnLibrary& shared = inherited.proxy_loader.proxies[index_of(library)];
  if (library == Library::kNvml && process.proxy_loader.no_nvml.load(std::memory_order_relaxed))
    return {};
  if (!shared.is_loaded()) load_proxy(process, library);
  if (!allows_cuda(process.loads())) return {};
  return shared.get();
}

void load_proxies_early(Process& process) {
  const Loader& loader = cudaguard::loader();
  if (!can_load(loader) || !process.hook.advance(HookState::kFresh, HookState::kReady)) return;
  bool driver =
      !process.decision.allow_list.text.empty() || process.decision.children != Children::kUnset;
  bool nvml = false;
  {
    Quiet quiet(loader);
    driver = driver || is_mapped(loader, quiet, kFiles[0].real);
    nvml = is_mapped(loader, quiet, kFiles[1].real);
  }
  if (driver) proxy(process, Library::kDriver);
  if (nvml) proxy(process, Library::kNvml);
}

Substitute make_proxy_ready(Process& process, Library library, const char* name, int mode,
                            const void* caller) {
  const Loader& loader = cudaguard::loader();
  if (!can_load(loader) || is_nvidias(loader, caller)) return Substitute::kNone;
  // In such a name, ld.so would put our directory in place of the caller's.
  if (search_for(name) == FileSearch::kToken) return Substitute::kNoLibrary;
  Quiet quiet(loader);
  // This path may be the only way to a copy. With RTLD_NOW, a copy that lacks a symbol fails here,
  // as without the guard; bound lazily by the proxy, it would end the program at the first call.
  const int binding = (mode & RTLD_NOW) != 0 ? RTLD_NOW : RTLD_LAZY;
  void* asked = quiet.open(name, binding | RTLD_LOCAL | (mode & RTLD_NOLOAD));
  if (asked == nullptr) return Substitute::kNoLibrary;
  const OwnLibrary ours = proxy(process, library);
  // The program gets a stub itself, so that ld.so's error is about that file.
  const bool stub = ours.path == nullptr && allows_cuda(process.loads()) &&
                    is_stub(quiet, asked, kFiles[index_of(library)]);
  loader.dlclose(asked);  // the proxy keeps the real library; another copy is not needed
  if (stub) return Substitute::kNone;
  return ours.path != nullptr ? Substitute::kReady : Substitute::kUnusable;
}

void print_not_ours(Library library, const char* name) {
  print_unusable(kFiles[index_of(library)].missing, name, Unusable::kNotOurs);
}

}  // namespace cudaguard

const cudaguard::Services* cudaguard_services_v1() { return &cudaguard::kServices; }
