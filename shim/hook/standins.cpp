// SPDX-License-Identifier: Apache-2.0
#include "shim/hook/standins.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "shim/elf/loader.h"
#include "shim/elf/own_files.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/record/record.h"
#include "shim/state/process.h"
#include "shim/sys/system.h"
#include "standin_sizes.h"

namespace cudaguard {

namespace {

// No pointers in it: each would need a relocation.
struct Names {
  char file[20];       // below our own folder
  char claims[2][24];  // names that it answers to as well, or empty: links beside the file
  int64_t size;        // of the file that was built with this guard, in bytes
};
// NVIDIA's OpenCL is refused by the hook; where the hook is not asked (RTLD_DEEPBIND), its name
// leads to a library without OpenCL's entry, and the OpenCL loader skips that too.
constexpr Names kNames[] = {
    {"libcuda.so.1", {"libcuda.so", ""}, CG_DRIVER_SIZE},
    {"libnvidia-ml.so.1", {"libnvidia-ml.so", "libnvidia-opencl.so.1"}, CG_NVML_SIZE}};

/// ld.so would die of SIGBUS in a file that is cut short, inside a program that never asked for it.
/// The file that was built with us is known by its length, which costs one system call.
const char* unusable(const char* path, int64_t built_size) {
  struct stat status = {};
  const int error = sys::stat(path, &status);
  if (error == -ENOENT) return kMissing;
  if (error == 0 && status.st_size == built_size) return nullptr;
  return why_unusable(path);
}

using Claim = void* (*)(void* (*)(const char*, int), const char*);

/// ld.so remembers every name by which a file was asked for. Asked by the stand-in itself, whose
/// run path leads to the link beside it, and for a loaded file only: where there is no link, ld.so
/// looks elsewhere and maps nothing. Not in a privileged process, in which it ignores $ORIGIN.
void claim_names(const Loader& the, const Names& names, void* handle, Claim claim) {
  if (privileged()) return;
  for (const char* name : names.claims) {
    if (*name == '\0') continue;
    void* same = claim(the.dlopen, name);
    if (same == nullptr) the.dlerror();  // ours, not the program's
    if (same != nullptr && same != handle) the.dlclose(same);
  }
}

/// Loads one stand-in. Returns null, or why it cannot be used.
const char* load(const Loader& the, const Names& names, OwnPath& folder, Loaded& result) {
  const char* path = folder.file(names.file);
  if (const char* why = unusable(path, names.size)) return why;
  void* handle = the.dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    if (const char* why = why_unusable(path)) return why;
    return why_not_loaded();
  }
  const auto* map = static_cast<const link_map*>(handle);
  const auto claim = reinterpret_cast<Claim>(
      const_cast<void*>(elf_symbol(map->l_ld, map->l_addr, "cudaguard_standin_claim_v1")));
  if (claim == nullptr) {
    the.dlclose(handle);
    return "is of another version";
  }
  claim_names(the, names, handle, claim);
  result.link_map.store(map, std::memory_order_relaxed);
  result.path.store(map->l_name, std::memory_order_release);
  return nullptr;
}

void load_both() {
  const Loader& the = loader();
  if (the.dlopen == nullptr || the.dlclose == nullptr || the.dlerror == nullptr) return;
  const sys::Mapped<OwnPath> folder;
  if (!folder) return;
  const int saved_errno = errno;
  const char* own = own_path();
  if (own != nullptr) folder->set_folder(own);
  bool known = own != nullptr;
  bool failed = false;
  bool passing = false;
  for (int i = 0; i < 2; ++i) {
    if (lasting.standins[i].path.load(std::memory_order_relaxed) != nullptr) continue;
    const char* why = known ? load(the, kNames[i], *folder, lasting.standins[i]) : kMissing;
    if (why == kMissing && folder->set_real_folder()) {
      known = true;
      why = load(the, kNames[i], *folder, lasting.standins[i]);
    }
    lasting.standins[i].why.store(why, std::memory_order_release);
    failed = failed || why != nullptr;
    passing = passing || why == kPassing || (why != nullptr && !known);
  }
  if (failed) the.dlerror();  // ours, not the program's
  if (!passing) {
    lasting.standins_tried.store(true, std::memory_order_release);
    // At once: the program may be linked to the driver, or load what is.
    if (lasting.standins[0].why.load(std::memory_order_relaxed) != nullptr)
      say_missing(StandinKind::kDriver);
    if (lasting.standins[1].why.load(std::memory_order_relaxed) != nullptr)
      say_missing(StandinKind::kNvml);
  }
  errno = saved_errno;
}

}  // namespace

const void* Standin::symbol(const char* name) const {
  const auto* map = static_cast<const struct link_map*>(link_map);
  return map == nullptr ? nullptr : elf_symbol(map->l_ld, map->l_addr, name);
}

Standin standin(StandinKind kind) {
  if (!standins_tried()) [[unlikely]] {
    load_both();
  }
  const Loaded& the = lasting.standins[static_cast<int>(kind)];
  return {the.path.load(std::memory_order_acquire), the.link_map.load(std::memory_order_acquire)};
}

void say_missing(StandinKind kind) {
  const int index = static_cast<int>(kind);
  const char* why = lasting.standins[index].why.load(std::memory_order_acquire);
  const sys::Mapped<OwnPath> folder;
  if (!folder) return;
  const char* own = own_path();
  if (!folder->set_real_folder() && own != nullptr) folder->set_folder(own);
  say_missing_standin(kind == StandinKind::kDriver ? Process::kNoDriver : Process::kNoNvml,
                      folder->file(kNames[index].file), why != nullptr ? why : kMissing);
}

}  // namespace cudaguard
