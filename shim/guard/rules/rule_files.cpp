// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/rules/rule_files.h"

#include <cerrno>

#include "policy/text.h"

namespace cudaguard {

namespace {

constexpr char kEtc[] = "/etc";
constexpr int kOpen = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;

// More reasons why a file is not used.
constexpr char kLink[] = "it is a symbolic link";
constexpr char kNoFile[] = "it is not a regular file";
constexpr char kNotRoots[] = "root does not own it";
constexpr char kOthersWrite[] = "others than root can write it";
constexpr char kNotRootsDirectory[] = "root does not own its directory";
constexpr char kOpenDirectory[] = "others than root can write its directory";
constexpr char kChanging[] = "it is being changed";
constexpr char kTooMany[] = "it has too many files";

/// Returns why a file or directory cannot be trusted, or null.
const char* distrust(const struct stat& status) {
  if (status.st_uid != 0) return kNotRoots;
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? kOthersWrite : nullptr;
}

/// Who can write the directory can replace the file.
const char* distrust_etc() {
  struct stat status = {};
  if (sys::stat(kEtc, &status) != 0) return kNotRead;
  if (status.st_uid != 0) return kNotRootsDirectory;
  return distrust(status) != nullptr ? kOpenDirectory : nullptr;
}

bool is_changed(const struct stat& before, const struct stat& now) {
  return before.st_size != now.st_size || before.st_mtim.tv_sec != now.st_mtim.tv_sec ||
         before.st_mtim.tv_nsec != now.st_mtim.tv_nsec;
}

/// Appends the file to the texts. Returns why that is not possible, or null.
const char* append(RuleTexts& to, int fd) {
  struct stat before = {};
  if (sys::fstat(fd, &before) != 0) return kNotRead;
  if (!S_ISREG(before.st_mode)) return kNoFile;
  if (const char* why = distrust(before)) return why;
  constexpr int kAttempts = 8;
  for (int i = 0; i < kAttempts; ++i) {
    size_t used = to.used;
    do {
      const long got = sys::read_at(fd, to.bytes + used, sizeof to.bytes - used,
                                    static_cast<long>(used - to.used));
      if (got < 0) return kNotRead;
      if (got == 0) break;
      used += static_cast<size_t>(got);
      if (used > kMostRuleBytes) return kTooLong;
    } while (used - to.used != static_cast<size_t>(before.st_size));
    struct stat now = {};
    if (sys::fstat(fd, &now) != 0) return kNotRead;
    if (!is_changed(before, now) && used - to.used == static_cast<size_t>(now.st_size)) {
      to.used = used;
      return nullptr;
    }
    before = now;
  }
  return kChanging;
}

/// Returns the first name of a file of rules after `last` in the order of bytes, or nothing.
std::string_view next_name(const RuleEntries& entries, size_t size, std::string_view last) {
  std::string_view found;
  for (size_t at = 0; at < size;) {
    const auto* entry = reinterpret_cast<const sys::DirectoryEntry*>(entries.bytes + at);
    at += entry->length;
    const std::string_view name = entry->name;
    if (!name.ends_with(".conf") || name.starts_with('.') || name <= last) continue;
    if (found.empty() || name < found) found = name;
  }
  return found;
}

}  // namespace

int RuleFiles::open() { return sys::open(kRuleFile, kOpen); }

RuleFiles::~RuleFiles() {
  if (file_ >= 0) sys::close(file_);
  if (directory_ >= 0) sys::close(directory_);
}

void RuleFiles::set_path(std::string_view directory, std::string_view name) {
  Text path(texts_.path, sizeof texts_.path - 1);
  path.put(directory);
  if (!name.empty()) path.put("/").put(name);
  path_size_ = path.view().size();
  texts_.path[path_size_] = '\0';
}

bool RuleFiles::refuse(const char* why) {
  why_ = why;
  return false;
}

bool RuleFiles::take(int fd) {
  begin_ = texts_.used;
  if (fd < 0) return refuse(fd == -ELOOP ? kLink : kNotRead);
  const char* const why = append(texts_, fd);
  return why == nullptr || refuse(why);
}

bool RuleFiles::next() {
  if (why_ != nullptr) return false;
  if (!begun_) {
    begun_ = true;
    set_path(kRuleFile, {});
    return take(file_);
  }
  return (directory_ >= 0 || open_directory()) && read_next_name();
}

/// Returns false if there is no directory, or if it cannot be used.
bool RuleFiles::open_directory() {
  if (const char* why = distrust_etc()) return refuse(why);
  directory_ = sys::open(kRuleDirectory, kOpen | O_DIRECTORY);
  if (directory_ == -ENOENT) return false;
  set_path(kRuleDirectory, {});
  struct stat status = {};
  if (directory_ < 0 || sys::fstat(directory_, &status) != 0) return refuse(kNotRead);
  if (const char* why = distrust(status)) return refuse(why);
  for (;;) {
    const long got = sys::list(directory_, entries_.bytes + entries_size_,
                               sizeof entries_.bytes - entries_size_);
    if (got == -EINVAL) return refuse(kTooMany);  // no entry fits any more
    if (got < 0) return refuse(kNotRead);
    if (got == 0) return true;
    entries_size_ += static_cast<size_t>(got);
  }
}

bool RuleFiles::read_next_name() {
  name_ = next_name(entries_, entries_size_, name_);
  if (name_.empty()) return false;
  set_path(kRuleDirectory, name_);
  const int fd = sys::open_at(directory_, name_.data(), kOpen);
  const bool good = take(fd);
  if (fd >= 0) sys::close(fd);
  return good;
}

}  // namespace cudaguard
