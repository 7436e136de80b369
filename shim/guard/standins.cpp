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
#include "standin_sizes.h"

namespace cudaguard {

namespace {

struct Names {
  const char* file;       // below our own folder
  const char* claims[2];  // names that it answers to as well: links beside the file
  int64_t size;           // of the file that was built with this guard, in bytes
};
constexpr std::string_view kFolder = "/cudaguard/";
// NVIDIA's OpenCL is refused by the hook; where the hook is not asked (RTLD_DEEPBIND), its name
// leads to a library without OpenCL's entry, and the OpenCL loader skips that too.
constexpr Names kNames[] = {
    {"libcuda.so.1", {"libcuda.so", nullptr}, CG_DRIVER_SIZE},
    {"libnvidia-ml.so.1", {"libnvidia-ml.so", "libnvidia-opencl.so.1"}, CG_NVML_SIZE}};

/// Why a stand-in cannot be used.
constexpr char kMissing[] = "is missing";
constexpr char kCutShort[] = "is cut short";
/// A shortage that may be over at the next dlopen: try again then.
constexpr char kPassing[] = "cannot be opened now";

struct Loaded {
  std::atomic<const char*> path{nullptr};
  std::atomic<const void*> link_map{nullptr};
  std::atomic<const char*> why{nullptr};  // why not: a clause
};
constinit Loaded loaded[2];

/// A file in the folder of the stand-ins.
class StandinPath {
 public:
  /// `beside`: the guard's own path.
  void set_folder(std::string_view beside) {
    Text out(text_, sizeof text_ - 1);
    out.put(folder_of(beside)).put(kFolder);
    folder_ = out.cut() ? 0 : out.view().size();
  }
  /// Beside the file that is mapped at the address, links resolved: where the guard's own path is
  /// relative or a link to another place. False: nobody can tell.
  bool set_real_folder(const void* address) {
    const CodePlace place = place_of(address, text_, sizeof text_ - 1);
    if (place.module.empty()) return false;
    set_folder(place.module);  // in place: a beginning of itself
    return true;
  }
  /// An empty path, which does not exist, if there is no folder or it is too long.
  const char* file(std::string_view name) {
    Text out(text_ + folder_, sizeof text_ - 1 - folder_);
    if (folder_ != 0) out.put(name);
    text_[out.cut() ? 0 : folder_ + out.view().size()] = '\0';
    return text_;
  }

 private:
  char text_[4096] = {};  // PATH_MAX: ld.so takes no longer one
  size_t folder_ = 0;
};

/// An ELF library for this machine with all its bytes? Returns null, or why not.
[[gnu::cold, gnu::noinline]] const char* look_inside(const char* path) {
  const sys::File file(path, O_RDONLY | O_CLOEXEC);
  if (!file.ok()) {
    if (file.error() == ENOENT) return kMissing;
    const bool passing = file.error() == EMFILE || file.error() == ENFILE || file.error() == ENOMEM;
    return passing ? kPassing : "cannot be read";
  }
  struct stat status = {};
  union {
    ElfW(Ehdr) header;
    unsigned char bytes[1024];
  } start = {};
  if (sys::fstat(file.fd(), &status) != 0) return "cannot be read";
  const long got = sys::read(file.fd(), start.bytes, sizeof start.bytes);
  const ElfW(Ehdr)& header = start.header;
  if (got < static_cast<long>(sizeof header)) return kCutShort;
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
  if (table > have || header.e_phoff > have - table) return kCutShort;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    memcpy(&segment, start.bytes + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_filesz > size || segment.p_offset > size - segment.p_filesz) return kCutShort;
  }
  return nullptr;
}

/// ld.so would die of SIGBUS in a file that is cut short, inside a program that never asked for it.
/// The file that was built with us is known by its length, which costs one system call.
const char* unusable(const char* path, int64_t built_size) {
  struct stat status = {};
  const int error = sys::stat(path, &status);
  if (error == -ENOENT) return kMissing;
  if (error == 0 && status.st_size == built_size) return nullptr;
  return look_inside(path);
}

/// Our own path as ld.so has it, if it is absolute; else null.
const char* own_name() {
  const char* name = object_name(reinterpret_cast<const void*>(&own_name));
  return name != nullptr && name[0] == '/' ? name : nullptr;
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

/// Would ld.so find room for a stand-in (RLIMIT_AS)?
bool short_of_memory() {
  constexpr size_t kRoom = size_t{512} * 1024;
  void* trial = sys::map(kRoom);
  if (trial != nullptr) sys::unmap(trial, kRoom);
  return trial == nullptr;
}

/// Loads one stand-in. Returns null, or why it cannot be used.
const char* load(const Loader& the, const Names& names, StandinPath& folder, Loaded& result) {
  const char* path = folder.file(names.file);
  if (const char* why = unusable(path, names.size)) return why;
  void* handle = the.dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    if (const char* why = look_inside(path)) return why;
    return short_of_memory() ? kPassing : "cannot be loaded";
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
  const int saved_errno = errno;
  StandinPath folder;
  const char* own = own_name();
  if (own != nullptr) folder.set_folder(own);
  bool known = own != nullptr;
  bool failed = false;
  bool passing = false;
  for (int i = 0; i < 2; ++i) {
    if (loaded[i].path.load(std::memory_order_relaxed) != nullptr) continue;
    const char* why = known ? load(the, kNames[i], folder, loaded[i]) : kMissing;
    if (why == kMissing && folder.set_real_folder(reinterpret_cast<const void*>(&load_both))) {
      known = true;
      why = load(the, kNames[i], folder, loaded[i]);
    }
    loaded[i].why.store(why, std::memory_order_release);
    failed = failed || why != nullptr;
    passing = passing || why == kPassing || (why != nullptr && !known);
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
  StandinPath folder;
  const char* own = own_name();
  if (!folder.set_real_folder(reinterpret_cast<const void*>(&say_missing)) && own != nullptr) {
    folder.set_folder(own);
  }
  say_missing_standin(kind == StandinKind::kDriver ? Process::kNoDriver : Process::kNoNvml,
                      folder.file(kNames[index].file), why != nullptr ? why : kMissing);
}

}  // namespace cudaguard
