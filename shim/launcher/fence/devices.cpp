// SPDX-License-Identifier: Apache-2.0
// Landlock has no rule that forbids a file, so the domain grants each entry of / and of /dev,
// except those that policy/device_nodes.h names. An open with the access mode 3 needs none of
// Landlock's rights. The seccomp filter therefore refuses this mode, io_uring, and before Linux
// 6.10 openat2.
#include "shim/launcher/fence/devices.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "policy/device_nodes.h"
#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

// Older headers lack <linux/landlock.h>. The numbers are the same on every architecture.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr int kPathBeneath = 1;
constexpr uint64_t kWriteFile = 1 << 1;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kMakeChar = 1 << 6;
constexpr uint64_t kMakeBlock = 1 << 11;
constexpr uint64_t kRefer = 1 << 13;     // Linux 5.19
constexpr uint64_t kIoctlDev = 1 << 15;  // Linux 6.10
#if defined(__x86_64__)
constexpr const char* kLibraries = "/usr/lib/x86_64-linux-gnu";
#elif defined(__aarch64__)
constexpr const char* kLibraries = "/usr/lib/aarch64-linux-gnu";
#endif
struct RulesetAttr {
  uint64_t handled;
};
struct [[gnu::packed]] PathBeneathAttr {
  uint64_t allowed;
  int32_t parent;
};

/// The rights that this domain is about. The kernel never checks any other right.
constexpr uint64_t kHandled = kReadFile | kWriteFile | kMakeChar | kMakeBlock | kRefer;

std::string in(const std::string& directory, const char* name) {
  return directory + (directory.ends_with('/') ? "" : "/") + name;
}

/// A device, or a directory with one in it, perhaps some directories deeper: nvgpu/igpu0/as.
bool has_device(const std::string& path, int deeper = 3) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return false;
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) return true;
  return S_ISDIR(status.st_mode) && deeper > 0 &&
         std::ranges::any_of(names_in(path), [&](const std::string& name) {
           return has_device(in(path, name.c_str()), deeper - 1);
         });
}

/// Replaces "\040" and the like, as mountinfo has them.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size();
    out += escaped ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    if (escaped) i += 3;
  }
  return out;
}

/// A look at these may wait for a server.
bool is_remote(std::string_view type) {
  constexpr std::array<std::string_view, 8> kTypes = {"nfs",  "nfs4", "cifs", "smb3",
                                                      "ceph", "9p",   "afs",  "autofs"};
  return std::ranges::count(kTypes, type) != 0 || type.starts_with("fuse");
}

/// Directories below which programs open most of their files, without links on the way to them.
std::vector<std::string> busy_directories() {
  std::vector<std::string> found;
  char real[PATH_MAX];
  for (const char* const path : {"/usr/bin", "/usr/lib", kLibraries, "/usr/lib64", "/usr/share"}) {
    if (realpath(path, real) != nullptr && std::string_view(real) == path) found.emplace_back(path);
  }
  if (getcwd(real, sizeof real) != nullptr) found.emplace_back(real);
  return found;
}

/// A file or directory for a grant; of a link, the link itself.
struct Opened {
  explicit Opened(const std::string& path)
      : file(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)) {
    // With this flag, the kernel asks no file server, which may never answer.
    constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    if (statx(file, "", kFlags, STATX_TYPE | STATX_INO, &status) != 0) error = errno;
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (file >= 0) close(file);
  }

  const int file;
  struct statx status = {};
  int error = 0;
};

/// Adds the grants of one domain. A grant is for a directory or file, whatever its name: therefore,
/// a split one has no grant by the other names that it has by mounts (mount --bind / /mnt).
class Grants {
 public:
  Grants(const GpuNodes& nodes, uint64_t rights, int ruleset)
      : nodes_(nodes), rights_(rights), ruleset_(ruleset) {
    for (const std::string& path : nodes.split) {
      struct stat status;
      if (stat(path.c_str(), &status) == 0) split_.emplace_back(status.st_dev, status.st_ino);
    }
  }

  /// Grants everything below the path, but for what is left out. Returns an errno value or 0.
  int all(const std::string& path) {
    if (std::ranges::count(nodes_.left_out, path) != 0) return 0;
    const Opened opened(path);
    if (std::ranges::count(nodes_.split, path) == 0 && !is_split(opened)) {
      int error = grant(opened, rights_);
      // The kernel walks up from an opened file to the first grant. These save it some steps, at
      // 4 % of an open each.
      for (const std::string& directory : busy_) {
        if (error == 0 && directory.starts_with(in(path, ""))) error = all(directory);
      }
      return error;
    }
    const bool is_dev = path == "/dev";
    for (const std::string& name : names_in(path)) {
      if (is_dev && device_node(name) != nullptr) continue;
      if (const int error = all(in(path, name.c_str())); error != 0) return error;
    }
    return 0;
  }

  int one(const std::string& path, uint64_t rights) const { return grant(Opened(path), rights); }

 private:
  bool is_split(const Opened& opened) const {
    const struct statx& status = opened.status;
    const std::pair<dev_t, ino_t> id(makedev(status.stx_dev_major, status.stx_dev_minor),
                                     status.stx_ino);
    return opened.error == 0 && std::ranges::count(split_, id) != 0;
  }

  int grant(const Opened& opened, uint64_t rights) const {
    // It is gone meanwhile, or in a directory that this user may not search; or SELinux hides it
    // from a confined user who may not open it, such as /root (EACCES).
    if (opened.file < 0 || opened.error == EACCES) return 0;
    if (opened.error != 0) return opened.error;
    if (S_ISLNK(opened.status.stx_mode)) return 0;  // what it leads to has its own grant
    // The kernel accepts the rights of directories only for directories.
    if (!S_ISDIR(opened.status.stx_mode)) rights &= kReadFile | kWriteFile | kIoctlDev;
    const PathBeneathAttr rule = {rights, opened.file};
    // Sockets, pipes and the kernel's own file systems need no grant, and have none (EBADFD).
    const bool added = syscall(kAddRule, ruleset_, kPathBeneath, &rule, 0) == 0;
    return added || errno == EBADFD ? 0 : errno;
  }

  const GpuNodes& nodes_;
  std::vector<std::pair<dev_t, ino_t>> split_;
  const std::vector<std::string> busy_ = busy_directories();
  uint64_t rights_;
  int ruleset_;
};

std::string why_no_landlock(int error) {
  switch (error) {
    case ENOSYS:
      return "this kernel has no Landlock (Linux 5.13)";
    case EOPNOTSUPP:
      return "Landlock is not among this kernel's security modules (lsm= on its command line)";
    case EINVAL:
      return "this kernel's Landlock is too old (Linux 5.19)";
    case E2BIG:
      return "this process is in too many Landlock domains already";
    case EPERM:
    case EACCES:
      return "a seccomp filter, or a container's profile, forbids Landlock";
    default:
      return std::string("the kernel says: ") + strerror(error);
  }
}

int restrict_self(int ruleset, bool& no_new_privs) {
  if (syscall(kRestrictSelf, ruleset, 0) == 0) return 0;
  if (errno != EPERM || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  no_new_privs = true;
  return syscall(kRestrictSelf, ruleset, 0) == 0 ? 0 : errno;
}

}  // namespace

std::vector<std::string> names_in(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

GpuNodes find_gpu_nodes(const std::string& mounts) {
  GpuNodes nodes;
  const auto leave_out = [&](const std::string& path) {
    nodes.left_out.push_back(path);
    for (std::string_view above = directory_of(path); !above.empty(); above = directory_of(above)) {
      if (std::ranges::count(nodes.split, above) == 0) nodes.split.emplace_back(above);
    }
  };
  std::istringstream lines(mounts);
  std::string line;
  while (std::getline(lines, line)) {
    // "24 30 0:6 /dri /mnt/dri rw,nosuid shared:2 - devtmpfs udev rw"
    std::istringstream fields(line);
    std::string skipped;
    std::string source;
    std::string point;
    std::string type;
    fields >> skipped >> skipped >> skipped >> source >> point;
    while (fields >> type && type != "-") {
    }
    fields >> type;
    if (is_remote(type)) continue;
    point = unescaped(point);
    // The node itself is mounted elsewhere, or its directory.
    std::istringstream names(unescaped(source));
    bool named = false;
    for (std::string name; std::getline(names, name, '/');) named |= device_node(name) != nullptr;
    if (named && has_device(point)) {
      const bool in_dev = directory_of(point) == "/dev" && device_node(base_name(point)) != nullptr;
      if (!in_dev) leave_out(point);
      continue;
    }
    for (const std::string& directory : {point, in(point, "dev")}) {
      // Grants::all() leaves them out of /dev, whatever they are. Other kinds of file system have
      // no nodes in their uppermost directory, and perhaps a million files.
      const bool may = directory != point || type == "devtmpfs" || type == "tmpfs";
      if (directory == "/dev" || !may) continue;
      for (const std::string& name : names_in(directory)) {
        if (device_node(name) == nullptr) continue;
        const std::string path = in(directory, name.c_str());
        if (has_device(path)) leave_out(path);
      }
    }
  }
  return nodes;
}

std::string enter_device_fence(const GpuNodes& nodes, bool& no_new_privs, bool& ioctls) {
  // A kernel may have a right that its version does not promise, so each is tried.
  RulesetAttr attr = {kHandled | kIoctlDev};
  const auto create = [&] {
    return static_cast<int>(syscall(kCreateRuleset, &attr, sizeof attr, 0));
  };
  int ruleset = create();
  if (ruleset < 0 && errno == EINVAL) {
    attr.handled = kHandled;
    ruleset = create();
  }
  if (ruleset < 0) return why_no_landlock(errno);
  ioctls = (attr.handled & kIoctlDev) == 0;
  Grants grants(nodes, attr.handled & ~(kMakeChar | kMakeBlock), ruleset);
  // Moving is allowed everywhere. The kernel still refuses to move a file to where it would get
  // more rights, so no node can be moved or linked out of /dev.
  int error = grants.one("/", kRefer);
  if (error == 0) error = grants.all("/");
  for (const std::string& node : nodes.kept) {
    if (error == 0) error = grants.one(node, attr.handled);
  }
  if (error == 0) error = restrict_self(ruleset, no_new_privs);
  close(ruleset);
  return error == 0 ? "" : why_no_landlock(error);
}

int landlock_domains() {
  constexpr int kMost = 16;  // LANDLOCK_MAX_NUM_LAYERS
  const RulesetAttr attr = {kMakeBlock};
  const int ruleset = static_cast<int>(syscall(kCreateRuleset, &attr, sizeof attr, 0));
  if (ruleset < 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    int more = 0;
    bool no_new_privs = false;
    while (more < kMost && restrict_self(ruleset, no_new_privs) == 0) ++more;
    _exit(errno == E2BIG ? kMost - more : 0);
  }
  close(ruleset);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace cudaguard::launcher
