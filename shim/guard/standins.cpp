// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/standins.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "policy/text.h"
#include "shim/elf/object.h"
#include "shim/elf/symbol_lookup.h"
#include "shim/guard/loader.h"
#include "shim/guard/own_maps.h"
#include "shim/guard/process.h"
#include "shim/guard/record.h"
#include "shim/guard/system.h"

namespace cudaguard {

namespace {

struct Names {
  const char* file;       // below our own folder
  const char* claims[2];  // names that it answers to as well: links beside the file
};
// NVIDIA's OpenCL is refused by the hook; where the hook is not asked (RTLD_DEEPBIND), its name
// leads to a library without OpenCL's entry, and the OpenCL loader skips that too.
constexpr std::string_view kFolder = "/cudaguard/";
constexpr Names kNames[] = {{"libcuda.so.1", {"libcuda.so", nullptr}},
                            {"libnvidia-ml.so.1", {"libnvidia-ml.so", "libnvidia-opencl.so.1"}}};

/// A shortage that may be over at the next dlopen: try again then.
constexpr char kPassing[] = "cannot be opened now";

struct Loaded {
  std::atomic<const char*> path{nullptr};
  std::atomic<const void*> link_map{nullptr};
  std::atomic<const char*> why{nullptr};  // why not: a clause
};
constinit Loaded loaded[2];

using Path = char[4096 + 64];

/// folder + name, or false if it does not fit.
bool join(Path& to, std::string_view folder, std::string_view name) {
  Text out(to, sizeof to - 1);
  out.put(folder).put(name);
  to[out.view().size()] = '\0';
  return !out.cut();
}

struct Work {
  Path folder;
  Path path;
  union {
    ElfW(Ehdr) header;
    unsigned char bytes[1024];
  } start;
};

/// An ELF library for this machine with all its bytes? ld.so would die of SIGBUS in a file that is
/// cut short, inside a program that never asked for it. Returns null, or why not.
const char* unusable(const char* path, Work& work) {
  const sys::File file(path, O_RDONLY | O_CLOEXEC);
  if (!file.ok()) {
    if (file.error() == ENOENT) return "is missing";
    const bool passing = file.error() == EMFILE || file.error() == ENFILE || file.error() == ENOMEM;
    return passing ? kPassing : "cannot be read";
  }
  struct stat status = {};
  auto& start = work.start;
  if (sys::fstat(file.fd(), &status) != 0) return "cannot be read";
  const long got = sys::read(file.fd(), start.bytes, sizeof start.bytes);
  const ElfW(Ehdr)& header = start.header;
  if (got < static_cast<long>(sizeof header)) return "is cut short";
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "is not a library";
#if defined(__x86_64__)
  constexpr unsigned kMachine = EM_X86_64;
#else
  constexpr unsigned kMachine = EM_AARCH64;
#endif
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine) {
    return "is for another machine";
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  const uint64_t table = uint64_t{header.e_phnum} * sizeof(ElfW(Phdr));
  const auto have = static_cast<uint64_t>(got);
  if (table > have || header.e_phoff > have - table) return "is cut short";
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    memcpy(&segment, start.bytes + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_filesz > size || segment.p_offset > size - segment.p_filesz)
      return "is cut short";
  }
  return nullptr;
}

/// Finds the folder of the stand-ins, with its last '/': beside us by the name ld.so has for us,
/// or, where that is relative or a link to another place, beside the file that is mapped.
bool find_folder(Work& work) {
  const auto* self = reinterpret_cast<const void*>(&find_folder);
  const char* name = object_name(self);
  const bool absolute = name != nullptr && name[0] == '/';
  if (absolute && join(work.folder, folder_of(name), kFolder) &&
      join(work.path, work.folder, kNames[0].file) && sys::exists(work.path)) {
    return true;
  }
  const CodePlace place = place_of(self, work.path, sizeof work.path - 1);
  if (!place.module.empty()) return join(work.folder, folder_of(place.module), kFolder);
  return absolute && join(work.folder, folder_of(name), kFolder);
}

using Claim = void* (*)(void* (*)(const char*, int), const char*);

/// ld.so remembers every name by which a file was asked for. Asked by the stand-in itself, whose
/// run path leads to the link beside it, and for a loaded file only: where there is no link, ld.so
/// looks elsewhere and maps nothing. Not in a privileged process, in which it ignores $ORIGIN.
void claim_names(const Loader& the, const Names& names, void* handle, Claim claim) {
  if (privileged()) return;
  for (const char* name : names.claims) {
    if (name == nullptr) continue;
    void* same = claim(the.dlopen, name);
    if (same == nullptr) the.dlerror();  // ours, not the program's
    if (same != nullptr && same != handle) the.dlclose(same);
  }
}

/// Loads one stand-in. Returns null, or why it cannot be used.
const char* load(const Loader& the, const Names& names, Work& work, Loaded& result) {
  if (!join(work.path, work.folder, names.file)) return "is missing";
  if (const char* why = unusable(work.path, work)) return why;
  void* handle = the.dlopen(work.path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return "cannot be loaded";
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
  const int saved_errno = errno;
  const sys::Mapped<Work> work;
  const bool known = work && find_folder(*work);
  bool failed = false;
  bool passing = !known;
  for (int i = 0; i < 2; ++i) {
    if (loaded[i].path.load(std::memory_order_relaxed) != nullptr) continue;
    const char* why = known ? load(the, kNames[i], *work, loaded[i]) : "is missing";
    loaded[i].why.store(why, std::memory_order_release);
    failed = failed || why != nullptr;
    passing = passing || why == kPassing;
  }
  if (failed) the.dlerror();  // ours, not the program's
  if (!passing) {
    detail::standins_tried.store(true, std::memory_order_release);
    // At once: the program may be linked to the driver, or load what is.
    if (loaded[0].why.load(std::memory_order_relaxed) != nullptr) say_missing(StandinKind::kDriver);
    if (loaded[1].why.load(std::memory_order_relaxed) != nullptr) say_missing(StandinKind::kNvml);
  }
  errno = saved_errno;
}

}  // namespace

constinit std::atomic<bool> detail::standins_tried{false};

const void* Standin::symbol(const char* name) const {
  const auto* map = static_cast<const struct link_map*>(link_map);
  return map == nullptr ? nullptr : elf_symbol(map->l_ld, map->l_addr, name);
}

Standin standin(StandinKind kind) {
  if (!standins_tried()) [[unlikely]] {
    load_both();
  }
  const Loaded& the = loaded[static_cast<int>(kind)];
  return {the.path.load(std::memory_order_acquire), the.link_map.load(std::memory_order_acquire)};
}

void say_missing(StandinKind kind) {
  const int index = static_cast<int>(kind);
  const char* why = loaded[index].why.load(std::memory_order_acquire);
  const sys::Mapped<Work> work;
  if (!work) return;
  if (!find_folder(*work) || !join(work->path, work->folder, kNames[index].file)) {
    join(work->path, "(unknown folder)/", kNames[index].file);
  }
  say_missing_standin(kind == StandinKind::kDriver ? Process::kNoDriver : Process::kNoNvml,
                      work->path, why != nullptr ? why : "is missing");
}

}  // namespace cudaguard
