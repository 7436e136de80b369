// SPDX-License-Identifier: Apache-2.0
// What the machine's rules (/etc/cudaguard.conf) give a process. The guard's own code reads the
// files and decides.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/process_rules.h"
#include "policy/variables.h"
#include "shim/launcher/elf/program.h"

namespace cudaguard::launcher {

/// A process for which to ask. If a fact is missing, the rules do not know it, and the answer is
/// the one that allows less.
struct AskedProcess {
  std::optional<std::string> program;  ///< the path of the executable, without links
  std::optional<std::string> args;     ///< the command line
  std::optional<std::string> cgroups;  ///< in the form of /proc/self/cgroup
  std::optional<uint32_t> user;
  std::optional<std::vector<uint32_t>> groups;
};

/// What such a process gets.
struct RuleAnswer {
  std::string policy;
  std::string place;  ///< "/etc/cudaguard.conf:7" or "no rule of /etc/cudaguard.conf"
  std::string rule;   ///< as written; empty if none decides
  std::string by;     ///< what gives OFF: the place, or a variable
  std::string gpus;   ///< empty: all, if the policy allows some
  std::string log;
  std::string report;  ///< empty: none
  bool may_widen = false;
  bool may_be_off = false;  ///< the policy is another one, but may be OFF
  std::string unsure;       ///< why it is not known whether a rule matches; empty if it is known
};

/// The beginning of a file, as much as the guard reads of /etc/passwd, and a byte more if there is
/// one. Empty if it cannot be read.
std::string beginning_of(const char* path);
/// The fact of /etc/passwd or /etc/group that the guard has by this text, which must outlive it.
RuleFact fact_of_names(const std::string& text);

class MachineRules {
 public:
  /// Reads the machine's files.
  MachineRules();
  /// Reads this file alone, whoever owns it. Throws Refusal.
  explicit MachineRules(const std::string& path);

  /// False if there is no file.
  bool exist() const { return !files_.empty() || !unusable_.empty(); }
  /// True if a rule has report=.
  bool name_report() const;
  /// Each is a sentence of the guard or a warning, with the file and the line, or says who cannot
  /// read a file. None if there is no file.
  std::vector<std::string> mistakes() const;
  /// The sentence that says what a process gets if no rule has a condition that it fulfils.
  std::string for_others() const;
  /// That mistake of mistakes() which leaves this open. Empty if a rule says it.
  std::string no_default() const;
  /// "/etc/cudaguard.conf: 3 rules" for each file that is used.
  std::vector<std::string> summary() const;
  /// What the guard gives a process with these variables, also if there is no file.
  RuleAnswer answer(const AskedProcess& process, const Environment& environment = {}) const;

 private:
  struct File {
    std::string path;
    std::string text;
  };
  /// A file or directory that some users cannot read.
  struct Closed {
    std::string path;
    mode_t rights;  ///< that others would need
    mode_t mode;
    gid_t group;
  };
  void for_each(const std::function<void(const std::string&, const ProcessRule&)>& take) const;
  void note_unreadable(const std::string& path, mode_t rights);
  const Closed* closed_to(const AskedProcess& process) const;
  bool may_be_off(const RuleFacts& facts, const Environment& environment) const;

  std::vector<File> files_;
  std::string unusable_;  ///< the file or directory that cannot be used
  const char* why_ = nullptr;
  std::vector<Closed> closed_;  ///< in the order in which the guard opens them
};

/// The user and groups of a name or number, by /etc/passwd and /etc/group. Throws Refusal if there
/// is no such name.
void add_user(const std::string& name, AskedProcess& process);
void add_group(const std::string& name, AskedProcess& process);

/// What is known about a program that this process would start.
AskedProcess started_here(const Program& program);
/// The executable that runs in the end, a script's interpreter, without links.
std::string executable_of(const Program& program);

}  // namespace cudaguard::launcher
