// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/companions.h"

#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <string_view>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/companion/services.h"
#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/guard/caller_paths.h"
#include "shim/guard/loader.h"
#include "shim/guard/own_files.h"
#include "shim/guard/record.h"
#include "shim/guard/system.h"

namespace cudaguard {

namespace {

struct Names {
  const char* file;  // below our own folder
  const char* real;  // its DT_NEEDED
  Process::Said missing;
};
constexpr Names kNames[] = {
    {"libcudaguard-driver.so", "libcuda.so.1", Process::kNoDriverCompanion},
    {"libcudaguard-nvml.so", "libnvidia-ml.so.1", Process::kNoNvmlCompanion}};

struct Loaded {
  std::atomic<const char*> path{nullptr};
  std::atomic<const void*> link_map{nullptr};
};
constinit Loaded loaded[2];

/// Keeps errno, and takes away the dlerror that a request of ours leaves.
class Quiet {
 public:
  explicit Quiet(const Loader& the) : the_(the), saved_(errno) {}
  ~Quiet() {
    if (failed_) the_.dlerror();
    errno = saved_;
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

  void* open(const char* name, int mode) {
    void* handle = the_.dlopen(name, mode);
    failed_ = failed_ || handle == nullptr;
    return handle;
  }

 private:
  const Loader& the_;
  int saved_;
  bool failed_ = false;
};

bool can_load(const Loader& the) {
  return the.dlopen != nullptr && the.dlclose != nullptr && the.dlerror != nullptr;
}

void fall_back(Process& process, const Names& names, const char* file, const char* why) {
  process.fall_back("its companion library cannot be used");
  say_missing_companion(names.missing, file, why);
}

/// Is the real library in this process already?
bool real_is_loaded(const Loader& the, Quiet& quiet, const Names& names) {
  void* handle = quiet.open(names.real, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  the.dlclose(handle);
  return true;
}

/// Loads the companion in `path`.
void load(Process& process, const Names& names, const char* path, Quiet& quiet, Loaded& result) {
  void* handle = quiet.open(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    // A whole file: the library that it stands in front of is not there, as on a machine without
    // a driver. The next request may find it (LD_LIBRARY_PATH is not read again, but links are).
    const char* why = why_unusable(path);
    if (why != nullptr && why != kPassing) fall_back(process, names, path, why);
    return;
  }
  const auto* map = static_cast<const link_map*>(handle);
  const auto prepare = reinterpret_cast<cudaguard_prepare_v1*>(
      const_cast<void*>(elf_symbol(map->l_ld, map->l_addr, "cudaguard_companion_prepare_v1")));
  if (prepare == nullptr) return fall_back(process, names, path, "is of another version");
  if (const char* why = prepare(&own_services()); why != nullptr) {
    process.fall_back(why);
    say(
        process, Process::kList,
        [](Text& out, uint32_t pid, const void* text) {
          write_not_enforced(out, pid, static_cast<const char*>(text));
        },
        why);
    return;
  }
  result.link_map.store(map, std::memory_order_relaxed);
  result.path.store(map->l_name, std::memory_order_release);
}

[[gnu::cold, gnu::noinline]] void load_companion(Process& process, CompanionKind kind) {
  const Loader& the = loader();
  if (!can_load(the)) return;
  const Names& names = kNames[static_cast<int>(kind)];
  Quiet quiet(the);
  const sys::Mapped<OwnPath> folder;
  if (!folder) return;
  const char* own = own_path();
  if (own != nullptr) folder->set_folder(own);
  struct stat status = {};
  const bool there = own != nullptr && sys::stat(folder->file(names.file), &status) == 0;
  if (!there) folder->set_real_folder();
  const char* path = folder->file(names.file);
  if (!there && sys::stat(path, &status) != 0) return fall_back(process, names, path, kMissing);
  load(process, names, path, quiet, loaded[static_cast<int>(kind)]);
}

/// NVIDIA's own libraries among themselves: they must see what is there.
bool is_nvidias(const void* caller) {
  const char* name = object_name(caller);
  if (name == nullptr) return false;
  const std::string_view base = base_name(name);
  return base.starts_with("libnvidia-") || base.starts_with("libcuda.so");
}

}  // namespace

const void* Companion::symbol(const char* name) const {
  const auto* map = static_cast<const struct link_map*>(link_map);
  return map == nullptr ? nullptr : elf_symbol(map->l_ld, map->l_addr, name);
}

Companion companion(Process& process, CompanionKind kind) {
  const Loaded& the = loaded[static_cast<int>(kind)];
  if (the.path.load(std::memory_order_acquire) == nullptr) load_companion(process, kind);
  if (!lets_through(process.policy())) return {};
  return {the.path.load(std::memory_order_acquire), the.link_map.load(std::memory_order_relaxed)};
}

const char* name_with_companion(Process& process, CompanionKind kind, const char* name, int mode,
                                const void* caller) {
  const Loader& the = loader();
  if (!can_load(the) || is_nvidias(caller)) return name;
  const Names& names = kNames[static_cast<int>(kind)];
  {
    Quiet quiet(the);
    if (!real_is_loaded(the, quiet, names)) {
      if ((mode & RTLD_NOLOAD) != 0) return name;
      // A copy that only this request, or only this caller, would find: our DT_NEEDED is then
      // answered by it.
      const bool is_path = base_name(name).size() != std::string_view(name).size();
      if (is_path) {
        if (quiet.open(name, RTLD_LAZY | RTLD_LOCAL) == nullptr) return name;
      } else {
        open_on_callers_path(the, names.real, caller);
      }
    }
  }
  const Companion it = companion(process, kind);
  if (!lets_through(process.policy())) return nullptr;
  return it.path != nullptr ? it.path : name;
}

void* companion_function(Process& process, CompanionKind kind, const char* name,
                         std::atomic<void*>& cached) {
  void* known = cached.load(std::memory_order_acquire);
  if (known != nullptr) [[likely]] {
    return known;
  }
  known = const_cast<void*>(companion(process, kind).symbol(name));
  if (known != nullptr) cached.store(known, std::memory_order_release);
  return known;
}

}  // namespace cudaguard
