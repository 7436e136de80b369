// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/start.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/elf/binfmt.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/fence/filter.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/unwind/process.h"

namespace cudaguard::launcher {

namespace {

/// The kernel's own limit of one string.
constexpr size_t kMostString = size_t{32} * 4096;
constexpr uint64_t kLeastRoom = uint64_t{128} << 10;

constexpr const char* kOtherIds = "its effective user or group is not the real one";

/// While it lives, this process has another user's rights to files.
class UserRights {
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

/// True if this process may not execute (X_OK) or read (R_OK) the file, for example because of its
/// mount's noexec.
bool is_denied(int right, const Descriptor& file) {
  constexpr long kFaccessat2 = 439;  // Linux 5.8; an older container may refuse it
  if (syscall(kFaccessat2, file.number(), "", right, AT_EMPTY_PATH | AT_EACCESS) == 0) return false;
  if (errno != ENOSYS && errno != EPERM) return errno == EACCES;
  // For the real user, and so without UserRights.
  return access(("/proc/self/fd/" + std::to_string(file.number())).c_str(), right) != 0 &&
         errno == EACCES;
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

/// By which the file can be opened again.
std::string path_of(const Descriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.number());
}

/// One search through the whole file.
bool has_names(const std::string& path) {
  constexpr std::string_view kNames[] = {"/dev/nvidia", "libcuda.so", "libnvidia-ml.so"};
  const FileBytes file(path);
  return std::ranges::any_of(kNames, [&](std::string_view name) { return contains(file, name); });
}

/// True if a process has the file open for writing, so that execve answers ETXTBSY.
bool is_written(const std::string& path, const struct stat& status) {
  constexpr time_t kRecent = 600;  // seconds; only a file that was just made has writers
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec - status.st_ctim.tv_sec > kRecent) return false;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // A writer that comes in this moment waits for the end of the lease. The signal that reports it
  // is one that the launcher expects.
  fcntl(file.number(), F_SETSIG, SIGCHLD);
  const bool is_leased = fcntl(file.number(), F_SETLEASE, F_RDLCK) == 0;
  const bool has_writer = !is_leased && errno == EAGAIN;
  if (is_leased) fcntl(file.number(), F_SETLEASE, F_UNLCK);
  return has_writer;
}

void examine_elf(const std::string& path, const ElfFacts& elf, FileFacts& facts) {
  using Kind = FileFacts::Kind;
  const Examined examined = examine_file({path, elf});
  facts.kind = Kind::kDynamic;
  facts.interpreter = elf.interpreter;
  if (!examined.hindrances.empty()) {
    const std::string_view id = examined.hindrances.front().id;
    facts.kind = Kind::kUnguarded;
    facts.why = examined.hindrances.front().why;
    facts.never_guarded = id == "musl";
    facts.word = id == "static_driver" ? "static" : id == "architecture" ? "32-bit" : id;
    facts.foreign = is_foreign(elf);
  } else if (examined.kind == Examined::Kind::kLauncher || id_of(path) == executable_id(getpid())) {
    facts.kind = Kind::kLauncher;
  } else if (examined.kind == Examined::Kind::kLoader) {
    facts.is_loader = true;
  } else if (examined.kind == Examined::Kind::kStatic) {
    facts.kind = Kind::kUnguarded;
    facts.word = "static";
    facts.why = "it is a static executable";
  }
}

FileFacts examine(const std::string& path) {
  FileFacts facts;
  const FileBytes file(path);
  if (file.error() != 0) {
    facts.kind = FileFacts::Kind::kUnreadable;
    return facts;
  }
  facts.has_capabilities = getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  const std::string head = read_head(file);
  ScriptLine line = read_script(head);
  if (!line.interpreter.empty()) {
    facts.interpreter = std::move(line.interpreter);
    facts.kind = FileFacts::Kind::kScript;
    return facts;
  }
  const ElfFacts elf = read_elf(file);
  // The kernel looks at the program's header alone.
  const bool runs = elf.is_elf && (!elf.loads.empty() || !elf.is_64 || !elf.little_endian);
  if (runs) examine_elf(path, elf, facts);
  if (facts.kind == FileFacts::Kind::kOther || facts.foreign) facts.head = head;
  return facts;
}

}  // namespace

FileFacts& Executables::of(const std::string& path, const FileId& id) {
  const auto known = files_.find(id);
  if (known != files_.end()) return known->second;
  FileFacts facts = examine(path);
  // Another file may have got this name, or the process another program.
  const bool same = id_of(path) == id;
  return files_.insert_or_assign(same ? id : FileId{}, std::move(facts)).first->second;
}

bool Executables::names_nvidia(const std::string& path) {
  FileFacts& facts = of(path);
  if (!facts.names_nvidia) facts.names_nvidia = has_names(path);
  return *facts.names_nvidia;
}

/// The arguments of the system call.
struct StartReader::Call {
  Call(pid_t caller, const seccomp_data& data);
  /// A name for open_file(), also if the call means a file by its descriptor.
  std::string full_name(const std::string& name) const;
  /// Opens the file that this name means for the process, if it has this right to the file (X_OK,
  /// R_OK), or sets `error`: EXDEV if that is not known.
  Descriptor open_file(const std::string& name, int right = 0, bool follow = true);
  /// True if open_file() has failed, and execve perhaps does not.
  bool is_lost() const;
  /// False if the new program may not read the library of this name, as this process may.
  bool may_load(const std::string& name);
  std::string privileges(const struct stat& file, bool has_capabilities);
  /// True if this process may not know which file a name means.
  bool hides_files() const { return root.number() < 0; }
  std::string proc(const std::string& name) const { return proc_ + name; }
  Descriptor open_own(const std::string& name) const {
    return Descriptor(open(proc(name).c_str(), O_PATH | O_CLOEXEC));
  }
  /// /proc/PID/status
  const std::string& status();
  /// Nothing if the thread is gone.
  const std::optional<Credentials>& credentials();

  pid_t thread;
  Descriptor root;
  Descriptor process{-1};  ///< open once the credentials were asked for
  int directory = AT_FDCWD;
  uint64_t path = 0;
  uint64_t words = 0;
  uint64_t variables = 0;
  int flags = 0;
  size_t pointer = 8;     ///< its size
  size_t added = 0;       ///< bytes that execve adds for the interpreters of scripts
  Descriptor opened{-1};  ///< the file that will run
  int error = 0;          ///< of open_file()
  // Of this file.
  bool is_loader = false;
  bool by_loader = false;
  bool is_privileged = false;

 private:
  /// The same with this process's rights.
  Descriptor look_up(const std::string& name, bool follow);
  /// True if names mean the same files for this process.
  bool shares_root() const;
  /// True if the process has capabilities to access any file.
  bool may_access_all();
  /// True if root's verify looks at another user's process.
  bool has_other_user();
  /// Takes the rights of the process's user.
  void take_rights(std::optional<UserRights>& rights);

  std::string proc_;
  std::string status_;
  std::optional<Credentials> credentials_;
};

StartReader::Call::Call(pid_t caller, const seccomp_data& data)
    : thread(caller), proc_("/proc/" + std::to_string(caller) + "/") {
  constexpr Architecture kHere = kThisArchitecture;
  const bool older = data.arch != kHere.architecture;
  const auto number = static_cast<uint32_t>(data.nr);
  const uint32_t plain = older ? number : number & ~kHere.x32_bit;
  if (older || plain != number) pointer = 4;
  const __u64* from = data.args;
  constexpr Execs kExecs = kHere.execs;
  if (older ? plain == kExecs[5] : plain == kExecs[1] || plain == kExecs[3]) {
    directory = static_cast<int>(*from++);
    flags = static_cast<int>(data.args[4]);
  }
  path = from[0];
  words = from[1];
  variables = from[2];
  root = open_own("root");
}

const std::string& StartReader::Call::status() {
  if (status_.empty()) status_ = status_of(thread);
  return status_;
}

const std::optional<Credentials>& StartReader::Call::credentials() {
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

std::string StartReader::Call::full_name(const std::string& name) const {
  if (directory == AT_FDCWD || name.starts_with('/')) return name;
  if (name.empty() && (flags & AT_EMPTY_PATH) == 0) return name;
  return "/proc/self/fd/" + std::to_string(directory) + (name.empty() ? "" : "/") + name;
}

bool StartReader::Call::is_lost() const {
  constexpr int kOfExecve[] = {0, ENOENT, EACCES, ENOTDIR, ELOOP, ENAMETOOLONG};
  return std::ranges::find(kOfExecve, error) == std::end(kOfExecve);
}

bool StartReader::Call::may_access_all() {
  constexpr uint64_t kCapabilities = (1 << CAP_DAC_OVERRIDE) | (1 << CAP_DAC_READ_SEARCH);
  constexpr std::string_view kName = "\nCapEff:\t";
  const size_t at = status().find(kName);
  if (at == std::string::npos) return false;
  return (strtoull(status().c_str() + at + kName.size(), nullptr, 16) & kCapabilities) != 0;
}

bool StartReader::Call::has_other_user() {
  return geteuid() == 0 && credentials() && credentials()->files_user != 0;
}

void StartReader::Call::take_rights(std::optional<UserRights>& rights) {
  const std::vector<uint64_t> groups = numbers_in(status(), "Groups");
  rights.emplace(*credentials(), std::vector<gid_t>(groups.begin(), groups.end()));
}

bool StartReader::Call::shares_root() const {
  const DirectoryId theirs = directory_id(root.number());
  if (theirs == DirectoryId() || theirs != directory_id(AT_FDCWD, "/")) return false;
  return theirs.back() != 0 || link_of(thread, "ns/mnt") == link_of(getpid(), "ns/mnt");
}

bool StartReader::Call::may_load(const std::string& name) {
  if (!has_other_user()) return true;
  std::optional<UserRights> rights;
  take_rights(rights);  // execve takes the capabilities
  const Descriptor file = look_up(name, true);
  return file.number() >= 0 && !is_denied(R_OK, file);
}

Descriptor StartReader::Call::open_file(const std::string& name, int right, bool follow) {
  std::optional<UserRights> rights;
  if (has_other_user() && !may_access_all()) take_rights(rights);
  Descriptor file = look_up(name, follow);
  const bool is_found = file.number() >= 0;
  if (is_found && right != 0 && is_denied(right, file)) error = EACCES;
  if (error != EACCES) return file;
  rights.reset();
  // Even root may not search the FUSE mount of a user, or a server's directory.
  const bool is_known =
      geteuid() == 0 ? is_found || look_up(name, follow).number() >= 0 : !may_access_all();
  error = is_known ? EACCES : EXDEV;
  return Descriptor(-1);
}

Descriptor StartReader::Call::look_up(const std::string& name, bool follow) {
  constexpr std::string_view kSelf = "/proc/self/";
  constexpr std::string_view kDescriptors = "/dev/fd/";
  constexpr long kOpenat2 = 437;  // Linux 5.6. The next three are as in <linux/openat2.h>.
  constexpr uint64_t kNoMagicLinks = 0x02;
  constexpr uint64_t kBeneath = 0x08;
  constexpr uint64_t kInRoot = 0x10;
  constexpr int kMostTries = 1000;
  error = 0;
  if (name.empty()) return Descriptor(-1);
  // `rest` begins at this link of /proc/PID.
  std::string from = name.front() == '/' ? "root" : "cwd";
  std::string rest = name;
  const bool by_descriptor = name.starts_with(kDescriptors);
  if (by_descriptor || name.starts_with(kSelf)) {
    // To this process, they are other directories.
    rest = by_descriptor ? "fd/" + name.substr(kDescriptors.size()) : name.substr(kSelf.size());
    const size_t end = rest.find('/', rest.starts_with("fd/") ? 3 : 0);
    from = rest.substr(0, end);
    rest.erase(0, end);  // "/bin/x" of "/proc/self/root/bin/x"
    if (!rest.empty()) rest.insert(0, ".");
  }
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
    error = start.number() < 0 ? errno : follow || !rest.empty() ? 0 : ELOOP;
    if (error != 0) return Descriptor(-1);
    if (rest.empty()) return start;
  }
  const int place = from == "root" ? root.number() : start.number();
  if (shares_root()) {
    Descriptor file = open_in(place, rest, kNoMagicLinks);
    const bool is_refused = error == ENOSYS || error == EPERM;
    if (error != ELOOP && !is_refused) return file;
    Descriptor plain(openat(place, rest.c_str(), how_to_open));
    error = plain.number() < 0 ? errno : 0;
    if (is_refused) return plain;
    if (error != ELOOP) error = EXDEV;  // a link of /proc, by which this process finds another file
    return Descriptor(-1);
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
  const Descriptor again = open_in(root.number(), directory_name, kInRoot);
  // It may be removed, or below another mount.
  const bool is_same = again.number() >= 0 && directory_id(again.number()) == directory_id(place);
  if (is_same) file = open_in(root.number(), directory_name + rest, kInRoot);
  // The caller needs no right to search what is above the directory.
  if (!is_same || error == EACCES || error == ENAMETOOLONG) error = EXDEV;
  return file;
}

struct StartReader::Strings {
  std::vector<std::string> words;  ///< the arguments of an ld.so
  std::optional<std::string> preload;
  std::string hello;
  bool lists = false;  ///< LD_TRACE_LOADED_OBJECTS
};

namespace {

/// Reads a list of pointers that ends with a null pointer. Returns false if it is unreadable.
bool read_pointers(WaitingProcess& memory, uint64_t from, size_t size, std::vector<uint64_t>& to) {
  if (from == 0) return true;
  constexpr size_t kMost = size_t{1} << 20;
  for (; to.size() < kMost; from += size) {
    uint64_t pointer = 0;
    if (!memory.read(from, &pointer, size)) return false;
    if (pointer == 0) return true;
    to.push_back(pointer);
  }
  return true;
}

/// The most bytes that execve takes, for the strings and their pointers.
uint64_t most_bytes(pid_t process) {
  constexpr uint64_t kMost = uint64_t{6} << 20;
  rlimit stack = {RLIM_INFINITY, RLIM_INFINITY};
  prlimit(process, RLIMIT_STACK, nullptr, &stack);
  return std::max<uint64_t>(kLeastRoom, std::min<uint64_t>(kMost, stack.rlim_cur / 4));
}

/// Why the memory of the calling process cannot be read.
std::string why_closed(pid_t thread) {
  if (access(("/proc/" + std::to_string(thread)).c_str(), F_OK) != 0)
    return "/proc does not show it";
  std::string scope;
  read_file("/proc/sys/kernel/yama/ptrace_scope", scope, 1);
  if (scope >= "2") {
    return "kernel.yama.ptrace_scope is " + scope.substr(0, 1) + ", so no memory can be read";
  }
  const std::vector<uint64_t> users = status_of(thread, "Uid");  // real, effective, saved, of files
  if (users.size() > 1 && users[1] != geteuid()) {
    return "started by user " + std::to_string(users[1]) + ", whose memory cannot be read";
  }
  return "started by a process that does not let others look at its memory";
}

}  // namespace

StartReader::StartReader(const std::string& guard) : guard_(id_of(guard)) {}

/// False if the file's ld.so is missing or no executable, so that execve fails. Examines it once.
bool StartReader::has_interpreter(Call& call, FileFacts& facts) const {
  if (facts.is_complete || facts.interpreter.empty()) return true;
  const Descriptor file = call.open_file(facts.interpreter, X_OK);
  if (call.hides_files() || call.is_lost()) return true;
  struct stat status = {};
  if (fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  facts.is_complete = true;
  const ElfFacts elf = read_elf(FileBytes(path_of(file)));
  // The name of a 32-bit one is not read.
  const std::string_view name = elf.is_64 ? elf.soname : base_name(facts.interpreter);
  facts.by_loader = name.starts_with("ld-linux") || name.starts_with("ld.so");
  if (facts.kind == FileFacts::Kind::kDynamic && !facts.by_loader) {
    facts.kind = FileFacts::Kind::kUnguarded;
    facts.word = "its interpreter is not glibc's ld.so";
  }
  return true;
}

/// Why ld.so will distrust the environment (AT_SECURE); empty if it will not. The kernel compares
/// the effective ids after execve with the real ones. File capabilities count even if no_new_privs
/// keeps the process from gaining them. A mount with nosuid and another user namespace may prevent
/// it, and then a start beacon shows that the program is guarded.
std::string StartReader::Call::privileges(const struct stat& file, bool has_capabilities) {
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

/// Sets the kind, as far as it follows from the file.
void StartReader::judge_file(Call& call, Start& start) {
  using Kind = FileFacts::Kind;
  std::string name = call.full_name(start.program);
  bool follow = (call.flags & AT_SYMLINK_NOFOLLOW) == 0 || start.program.empty();
  for (int i = 0; i <= kMostScripts; ++i) {
    call.opened = call.open_file(name, X_OK, std::exchange(follow, true));
    start.kind = Start::Kind::kUnknown;
    if (call.opened.number() < 0 && call.hides_files()) {
      start.reason = why_closed(call.thread);
      return;
    }
    if (call.is_lost()) {
      start.reason = call.error == EXDEV
                         ? "verify cannot follow its name"
                         : std::string("verify cannot open its file: ") + strerror(call.error);
      return;
    }
    start.kind = Start::Kind::kFails;
    start.reason = "its file could not be executed at first";
    struct stat status = {};
    if (fstat(call.opened.number(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    const std::string path = path_of(call.opened);
    if (is_written(path, status)) return;
    start.file = id_of(status);
    FileFacts& facts = executables_.of(path, start.file);
    if (facts.kind == Kind::kScript) {
      start.texts.push_back(std::exchange(name, facts.interpreter));
      call.added += name.size() + 1;
      continue;
    }
    if (facts.kind == Kind::kOther || facts.foreign) {
      if (is_emulated(facts.head, name)) start.kind = Start::Kind::kUnknown;
      start.reason = "binfmt_misc decides what runs it";
      return;
    }
    if (!has_interpreter(call, facts)) return;
    const std::string privileges = call.privileges(status, facts.has_capabilities);
    call.is_privileged = !privileges.empty();
    call.is_loader = facts.is_loader || (facts.word == "32-bit" && facts.interpreter.empty() &&
                                         base_name(name).starts_with("ld-linux"));
    call.by_loader = call.is_loader || facts.by_loader;
    start.reason = facts.word;
    start.is_final = facts.never_guarded;
    if (facts.kind == Kind::kLauncher) {
      start.kind = Start::Kind::kLauncher;
    } else if (facts.kind == Kind::kUnguarded || !privileges.empty()) {
      start.kind = Start::Kind::kUnguarded;
      if (start.reason.empty()) start.reason = privileges;
    } else if (facts.kind == Kind::kUnreadable) {
      start.kind = Start::Kind::kUnknown;
      start.reason = "its file cannot be read";
    } else {
      start.kind = Start::Kind::kGuarded;
    }
    return;
  }
}

/// The program that an ld.so with these arguments starts; empty if it starts none.
std::string program_of(const std::vector<std::string>& words) {
  constexpr std::string_view kWithValue[] = {
      "--library-path",      "--inhibit-rpath",       "--audit", "--preload", "--argv0",
      "--glibc-hwcaps-mask", "--glibc-hwcaps-prepend"};
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) return word;
    if (word == "--verify" || word == "--help" || word == "--version" ||
        word.starts_with("--list")) {
      break;
    }
    if (std::ranges::find(kWithValue, word) != std::end(kWithValue)) ++i;
  }
  return {};
}

void StartReader::judge_strings(Call& call, const Strings& strings, Start& start) const {
  const auto unguarded = [&](const char* reason) {
    start.kind = Start::Kind::kUnguarded;
    start.reason = reason;
  };
  if (call.is_loader) start.texts.push_back(program_of(strings.words));
  if ((call.is_loader && start.texts.back().empty()) ||
      (call.by_loader && !call.is_privileged && strings.lists)) {
    start.kind = Start::Kind::kLists;
    return;
  }
  if (start.kind != Start::Kind::kGuarded) return;
  if (!strings.preload) return unguarded("its environment has no LD_PRELOAD");
  bool replaced = true;
  bool found = false;
  for (const std::string& entry : preload_entries(strings.preload->c_str())) {
    if (!base_name(entry).starts_with("libcudaguard.so")) continue;
    replaced = false;
    struct stat status = {};
    const bool is_there =
        entry.front() == '/' && fstatat(call.root.number(), entry.c_str() + 1, &status, 0) == 0;
    const FileId id = is_there ? id_of(status) : FileId{};
    found |= entry.front() != '/' || id != FileId{};
    // If another user may not, ld.so goes on without it.
    start.own_guard |= is_there && id == guard_ && call.may_load(entry);
  }
  if (replaced) return unguarded("its LD_PRELOAD was replaced");
  if (!found) return unguarded("its LD_PRELOAD names a guard that is not there");
  if (strings.hello == "1") return;
  // The guard may work without this variable, but sends no start beacon.
  start.kind = Start::Kind::kUnknown;
  start.reason = "its environment has no CUDAGUARD_HELLO=1";
}

bool StartReader::names_nvidia(Call& call, const std::string& path, const Start& start) {
  return executables_.names_nvidia(path) ||
         std::ranges::any_of(start.texts, [&](const std::string& name) {
           const Descriptor file = call.open_file(name);
           return file.number() >= 0 && executables_.names_nvidia(path_of(file));
         });
}

bool StartReader::names_nvidia(pid_t pid, const Start& start) {
  Call call(pid, {});
  return names_nvidia(call, call.proc("exe"), start);
}

/// Reads the arguments and the environment. Returns false if execve will fail because of them.
bool StartReader::read_strings(const Call& call, WaitingProcess& memory, Strings& strings,
                               Start& start) {
  std::vector<uint64_t> pointers;
  if (!read_pointers(memory, call.words, call.pointer, pointers)) return false;
  const size_t words = pointers.size();
  if (!read_pointers(memory, call.variables, call.pointer, pointers)) return false;
  std::string text;
  const auto value = [&text](std::string_view name) -> std::optional<std::string> {
    if (!text.starts_with(name) || !tail(text, name.size()).starts_with('=')) return {};
    return text.substr(name.size() + 1);
  };
  uint64_t size = pointers.size() * call.pointer + start.program.size() + 1 + call.added;
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (!memory.has(pointers[i])) memory.fetch(std::span(pointers).subspan(i));
    text.clear();
    if (!memory.read_text(pointers[i], kMostString, text) || text.size() == kMostString)
      return false;
    size += text.size() + 1;
    if (i < words) {
      start.command.add(head(text, Command::kMost));
      // A script's process gets the arguments of its interpreter.
      if (start.texts.empty() && start.arguments.size() < kMostCommand) {
        start.arguments.append(text).push_back('\0');
        start.arguments.resize(std::min(start.arguments.size(), kMostCommand));
      }
      if (call.is_loader) strings.words.push_back(text);
    } else {
      // For ld.so and for the guard the last one counts.
      if (auto list = value("LD_PRELOAD")) strings.preload = std::move(list);
      if (auto hello = value(kHello)) strings.hello = std::move(*hello);
      strings.lists |= value("LD_TRACE_LOADED_OBJECTS").has_value();
    }
  }
  return size <= kLeastRoom || size <= most_bytes(call.thread);
}

Start StartReader::read(pid_t thread, const seccomp_data& data) {
  Call call(thread, data);
  WaitingProcess memory(thread, has_own_numbers());
  Start start;
  const uint64_t first[] = {call.path, call.words, call.variables};
  const int error = memory.fetch(first);
  if (!memory.read_text(call.path, PATH_MAX, start.program)) {
    start.reason = why_closed(thread);
    const bool closed =
        (error == EPERM || error == EACCES || error == ENOSYS) && !memory.is_read_through_proc();
    if (!closed) start.kind = Start::Kind::kFails;
    return start;
  }
  start.command.text = start.program;
  if ((call.flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) != 0) {
    start.kind = Start::Kind::kFails;  // AT_EXECVE_CHECK starts nothing, and no other flag is valid
  } else if (has_own_numbers()) {
    judge_file(call, start);
  }
  if (start.kind == Start::Kind::kFails) return start;  // most calls of a search in PATH
  Strings strings;
  Command command = std::exchange(start.command, {});
  if (!read_strings(call, memory, strings, start)) {
    start.kind = Start::Kind::kFails;
    return start;
  }
  if (start.command.text.empty()) start.command = std::move(command);
  if (!has_own_numbers()) start.reason = "/proc does not show it";
  judge_strings(call, strings, start);
  using Kind = Start::Kind;
  if (call.opened.number() >= 0 &&
      (start.kind == Kind::kUnguarded || start.kind == Kind::kUnknown)) {
    start.names_nvidia = names_nvidia(call, path_of(call.opened), start);
  }
  if (start.kind == Kind::kGuarded && start.own_guard) start.process = std::move(call.process);
  return start;
}

}  // namespace cudaguard::launcher
