// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/exec_call.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/launcher/fence/filter.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kOtherIds = "its effective user or group is not the real one";

/// True if this process may not execute (X_OK) or read (R_OK) the file, for example because of its
/// mount's noexec.
bool is_denied(int right, const Descriptor& file) {
  constexpr long kFaccessat2 = 439;  // Linux 5.8; an older container may refuse it
  if (syscall(kFaccessat2, file.number(), "", right, AT_EMPTY_PATH | AT_EACCESS) == 0) return false;
  if (errno != ENOSYS && errno != EPERM) return errno == EACCES;
  // For the real user, and so without UserRights.
  return access(file.path().c_str(), right) != 0 && errno == EACCES;
}

/// Identifies a directory: device, inode, and its mount, which has another id in each mount
/// namespace (0 before Linux 5.8). All zero if it cannot be examined.
using DirectoryId = std::array<uint64_t, 4>;
DirectoryId directory_id(int descriptor, const char* name = "") {
  struct statx found = {};
  constexpr unsigned kWanted = STATX_INO | STATX_MNT_ID;
  if (syscall(SYS_statx, descriptor, name, AT_EMPTY_PATH, kWanted, &found) != 0) return {};
  return {found.stx_dev_major, found.stx_dev_minor, found.stx_ino, found.stx_mnt_id};
}

/// The link of /proc/PID at which this name begins for the process, and the rest of the name.
std::pair<std::string, std::string> split_at_link(const std::string& name) {
  constexpr std::string_view kSelf = "/proc/self/";
  constexpr std::string_view kDescriptors = "/dev/fd/";
  const bool by_descriptor = name.starts_with(kDescriptors);
  if (!by_descriptor && !name.starts_with(kSelf)) {
    return {name.starts_with('/') ? "root" : "cwd", name};
  }
  // To this process, they are other directories.
  std::string rest =
      by_descriptor ? "fd/" + name.substr(kDescriptors.size()) : name.substr(kSelf.size());
  const size_t end = rest.find('/', rest.starts_with("fd/") ? 3 : 0);
  std::string link = rest.substr(0, end);
  rest.erase(0, end);  // "/bin/x" of "/proc/self/root/bin/x"
  if (!rest.empty() && link != "root") rest.insert(0, ".");
  return {std::move(link), std::move(rest)};
}

}  // namespace

/// While it lives, this process has another user's rights to files.
class ExecCall::UserRights {
 public:
  UserRights(const Credentials& user, const std::vector<gid_t>& groups) {
    prctl(PR_GET_PDEATHSIG, &at_parents_end_, 0, 0, 0);
    setgroups(groups.size(), groups.data());
    setfsgid(static_cast<gid_t>(user.files_group));
    setfsuid(static_cast<uid_t>(user.files_user));
  }
  ~UserRights() {
    setfsuid(geteuid());
    setfsgid(getegid());
    setgroups(groups_.size(), groups_.data());
    // Another user's id has reset both.
    prctl(PR_SET_DUMPABLE, is_dumpable_, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, at_parents_end_, 0, 0, 0);
    if (at_parents_end_ != 0 && getppid() != parent_) raise(at_parents_end_);
  }
  UserRights(const UserRights&) = delete;
  UserRights& operator=(const UserRights&) = delete;

 private:
  static const std::vector<gid_t>& own_groups() {
    static const std::vector<gid_t> groups = [] {
      std::vector<gid_t> list(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
      if (getgroups(static_cast<int>(list.size()), list.data()) < 0) list.clear();
      return list;
    }();
    return groups;
  }

  const std::vector<gid_t>& groups_ = own_groups();
  const pid_t parent_ = getppid();
  const int is_dumpable_ = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
  int at_parents_end_ = 0;
};

ExecCall::ExecCall(pid_t caller, const seccomp_data& data)
    : thread(caller), proc_("/proc/" + std::to_string(caller) + "/") {
  constexpr Architecture kHere = kThisArchitecture;
  const bool older = data.arch != kHere.architecture;
  const auto number = static_cast<uint32_t>(data.nr);
  const uint32_t plain = older ? number : number & ~kHere.x32_bit;
  if (older || plain != number) pointer = 4;
  const __u64* from = data.args;
  constexpr Execs kExecs = kHere.execs;
  if (older ? plain == kExecs[5] : plain == kExecs[1] || plain == kExecs[3]) {
    directory_ = static_cast<int>(*from++);
    flags = static_cast<int>(data.args[4]);
  }
  path = from[0];
  words = from[1];
  variables = from[2];
  const DirectoryId theirs = directory_id(AT_FDCWD, proc("root").c_str());
  shares_root_ = theirs != DirectoryId() && theirs == directory_id(AT_FDCWD, "/") &&
                 (theirs.back() != 0 || link_of(thread, "ns/mnt") == link_of(getpid(), "ns/mnt"));
  if (!shares_root_) root_ = open_own("root");
}

const std::string& ExecCall::status() {
  if (status_.empty()) status_ = status_of(thread);
  return status_;
}

const std::optional<Credentials>& ExecCall::credentials() {
  if (credentials_) return credentials_;
  // Quicker than the status, but there is a descriptor of a process's first thread only.
  process = open_process(thread);
  credentials_ = credentials_of(process);
  if (credentials_) return credentials_;
  // Real, effective, saved, of files.
  const std::vector<uint64_t> user = numbers_in(status(), "Uid");
  const std::vector<uint64_t> group = numbers_in(status(), "Gid");
  if (user.size() == 4 && group.size() == 4) {
    credentials_ = {user[0], user[1], user[3], group[0], group[1], group[3]};
  }
  return credentials_;
}

std::string ExecCall::full_name(const std::string& name) const {
  if (directory_ == AT_FDCWD || name.starts_with('/')) return name;
  if (name.empty() && (flags & AT_EMPTY_PATH) == 0) return name;
  return "/proc/self/fd/" + std::to_string(directory_) + (name.empty() ? "" : "/") + name;
}

bool ExecCall::is_lost() const {
  constexpr int kOfExecve[] = {0, ENOENT, EACCES, ENOTDIR, ELOOP, ENAMETOOLONG};
  return std::ranges::find(kOfExecve, error) == std::end(kOfExecve);
}

bool ExecCall::may_access_all() {
  constexpr uint64_t kCapabilities = (1 << CAP_DAC_OVERRIDE) | (1 << CAP_DAC_READ_SEARCH);
  constexpr std::string_view kName = "\nCapEff:\t";
  const size_t at = status().find(kName);
  if (at == std::string::npos) return false;
  return (strtoull(status().c_str() + at + kName.size(), nullptr, 16) & kCapabilities) != 0;
}

bool ExecCall::has_other_user() {
  return geteuid() == 0 && credentials() && credentials()->files_user != 0;
}

void ExecCall::take_rights(std::optional<UserRights>& rights) {
  const std::vector<uint64_t> groups = numbers_in(status(), "Groups");
  rights.emplace(*credentials(), std::vector<gid_t>(groups.begin(), groups.end()));
}

bool ExecCall::may_load(const std::string& name) {
  if (!has_other_user()) return true;
  std::optional<UserRights> rights;
  take_rights(rights);  // execve takes the capabilities
  const Descriptor file = look_up(name, true);
  return file.number() >= 0 && !is_denied(R_OK, file);
}

Descriptor ExecCall::open_file(const std::string& name, int right, bool follow) {
  std::optional<UserRights> rights;
  if (has_other_user() && !may_access_all()) take_rights(rights);
  Descriptor file = look_up(name, follow);
  const bool is_found = file.number() >= 0;
  if (is_found && right != 0 && is_denied(right, file)) error = EACCES;
  if (error != EACCES) return file;
  rights.reset();
  // Not known: a process with more rights than this one, and what even root may not search (a
  // user's FUSE mount, a server's directory).
  const bool is_known =
      geteuid() == 0 ? is_found || look_up(name, follow).number() >= 0 : !may_access_all();
  error = is_known ? EACCES : EXDEV;
  return Descriptor();
}

Descriptor ExecCall::look_up(const std::string& name, bool follow) {
  constexpr long kOpenat2 = 437;  // Linux 5.6. The next three are as in <linux/openat2.h>.
  constexpr uint64_t kNoMagicLinks = 0x02;
  constexpr uint64_t kBeneath = 0x08;
  constexpr uint64_t kInRoot = 0x10;
  constexpr int kMostTries = 1000;
  error = 0;
  if (name.empty()) return Descriptor();
  const auto [from, rest] = split_at_link(name);
  const int how_to_open = O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW);
  const auto open_in = [&](int place, const std::string& below, uint64_t resolve) {
    const struct {
      uint64_t flags, mode, resolve;
    } how = {static_cast<uint64_t>(how_to_open), 0, resolve};
    long file = -1;
    // Only within a directory: a rename anywhere may hide that ".." leads out of it.
    for (int i = 0; i < kMostTries; ++i) {
      file = syscall(kOpenat2, place, below.c_str(), &how, sizeof how);
      error = file < 0 ? errno : 0;
      if (error != EAGAIN) break;
    }
    return Descriptor(static_cast<int>(file));
  };
  Descriptor start;
  if (from != "root") {
    start = open_own(from);
    if (start.number() < 0) {
      error = errno;
      return start;
    }
    if (rest.empty() && !follow) {
      error = ELOOP;
      return Descriptor();
    }
    if (rest.empty()) return start;
  }
  const int place = from == "root" ? root() : start.number();
  if (shares_root_) {
    Descriptor file = open_in(place, rest, kNoMagicLinks);
    const bool is_refused = error == ENOSYS || error == EPERM;
    if (error != ELOOP && !is_refused) return file;
    Descriptor plain(openat(place, rest.c_str(), how_to_open));
    error = plain.number() < 0 ? errno : 0;
    if (is_refused) return plain;
    if (error != ELOOP) error = EXDEV;  // a link of /proc, by which this process finds another file
    return Descriptor();
  }
  Descriptor file = open_in(place, rest, from == "root" ? kInRoot : kBeneath);
  if (error != EXDEV || from == "root") return file;
  // ".." or a symbolic link leads out of the directory.
  std::string directory_name = link_of(thread, from) + "/";
  const std::string root_name = link_of(thread, "root");
  if (root_name != "/") {
    if (!directory_name.starts_with(root_name + "/")) return file;
    directory_name.erase(0, root_name.size());
  }
  const Descriptor again = open_in(root(), directory_name, kInRoot);
  // It may be removed, or below another mount.
  const bool is_same = again.number() >= 0 && directory_id(again.number()) == directory_id(place);
  if (is_same) file = open_in(root(), directory_name + rest, kInRoot);
  // The caller needs no right to search what is above the directory.
  if (!is_same || error == EACCES || error == ENAMETOOLONG) error = EXDEV;
  return file;
}

std::string ExecCall::privileges(const struct stat& file, bool has_capabilities) {
  constexpr mode_t kSetgid = S_ISGID | S_IXGRP;
  const bool sets_user = (file.st_mode & S_ISUID) != 0;
  const bool sets_group = (file.st_mode & kSetgid) == kSetgid;
  if (!credentials()) return {};
  const Credentials& ids = *credentials();
  const bool gains =
      (sets_user || sets_group) && numbers_in(status(), "NoNewPrivs") != std::vector<uint64_t>{1};
  const bool setuid = gains && sets_user;
  const bool setgid = gains && sets_group;
  if ((setuid ? file.st_uid : ids.effective_user) != ids.user) return setuid ? "setuid" : kOtherIds;
  if ((setgid ? file.st_gid : ids.effective_group) != ids.group) {
    return setgid ? "setgid" : kOtherIds;
  }
  return has_capabilities && ids.user != 0 ? "file capabilities" : "";
}

}  // namespace cudaguard::launcher
