// SPDX-License-Identifier: Apache-2.0
// Without the machine's file, this is one open that fails. What the file says is kept in pages that
// a forked child inherits, because the child may be in a chroot. `doctor` and `system check` read
// the files with the same code (rules/).
#include "shim/guard/state/machine_file.h"

#include <cerrno>
#include <new>

#include "policy/variables.h"
#include "shim/guard/elf/own_files.h"
#include "shim/guard/rules/rule_files.h"
#include "shim/guard/state/inherited.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/record.h"

namespace cudaguard {

namespace {

constexpr int kOpenFact = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

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
  char args[kMostArgs];
  char cgroup[kMostCgroups];
  uint32_t groups[1 + 65536];  // one more than Linux allows
  char users[kMostNames];
  char group_names[kMostNames];

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

/// True if the number may stand for another one. The kernel shows this number for each user and
/// group that a user namespace does not map; the machine's own namespace maps all.
bool is_unmapped(uint32_t number, const char* map) {
  constexpr uint32_t kOverflow = 65534;
  if (number != kOverflow) return false;
  char text[64];
  return read_fact(map, text, sizeof text).text.find("4294967295") == std::string_view::npos;
}

void FactsRoom::add_groups() {
  groups[0] = static_cast<uint32_t>(sys::call(SYS_getgid));
  constexpr size_t kMost = sizeof groups / sizeof groups[0] - 1;
  const long count = sys::call(SYS_getgroups, kMost, sys::word(groups + 1));
  if (count < 0) return;
  facts.groups = {groups, static_cast<size_t>(count) + 1};
  facts.knows_groups = true;
  for (const uint32_t group : facts.groups) {
    if (is_unmapped(group, "/proc/self/gid_map")) facts.knows_groups = false;
  }
}

void FactsRoom::add(std::string_view rules, RuleSource source) {
  const uint32_t asked = keys_of(rules, source);
  const auto is_new = [&](RuleKey key) { return (asked & ~keys & bit_of(key)) != 0; };
  if (is_new(RuleKey::kProgram)) add_program();
  if (is_new(RuleKey::kArgs)) {
    facts.args = read_fact("/proc/self/cmdline", args, sizeof args);
    // It is empty after the process's first thread has ended.
    facts.args.known = !facts.args.text.empty();
  }
  if (is_new(RuleKey::kCgroup)) {
    facts.cgroup = read_fact("/proc/self/cgroup", cgroup, sizeof cgroup);
  }
  if (is_new(RuleKey::kUser)) {
    // The real user has started the process. The effective one is root in a setuid program.
    facts.user = static_cast<uint32_t>(sys::call(SYS_getuid));
    facts.knows_user = !is_unmapped(facts.user, "/proc/self/uid_map");
  }
  if (is_new(RuleKey::kGroup)) add_groups();
  keys |= asked;
  if (!has_users && names_by_word(rules, source, RuleKey::kUser)) {
    facts.user_file = read_fact(kUserFile, users, sizeof users);
    has_users = true;
  }
  if (!has_group_names && names_by_word(rules, source, RuleKey::kGroup)) {
    facts.group_file = read_fact(kGroupFile, group_names, sizeof group_names);
    has_group_names = true;
  }
}

/// True if a variable loads code of the user's into this process.
bool loads_other_code_here() {
  char** entries = kernel_environment();
  if (entries == nullptr) return true;
  for (; *entries != nullptr; ++entries) {
    for (const char* name : kLoadingVariables) {
      const char* value = value_of(*entries, name);
      if (value != nullptr && loads_other_code(name, value)) return true;
    }
  }
  return false;
}

/// True in the launcher's probe, which only asks the driver and prints its answer. It is the file
/// that is installed with this guard, and root's as the guard of a machine is.
bool is_own_probe() {
  constexpr std::string_view kName = "cudaguard-probe";
  char program[1024];
  const long length = sys::readlink("/proc/self/exe", program, sizeof program);
  if (length <= 0 || static_cast<size_t>(length) == sizeof program) return false;
  const std::string_view path(program, static_cast<size_t>(length));
  if (base_name(path) != kName) return false;
  const sys::Mapped<PathRoom> room;
  if (!room) return false;
  OwnPath own(*room, sizeof *room);
  struct stat status = {};
  return own.set_real_directory() && path == own.file(kName) &&
         sys::stat(own.file(kName), &status) == 0 && status.st_uid == 0 &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && !loads_other_code_here();
}

/// Needed only while the files are read.
struct WorkRoom {
  FactsRoom room;
  RuleEntries entries;
};

/// What is kept, because the ruling points into it.
struct MachineFile {
  MachineRuling said;
  char place[sizeof RuleTexts::path + 24];
  RuleTexts texts;
};

void read_rules(MachineFile& to, WorkRoom& work, int file) {
  RuleFiles files(to.texts, work.entries, file);
  while (files.next()) {
    work.room.add(files.text(), RuleSource::kFile);
    add_rules_of_file(to.said, to.place, files.path(), files.text(), work.room.facts);
  }
  to.said.unusable = files.why_unusable();
  if (to.said.unusable != nullptr) to.said.file = to.said.place = files.path();
}

// Neither has a text of its own.
constexpr MachineRuling kAbsent = {};
constexpr MachineRuling kUnread = {{}, kRuleFile, kRuleFile, kNotRead};

/// Reads the files. Returns kAbsent, kUnread or a MachineFile's.
const MachineRuling* read_files() {
  const int fd = RuleFiles::open();
  if (fd < 0) {
    if (fd == -ENOENT) return &kAbsent;
    // There may be no free descriptor, or a filter of the program refuses the call.
    struct stat status = {};
    if (sys::lstat(kRuleFile, &status) == -ENOENT) return &kAbsent;
  }
  if (is_own_probe()) {
    if (fd >= 0) sys::close(fd);
    return &kAbsent;
  }
  auto* file = static_cast<MachineFile*>(sys::map(sizeof(MachineFile)));
  const sys::Mapped<WorkRoom> work;
  if (file == nullptr || !work) {
    if (file != nullptr) sys::unmap(file, sizeof *file);
    if (fd >= 0) sys::close(fd);
    return &kUnread;
  }
  new (&file->said) MachineRuling;
  read_rules(*file, *work, fd);
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

namespace {

Ruling rule_now(const Environment& environment) {
  const sys::Mapped<FactsRoom> room;
  if (!room) return rule_for(environment, {});
  room->add(environment.rules, RuleSource::kVariable);
  return rule_for(environment, room->facts);
}

}  // namespace

Decision decide_with_rules(const Environment& environment, const ProcessIdentity& process) {
  RuleInputs rules = {.machine = machine_ruling()};
  const bool ruled = environment.rules != nullptr && !process.privileged;
  if (!ruled) return decide(environment, rules, process);
  const Ruling* known = inherited.ruling.load(std::memory_order_acquire);
  if (known == nullptr) {
    const Ruling now = rule_now(environment);
    void* const page = sys::map(sizeof now);
    if (page == nullptr) {
      rules.known = &now;
      return decide(environment, rules, process);
    }
    const auto* made = new (page) Ruling(now);
    // Another thread may have been faster.
    if (inherited.ruling.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
      known = made;
    } else {
      sys::unmap(page, sizeof now);
    }
  }
  rules.known = known;
  return decide(environment, rules, process);
}

}  // namespace cudaguard
