// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/hook/null_drivers.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "null_driver_sizes.h"
#include "shim/guard/elf/loader.h"
#include "shim/guard/elf/own_files.h"
#include "shim/guard/elf/symbol_lookup.h"
#include "shim/guard/record/record.h"
#include "shim/guard/state/process.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

namespace {

struct Files {
  char file[18];       // in our own directory
  char claims[2][23];  // more names, or empty: links in the same directory
  int64_t size;        // bytes of the file that was built with this guard
};
// The hook refuses NVIDIA's OpenCL. If the hook does not see a request (RTLD_DEEPBIND), the name
// leads to a library without OpenCL's entry point, which the OpenCL loader skips, too.
constexpr Files kFiles[] = {
    {"libcuda.so.1", {"libcuda.so"}, CG_DRIVER_SIZE},
    {"libnvidia-ml.so.1", {"libnvidia-ml.so", "libnvidia-opencl.so.1"}, CG_NVML_SIZE}};

/// Returns why the file cannot be used. A truncated file would kill the program with
/// SIGBUS inside ld.so. The size identifies the file that was built with this guard, at the cost of
/// one system call. The function is not inlined, because its stack would add to that of ld.so.
[[gnu::noinline]] Unusable check(const char* path, int64_t built_size) {
  struct stat status = {};
  const int error = sys::stat(path, &status);
  if (error == -ENOENT) return Unusable::kMissing;
  if (error == 0 && status.st_size == built_size) return Unusable::kNo;
  return why_unusable(path);
}

using Claim = void* (*)(void* (*)(const char*, int), const char*);

Claim claim_of(const link_map& null_driver) {
  const void* claim =
      elf_symbol(null_driver.l_ld, null_driver.l_addr, "cudaguard_null_driver_claim_v1");
  return reinterpret_cast<Claim>(const_cast<void*>(claim));
}

/// Loads one null driver. Returns why it cannot be used.
Unusable load(const Loader& loader, const Files& files, OwnPath& directory,
              SharedOwnLibrary& result) {
  const char* path = directory.file(files.file);
  if (const Unusable why = check(path, files.size); why != Unusable::kNo) return why;
  void* handle = loader.dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const Unusable why = why_unusable(path);
    return why != Unusable::kNo ? why : why_not_loaded();
  }
  const auto* map = static_cast<const link_map*>(handle);
  if (claim_of(*map) == nullptr) {
    loader.dlclose(handle);
    return Unusable::kOtherVersion;
  }
  result.publish(*map);
  return Unusable::kNo;
}

/// Loads the null drivers that are not loaded yet. Returns false if one is missing in this
/// directory.
bool load_from(const Loader& loader, OwnPath& directory) {
  bool all_there = true;
  for (int i = 0; i < 2; ++i) {
    if (inherited.hook.null_drivers[i].is_loaded()) continue;
    const Unusable why = load(loader, kFiles[i], directory, inherited.hook.null_drivers[i]);
    inherited.hook.null_drivers[i].why.store(why, std::memory_order_release);
    all_there = all_there && why != Unusable::kMissing;
  }
  return all_there;
}

void load_both() {
  if (!sys::is_glibc()) return;
  const Loader& loader = cudaguard::loader();
  if (loader.dlopen == nullptr || loader.dlclose == nullptr || loader.dlerror == nullptr) return;
  const int saved_errno = errno;
  char usual[256];  // set_real_directory() handles a longer path, by system calls
  OwnPath beside(usual, sizeof usual);
  bool known = beside.set_directory(own_path(start_objects()));
  if (!known || !load_from(loader, beside)) {
    const sys::Mapped<PathRoom> room;
    OwnPath real(*room, sizeof *room);
    if (room && real.set_real_directory()) {
      known = true;
      load_from(loader, real);
    }
  }
  bool failed = false;
  bool passing = false;
  for (const SharedOwnLibrary& library : inherited.hook.null_drivers) {
    if (library.is_loaded()) continue;
    failed = true;
    passing =
        passing || !known || library.why.load(std::memory_order_relaxed) == Unusable::kPassing;
  }
  if (failed) loader.dlerror();  // discards our error, which the program must not see
  if (failed && !passing && !is_own_file_there(start_objects())) {
    // A file is not missing that this process cannot see. It is named when the program asks for it.
    for (SharedOwnLibrary& library : inherited.hook.null_drivers)
      library.why.store(Unusable::kUnreachable, std::memory_order_release);
    inherited.hook.null_drivers_tried.store(true, std::memory_order_release);
  } else if (!passing) {
    inherited.hook.null_drivers_tried.store(true, std::memory_order_release);
    // Printed at once, because the program may be linked to the driver, or load a library that is.
    if (!inherited.hook.null_drivers[0].is_loaded()) print_missing(Library::kDriver);
    if (!inherited.hook.null_drivers[1].is_loaded()) print_missing(Library::kNvml);
  }
  errno = saved_errno;
}

/// Makes ld.so answer to the dev names (libcuda.so, …), because ld.so remembers every name by which
/// a file was requested. The null driver itself requests the names, because its run path leads to
/// the links in its directory. The request never loads a file (RTLD_NOLOAD): if a link is missing,
/// ld.so looks elsewhere and maps nothing. A privileged process is left out, because ld.so ignores
/// $ORIGIN there.
[[gnu::cold, gnu::noinline]] void claim_dev_names() {
  const Loader& loader = cudaguard::loader();
  const int saved_errno = errno;
  for (int i = 0; i < 2 && !privileged(); ++i) {
    const auto* map = static_cast<const link_map*>(inherited.hook.null_drivers[i].link_map.load());
    if (map == nullptr) continue;
    for (const char* name : kFiles[i].claims) {
      if (*name == '\0') continue;
      void* same = claim_of(*map)(loader.dlopen, name);
      if (same == nullptr) loader.dlerror();  // discards our error, which the program must not see
      if (same != nullptr && same != map) loader.dlclose(same);
    }
  }
  inherited.hook.dev_names.store(HookInherited::kClaimed);
  errno = saved_errno;
}

}  // namespace

OwnLibrary null_driver(Library library) {
  if (!null_drivers_tried()) [[unlikely]] {
    load_both();
  }
  if (inherited.hook.dev_names.load(std::memory_order_relaxed) == HookInherited::kNeeded &&
      null_drivers_tried())
    claim_dev_names();
  return loaded_null_driver(library);
}

bool is_null_driver(const link_map& object) { return claim_of(object) != nullptr; }

void need_dev_names() {
  uint8_t none = HookInherited::kNotNeeded;
  inherited.hook.dev_names.compare_exchange_strong(none, HookInherited::kNeeded,
                                                   std::memory_order_relaxed);
}

void print_missing(Library library) {
  const int index = index_of(library);
  const Unusable why = inherited.hook.null_drivers[index].why.load(std::memory_order_acquire);
  const sys::Mapped<PathRoom> room;
  if (!room) return;
  OwnPath directory(*room, sizeof *room);
  if (!directory.set_real_directory()) directory.set_directory(own_path(start_objects()));
  print_unusable(library == Library::kDriver ? Message::kNoNullDriver : Message::kNoNullNvml,
                 directory.file(kFiles[index].file),
                 why != Unusable::kNo ? why : Unusable::kUnreachable);
}

}  // namespace cudaguard
