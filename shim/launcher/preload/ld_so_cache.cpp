// SPDX-License-Identifier: Apache-2.0
// `run` must know whether a program is linked to the driver. Its ld.so can tell, as for ldd: a
// process of 450 us, 11 ms for ffmpeg with its 214 libraries. So this file reads /etc/ld.so.cache
// itself, but only if nothing else decides:
//
// - The ld.so is the usual one, with libc beside it. There is no /etc/ld.so.preload, and no
//   variable of ld.so but our LD_PRELOAD.
// - No file has DT_RPATH, a filter or an auditor. No library is for certain processors only, or has
//   an unexpected name.
//
// Otherwise `run` asks ld.so; `doctor` always does. A wrong answer could leave a program unguarded,
// so tests/launcher/test_ld_so_cache.py compares both for every program of the machine, and in each
// of these cases.
#include "shim/launcher/preload/ld_so_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <span>
#include <vector>

#include "policy/text.h"
#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

namespace {

#if defined(__x86_64__)
constexpr char kInterpreter[] = "/lib64/ld-linux-x86-64.so.2";
constexpr int32_t kOurs = 0x0303;  // FLAG_ELF_LIBC6 | FLAG_X8664_LIB64
constexpr const char* kMultiarch = "/lib/x86_64-linux-gnu";
#elif defined(__aarch64__)
constexpr char kInterpreter[] = "/lib/ld-linux-aarch64.so.1";
constexpr int32_t kOurs = 0x0a03;  // FLAG_ELF_LIBC6 | FLAG_AARCH64_LIB64
constexpr const char* kMultiarch = "/lib/aarch64-linux-gnu";
#endif

/// glibc's sysdeps/generic/dl-cache.h, since 2.2. Before 2.32, an older form came first.
struct Header {
  char magic[20];
  uint32_t count;
  uint32_t strings_size;
  uint32_t unused[5];
};
struct Entry {
  int32_t flags;
  uint32_t name;  ///< offsets in the file
  uint32_t path;
  uint32_t os_version;
  uint64_t hwcap;  ///< not 0: only for some processors
};
static_assert(sizeof(Header) == 48 && sizeof(Entry) == 24);

/// None: unsure. Empty: not there.
using FoundPath = std::optional<std::string>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

char first_of(std::string_view text) { return text.empty() ? '\0' : text[0]; }

/// The number at the start of `text`, which is removed. ldconfig's wraps around, too.
uint32_t take_number(std::string_view& text) {
  uint32_t number = 0;
  for (; is_digit(first_of(text)); text.remove_prefix(1)) {
    number = number * 10 + static_cast<uint32_t>(text[0] - '0');
  }
  return number;
}

/// The cache's order (_dl_cache_libcmp), the greatest name first: numbers by value, and after all
/// other characters.
bool is_before(std::string_view one, std::string_view other) {
  for (;;) {
    const char first[] = {first_of(one), first_of(other)};
    if (is_digit(first[0]) != is_digit(first[1])) return is_digit(first[0]);
    if (is_digit(first[0])) {
      const uint32_t numbers[] = {take_number(one), take_number(other)};
      if (numbers[0] != numbers[1]) return numbers[0] > numbers[1];
    } else {
      if (first[0] != first[1] || first[0] == '\0') return first[0] > first[1];
      one.remove_prefix(1);
      other.remove_prefix(1);
    }
  }
}

/// A mapped file; empty if it cannot be mapped.
class Mapping {
 public:
  Mapping(const std::string& path, int protection) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status = {};
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0) {
      const auto size = static_cast<size_t>(status.st_size);
      void* const start = mmap(nullptr, size, protection, MAP_PRIVATE, fd, 0);
      if (start != MAP_FAILED) bytes_ = {static_cast<char*>(start), size};
    }
    if (fd >= 0) close(fd);
  }
  ~Mapping() {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::span<char> bytes_;
};

/// Mapped like by ld.so: ldconfig replaces the file, and never writes into it.
class Cache {
 public:
  explicit Cache(const std::string& path) : file_(path, PROT_READ) {
    const std::string_view text = file_.bytes();
    if (!text.starts_with("glibc-ld.so.cache1.1") || text.size() < sizeof(Header)) return;
    const auto* const header = reinterpret_cast<const Header*>(text.data());
    if (header->count > (text.size() - sizeof(Header)) / sizeof(Entry)) return;
    entries_ = {reinterpret_cast<const Entry*>(header + 1), header->count};
  }

  FoundPath find(std::string_view name) const {
    FoundPath found = "";
    auto entry = std::ranges::lower_bound(entries_, name, is_before,
                                          [&](const Entry& one) { return text_at(one.name); });
    for (; entry != entries_.end() && !is_before(name, text_at(entry->name)); ++entry) {
      if (entry->flags != kOurs) continue;  // of another architecture
      if (entry->os_version != 0 || entry->hwcap != 0 || text_at(entry->name) != name) return {};
      if (found->empty()) found = text_at(entry->path);
    }
    return found;
  }

 private:
  std::string_view text_at(uint32_t at) const {
    const std::string_view rest = tail(file_.bytes(), at);
    return head(rest, std::min(rest.find('\0'), rest.size()));
  }
  const Mapping file_;
  std::span<const Entry> entries_;
};

/// The subdirectories that ld.so prefers on some processors; all but the first until glibc 2.36.
constexpr const char* kForProcessors[] = {"/glibc-hwcaps", "/tls",      "/haswell", "/xeon_phi",
                                          "/x86_64",       "/avx512_1", "/aarch64", "/atomics"};

bool is_missing(const std::string& path) {
  return access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

bool is_for_processors(const std::string& directory) {
  return !std::ranges::all_of(kForProcessors,
                              [&](auto name) { return is_missing(directory + name); });
}

/// `origin` is the directory of the object that has the run path.
FoundPath in_directory(std::string_view directory, const std::string& origin,
                       const std::string& name) {
  constexpr std::string_view kOrigin = "$ORIGIN";
  std::string path;
  if (directory == kOrigin || directory.starts_with("$ORIGIN/")) {
    path = origin;
    directory = tail(directory, kOrigin.size());
  }
  path += directory;
  if (!path.starts_with('/') || path.ends_with("//")) return {};
  if (directory.find('$') != std::string_view::npos) return {};
  if (path.ends_with('/')) path.pop_back();
  if (is_for_processors(path)) return {};
  path += "/" + name;
  return is_missing(path) ? "" : path;
}

FoundPath in_run_path(std::string_view directories, const std::string& origin,
                      const std::string& name) {
  if (directories.empty()) return "";
  for (;;) {
    const size_t colon = std::min(directories.find(':'), directories.size());
    FoundPath found = in_directory(head(directories, colon), origin, name);
    if (!found || !found->empty() || colon == directories.size()) return found;
    directories = tail(directories, colon + 1);
  }
}

bool same_file(const std::string& one, const std::string& other) {
  struct stat status[2] = {};
  return stat(one.c_str(), &status[0]) == 0 && stat(other.c_str(), &status[1]) == 0 &&
         status[0].st_dev == status[1].st_dev && status[0].st_ino == status[1].st_ino;
}

/// The directories that are built into ld.so differ between distributions, so all of them that have
/// the name must mean one file, in the directory of libc.
FoundPath in_default_directory(const std::string& libc, const std::string& name) {
  const std::string own = libc.substr(0, libc.rfind('/'));
  std::string found = own + "/" + name;
  for (const std::string prefix : {"", "/usr"}) {
    for (const std::string directory : {"/lib", "/lib64", kMultiarch}) {
      const std::string path = prefix + directory + "/" + name;
      if (is_for_processors(prefix + directory)) return {};
      if (!is_missing(path) && !same_file(path, found)) return {};
    }
  }
  return found;
}

/// ld.so refuses some of the others.
bool is_plain(const ElfFile& file) {
  const ElfFacts& facts = file.facts;
  Elf64_Ehdr header = {};
  if (!file.bytes.read(0, &header, sizeof header)) return false;
  if (header.e_ident[EI_OSABI] == ELFOSABI_GNU) header.e_ident[EI_OSABI] = ELFOSABI_SYSV;
  constexpr unsigned char kUsual[EI_NIDENT] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                               ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  return std::ranges::equal(header.e_ident, kUsual) && header.e_version == EV_CURRENT &&
         facts.type == ET_DYN && facts.damage.empty() && facts.machine == kMachine &&
         !facts.steers_search;
}

bool is_usual(const Variables& variables, const std::string& guard) {
  const char* preload = variables.get("LD_PRELOAD");
  return preload != nullptr && preload == guard && guard.starts_with("/") &&
         variables.count_starting("LD_") == 1 && !variables.has("GLIBC_TUNABLES") &&
         is_missing("/etc/ld.so.preload");
}

struct Wanted {
  std::string name;
  std::string run_path;  ///< of the object that is linked to it
  std::string origin;    ///< that object's directory
};

void add_needed(const ElfFacts& facts, const std::filesystem::path& file,
                std::vector<Wanted>& wanted) {
  for (const std::string& name : facts.needed) {
    wanted.push_back({name, facts.run_path, file.parent_path()});
  }
}

}  // namespace

std::optional<LoaderAnswer> answer_from_cache(const Executable& executable,
                                              const Variables& variables, const std::string& guard,
                                              const std::string& cache_path) {
  if (executable.facts.interpreter != kInterpreter || executable.facts.steers_search) return {};
  if (!is_usual(variables, guard)) return {};
  // A file system may forbid to map the guard's code (noexec).
  if (Mapping(guard, PROT_READ | PROT_EXEC).bytes().empty()) return {};
  const ElfFile guard_file(guard);
  const Cache cache(cache_path);
  const FoundPath libc = cache.find("libc.so.6");
  const std::string_view loader = base_name(kInterpreter);
  if (!is_plain(guard_file) || !libc || libc->empty()) return {};
  // Otherwise the interpreter may be another glibc's, with another cache.
  if (!same_file(libc->substr(0, libc->rfind('/') + 1).append(loader), kInterpreter)) return {};
  LoaderAnswer answer;
  answer.libraries.push_back({guard, guard});
  std::set<std::string> loaded = {std::string(loader), executable.facts.soname,
                                  guard_file.facts.soname};
  std::vector<Wanted> wanted;
  // The kernel follows the executable's links; ld.so follows no library's.
  std::error_code error;
  const auto started = std::filesystem::canonical(executable.path, error);
  if (error) return {};
  add_needed(executable.facts, started, wanted);
  add_needed(guard_file.facts, guard, wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Wanted next = wanted[i];
    if (loaded.contains(next.name)) continue;
    if (next.name.find_first_of("/$") != std::string::npos) return {};
    FoundPath path = in_run_path(next.run_path, next.origin, next.name);
    if (path && path->empty()) path = cache.find(next.name);
    if (path && path->empty()) path = in_default_directory(*libc, next.name);
    if (!path) return {};
    const auto file = std::make_shared<const ElfFile>(*path);
    const std::string& soname = file->facts.soname;
    // ld.so knows a library by both names. It may also be one that has another name.
    if (!is_plain(*file) || soname.empty() || loaded.contains(soname)) return {};
    loaded.insert({next.name, soname});
    answer.libraries.push_back({next.name, *path, file});
    add_needed(file->facts, *path, wanted);
  }
  return answer;
}

}  // namespace cudaguard::launcher
