// SPDX-License-Identifier: Apache-2.0
#include "shim/state/machine_file.h"

#include <cerrno>
#include <new>

#include "policy/text.h"
#include "policy/text/record.h"
#include "shim/state/inherited.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

constexpr char kEtc[] = "/etc";
constexpr char kFile[] = "/etc/cudaguard.conf";
constexpr char kDirectory[] = "/etc/cudaguard.conf.d";
constexpr size_t kMostBytes = 65536;  // of all files together
constexpr int kOpenFact = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
constexpr int kOpen = kOpenFact | O_NOFOLLOW;

// Why a file is not used.
constexpr char kNotRead[] = "it cannot be read";
constexpr char kLink[] = "it is a symbolic link";
constexpr char kNoFile[] = "it is not a regular file";
constexpr char kNotRoots[] = "root does not own it";
constexpr char kOthersWrite[] = "others than root can write it";
constexpr char kNotRootsDirectory[] = "root does not own its directory";
constexpr char kOpenDirectory[] = "others than root can write its directory";
constexpr char kTooLong[] = "all files are longer than 64 KiB";
constexpr char kChanging[] = "it is being changed";
constexpr char kTooMany[] = "it has too many files";

/// Reads what fits. The text is known if the file can be read.
RuleFact read_fact(const char* path, char* to, size_t size) {
  const sys::File file(path, kOpenFact);
  size_t used = 0;
  while (file.ok()) {
    char more = 0;
    const bool full = used == size;
    const long got = sys::read(file.fd(), full ? &more : to + used, full ? 1 : size - used);
    if (got < 0) return {};
    if (got == 0 || full) return {{to, used}, true, got != 0};
    used += static_cast<size_t>(got);
  }
  return {};
}

/// What is known about this process. Each fact is read once, if a rule asks for it.
struct FactsRoom {
  RuleFacts facts;
  uint32_t keys;
  bool has_users;
  bool has_group_names;
  char program[4096];
  char args[16384];
  char cgroup[4096];
  uint32_t groups[1 + 65536];  // one more than Linux allows
  char users[1 << 20];
  char group_names[1 << 20];

  void add(std::string_view rules, RuleSource source);

 private:
  void add_program();
  void add_groups();
};

void FactsRoom::add_program() {
  const long length = sys::readlink("/proc/self/exe", program, sizeof program);
  if (length <= 0) return;
  const std::string_view path(program, static_cast<size_t>(length));
  // The kernel adds this if the file was removed, for example by an upgrade.
  const bool known = !path.ends_with(" (deleted)");
  facts.program = {path, known, path.size() == sizeof program};
}

void FactsRoom::add_groups() {
  groups[0] = static_cast<uint32_t>(sys::call(SYS_getgid));
  constexpr size_t kMost = sizeof groups / sizeof groups[0] - 1;
  const long count = sys::call(SYS_getgroups, kMost, sys::word(groups + 1));
  if (count < 0) return;
  facts.groups = {groups, static_cast<size_t>(count) + 1};
  facts.knows_groups = true;
}

void FactsRoom::add(std::string_view rules, RuleSource source) {
  const uint32_t asked = keys_of(rules, source);
  const auto is_new = [&](RuleKey key) { return (asked & ~keys & bit_of(key)) != 0; };
  if (is_new(RuleKey::kProgram)) add_program();
  if (is_new(RuleKey::kArgs)) facts.args = read_fact("/proc/self/cmdline", args, sizeof args);
  if (is_new(RuleKey::kCgroup)) {
    facts.cgroup = read_fact("/proc/self/cgroup", cgroup, sizeof cgroup);
  }
  if (is_new(RuleKey::kUser)) {
    // The real user has started the process. The effective one is root in a setuid program.
    facts.user = static_cast<uint32_t>(sys::call(SYS_getuid));
    facts.knows_user = true;
  }
  if (is_new(RuleKey::kGroup)) add_groups();
  keys |= asked;
  if (!has_users && names_by_word(rules, source, RuleKey::kUser)) {
    facts.user_file = read_fact("/etc/passwd", users, sizeof users);
    has_users = true;
  }
  if (!has_group_names && names_by_word(rules, source, RuleKey::kGroup)) {
    facts.group_file = read_fact("/etc/group", group_names, sizeof group_names);
    has_group_names = true;
  }
}

/// Needed only while the files are read.
struct WorkRoom {
  FactsRoom room;
  alignas(sys::DirectoryEntry) char entries[32768];
};

/// What is kept: the text of all files, because the ruling points into it.
struct MachineFile {
  MachineRuling said;
  size_t used;
  char path[sizeof kDirectory + 256];
  char place[sizeof path + 24];
  char text[kMostBytes + 1];
};

/// Returns why a file or directory cannot be trusted, or null.
const char* distrust(const struct stat& status) {
  if (status.st_uid != 0) return kNotRoots;
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? kOthersWrite : nullptr;
}

bool is_changed(const struct stat& before, const struct stat& now) {
  return before.st_size != now.st_size || before.st_mtim.tv_sec != now.st_mtim.tv_sec ||
         before.st_mtim.tv_nsec != now.st_mtim.tv_nsec;
}

/// Appends the file to the text. Returns why that is not possible, or null.
const char* append(MachineFile& to, int fd) {
  struct stat before = {};
  if (sys::fstat(fd, &before) != 0) return kNotRead;
  if (!S_ISREG(before.st_mode)) return kNoFile;
  if (const char* why = distrust(before)) return why;
  constexpr int kAttempts = 8;
  for (int i = 0; i < kAttempts; ++i) {
    size_t used = to.used;
    for (;;) {
      const long got = sys::read_at(fd, to.text + used, sizeof to.text - used,
                                    static_cast<long>(used - to.used));
      if (got < 0) return kNotRead;
      if (got == 0) break;
      used += static_cast<size_t>(got);
      if (used > kMostBytes) return kTooLong;
    }
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

class Reader {
 public:
  Reader(MachineFile& file, WorkRoom& work) : file_(file), work_(work) {}

  void read(int fd) {
    set_path(kFile, {});
    file_.said.place = {
        file_.place,
        Text(file_.place, sizeof file_.place).put("no rule of ").put(kFile).view().size()};
    if (!add(fd)) return;
    // Who can write the directory can replace the file.
    const sys::File directory(kEtc, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat etc = {};
    if (!directory.ok() || sys::fstat(directory.fd(), &etc) != 0) return refuse(kNotRead);
    if (etc.st_uid != 0) return refuse(kNotRootsDirectory);
    if (distrust(etc) != nullptr) return refuse(kOpenDirectory);
    read_directory();
  }

 private:
  void set_path(std::string_view directory, std::string_view name) {
    Text path(file_.path, sizeof file_.path - 1);
    path.put(directory);
    if (!name.empty()) path.put("/").put(name);
    path_size_ = path.view().size();
    file_.path[path_size_] = '\0';
  }
  std::string_view path() const { return {file_.path, path_size_}; }

  void refuse(const char* why) {
    file_.said.unusable = why;
    file_.said.file = file_.said.place = path();
  }

  /// Adds the rules of a file. Returns false if it cannot be used.
  bool add(int fd) {
    const size_t begin = file_.used;
    const char* why = fd < 0 ? (fd == -ELOOP ? kLink : kNotRead) : append(file_, fd);
    if (why != nullptr) {
      refuse(why);
      return false;
    }
    const std::string_view text(file_.text + begin, file_.used - begin);
    work_.room.add(text, RuleSource::kFile);
    Ruling& ruling = file_.said.ruling;
    ruling = decide_by_rules(text, RuleSource::kFile, work_.room.facts, ruling);
    const char* const rule = ruling.rule.data();
    if (!ruling.rule.empty() && rule >= text.data() && rule < text.data() + text.size()) {
      Text place(file_.place, sizeof file_.place);
      place.put(path()).put(":").put_decimal(ruling.line);
      file_.said.place = place.view();
    }
    return true;
  }

  /// Returns the first name after `last` in the order of bytes, or nothing.
  std::string_view next_name(size_t size, std::string_view last) const {
    std::string_view found;
    for (size_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const sys::DirectoryEntry*>(work_.entries + at);
      at += entry->length;
      const std::string_view name = entry->name;
      if (!name.ends_with(".conf") || name.starts_with('.') || name <= last) continue;
      if (found.empty() || name < found) found = name;
    }
    return found;
  }

  void read_directory() {
    const sys::File directory(kDirectory, kOpen | O_DIRECTORY);
    if (!directory.ok() && directory.error() == ENOENT) return;
    set_path(kDirectory, {});
    struct stat status = {};
    if (!directory.ok() || sys::fstat(directory.fd(), &status) != 0) return refuse(kNotRead);
    if (const char* why = distrust(status)) return refuse(why);
    size_t size = 0;
    for (;;) {
      const long got = sys::list(directory.fd(), work_.entries + size, sizeof work_.entries - size);
      if (got == -EINVAL) return refuse(kTooMany);  // no entry fits any more
      if (got < 0) return refuse(kNotRead);
      if (got == 0) break;
      size += static_cast<size_t>(got);
    }
    for (std::string_view name = next_name(size, {}); !name.empty(); name = next_name(size, name)) {
      set_path(kDirectory, name);
      const int fd = sys::open_at(directory.fd(), name.data(), kOpen);
      const bool good = add(fd);
      if (fd >= 0) sys::close(fd);
      if (!good) return;
    }
  }

  MachineFile& file_;
  WorkRoom& work_;
  size_t path_size_ = 0;
};

// Neither has a text of its own.
constexpr MachineRuling kAbsent = {};
constexpr MachineRuling kUnread = {{}, kFile, kFile, kNotRead};

/// Reads the files. Returns kAbsent, kUnread or a MachineFile's.
const MachineRuling* read_files() {
  const int fd = sys::open(kFile, kOpen);
  if (fd < 0) {
    if (fd == -ENOENT) return &kAbsent;
    // There may be no free descriptor, or a filter of the program refuses the call.
    struct stat status = {};
    if (sys::lstat(kFile, &status) == -ENOENT) return &kAbsent;
  }
  auto* file = static_cast<MachineFile*>(sys::map(sizeof(MachineFile)));
  const sys::Mapped<WorkRoom> work;
  if (file == nullptr || !work) {
    if (file != nullptr) sys::unmap(file, sizeof *file);
    if (fd >= 0) sys::close(fd);
    return &kUnread;
  }
  new (&file->said) MachineRuling;
  Reader(*file, *work).read(fd);
  if (fd >= 0) sys::close(fd);
  return &file->said;
}

}  // namespace

const MachineRuling* machine_ruling() {
  const MachineRuling* known = inherited.machine.load(std::memory_order_acquire);
  if (known == nullptr) {
    const MachineRuling* made = read_files();
    // Another thread may have been faster.
    if (inherited.machine.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
      known = made;
    } else if (made != &kAbsent && made != &kUnread) {
      sys::unmap(const_cast<MachineRuling*>(made), sizeof(MachineFile));
    }
  }
  return known == &kAbsent ? nullptr : known;
}

Config parse_with_rules(const Environment& environment) {
  const MachineRuling* machine = machine_ruling();
  const bool ruled = environment.rules != nullptr && !environment.privileged;
  if (!ruled) return parse_config(environment, {}, machine);
  const sys::Mapped<FactsRoom> room;
  if (!room) return parse_config(environment, {}, machine);
  room->add(environment.rules, RuleSource::kVariable);
  return parse_config(environment, room->facts, machine);
}

}  // namespace cudaguard
