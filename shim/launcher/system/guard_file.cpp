// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/guard_file.h"

#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "policy/text.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/format.h"
#include "shim/launcher/preload/judge.h"

namespace cudaguard::launcher {

namespace {

namespace fs = std::filesystem;

/// What ld.so may put in the place of $LIB.
constexpr const char* kLib[] = {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"};

/// "/a/b" gives "/", "/a", "/a/b".
std::vector<std::string> prefixes_of(const fs::path& path) {
  std::vector<std::string> prefixes;
  fs::path prefix;
  for (const fs::path& part : path) prefixes.push_back(prefix /= part);
  return prefixes;
}

std::string cannot_be_checked(int error) {
  return std::string("cannot be checked: ") + strerror(error);
}

std::string why_not_a_guard(const std::string& path) {
  const FileBytes file(path);
  if (file.error() != 0) return cannot_be_checked(file.error());
  const ElfFacts facts = read_elf(file);
  if (!facts.is_elf) return "is not a library";
  if (!facts.is_64 || !facts.little_endian || facts.machine != kMachine) {
    return "is for another architecture: this machine's is " + machine_name(kMachine);
  }
  if (!facts.damage.empty() || read_exports(file).damaged) return "is damaged";
  return version_of(file).empty() ? "is not cudaguard's guard" : "";
}

}  // namespace

bool is_network_file_system(int64_t type) {
  constexpr int64_t kTypes[] = {
      0x6969,                              // NFS
      0x517B,     0xFF534D42, 0xFE534D42,  // SMB, CIFS, SMB2
      0x5346414F, 0x6B414653,              // AFS
      0x73757245,                          // Coda
      0x00C36400,                          // Ceph
      0x01021997,                          // 9P
      0x65735546,                          // FUSE, for example sshfs
      0x0BD00BD0,                          // Lustre
      0x47504653,                          // GPFS
      0x19830326,                          // BeeGFS
  };
  // statfs gives 32 bits of it, with or without a sign.
  return std::ranges::count(kTypes, type & 0xffffffff) != 0;
}

std::string version_of(const Bytes& file) {
  using namespace std::string_view_literals;
  constexpr std::string_view kNote = "\1\0\0\0cudaguard\0\0\0cudaguard "sv;
  constexpr uint64_t kMostRead = uint64_t{1} << 20;
  std::string bytes(static_cast<size_t>(std::min(file.size(), kMostRead)), '\0');
  if (!file.read(0, bytes.data(), bytes.size())) return {};
  const size_t at = bytes.find(kNote);
  if (at == std::string::npos) return {};
  return bytes.substr(at + kNote.size(), 32).c_str();  // up to the note's null byte
}

std::string why_unfit(const std::string& path) {
  if (path.find('/') == std::string::npos) {
    return "is a name without a directory, which depends on ld.so's cache; write its whole path";
  }
  if (!path.starts_with("/")) return "is a relative path; write its whole path";
  if (path.find_first_of(": \t\n#$") != std::string::npos) {
    return "has a character that ld.so does not take in this file; install it elsewhere";
  }
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) {
    return std::string("cannot be found: ") + strerror(errno);
  }
  for (const std::string_view name : {std::string_view(path), std::string_view(resolved)}) {
    for (const char* directory : {"/home", "/tmp", "/var/tmp"}) {
      if (!name.starts_with(directory) || name[strlen(directory)] != '/') continue;
      return std::string("is below ") + directory + "; install cudaguard for the whole machine";
    }
  }
  if (std::string why = why_not_a_guard(resolved); !why.empty()) return why;
  struct statfs system = {};
  if (statfs(resolved, &system) != 0) return cannot_be_checked(errno);
  struct stat file = {};
  struct stat top = {};
  // If the server of / is away, no program works anyway.
  const bool same_file_system =
      stat(resolved, &file) == 0 && stat("/", &top) == 0 && file.st_dev == top.st_dev;
  if (is_network_file_system(system.f_type) && !same_file_system) {
    return "is on a network file system, without which no program would start; install cudaguard "
           "on a local disk";
  }
  std::string why = why_not_roots_path(fs::path(path).lexically_normal());
  if (why.empty()) why = why_not_roots_path(resolved);
  std::error_code error;
  const fs::path libraries = fs::path(resolved).parent_path() / "cudaguard";
  std::vector<fs::path> needed(fs::directory_iterator(libraries, error), {});
  if (!error) needed.push_back(libraries);
  for (const fs::path& one : needed) {
    if (!why.empty()) break;
    why = why_not_roots(one);
    if (!why.empty()) why.insert(0, "needs " + printable(one.native()) + ", which ");
  }
  return why;
}

std::string why_not_roots(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return cannot_be_checked(errno);
  if (status.st_uid != 0)
    return "belongs to user " + std::to_string(status.st_uid) + ", not to root";
  if ((status.st_mode & S_IWOTH) != 0) return "every user can write to";
  if ((status.st_mode & S_IWGRP) != 0 && status.st_gid != 0) {
    return "group " + std::to_string(status.st_gid) + " can write to";
  }
  const bool directory = S_ISDIR(status.st_mode);
  if ((status.st_mode & (directory ? S_IXOTH : S_IROTH)) != 0) return {};
  return directory ? "not every user can enter" : "cannot be read by every user";
}

std::string why_not_roots_path(const std::string& path) {
  for (const std::string& prefix : prefixes_of(path)) {
    const std::string why = why_not_roots(prefix);
    if (!why.empty())
      return (prefix == path ? "" : "is in " + printable(prefix) + ", which ") + why;
  }
  return {};
}

bool is_guard(const std::string& entry) { return base_name(entry) == "libcudaguard.so"; }

bool means_file(const std::string& entry, const std::string& path) {
  if (entry == path) return true;
  if (base_name(entry) != base_name(path)) return false;
  if (entry.find('/') == std::string::npos) return true;
  const std::string directory(directory_of(path));
  return std::ranges::any_of(kLib, [&](const char* lib) {
    std::string other(directory_of(entry));
    for (const std::string_view token : {"${LIB}", "$LIB"}) {
      if (const size_t at = other.find(token); at != std::string::npos) {
        other.replace(at, token.size(), lib);
      }
    }
    std::error_code error;
    return other == directory || fs::equivalent(other, directory, error);
  });
}

}  // namespace cudaguard::launcher
