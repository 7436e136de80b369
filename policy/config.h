// SPDX-License-Identifier: Apache-2.0
// The configuration: the meaning of the CUDAGUARD_* variables. Pure functions over strings: no I/O,
// no globals, no allocation; thread-safe, async-signal-safe, callable before constructors. A bad
// value never makes the guard weaker than the user has requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "policy/device_list.h"
#include "policy/process_rules.h"
#include "policy/rules.h"
#include "policy/variables.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class Log : uint8_t {
  kOff,    ///< no message
  kError,  ///< messages about errors, but none about a denied attempt
  kDeny,   ///< the default: one message per process, at its first denied attempt
  kAll,    ///< one message per distinct attempt
};

/// The words of CUDAGUARD_CHILDREN, in their order.
enum class Children : uint8_t {
  kForceCpu,  ///< only the root may use CUDA
  kOnly,      ///< only the root's descendants may
  kAsRoot,    ///< unset
};

/// There is at most one complaint per variable.
inline constexpr size_t kMostComplaints = std::size(kVariables);

/// Each default is zero, because a Config is in pages that the kernel wipes
/// (shim/state/process.cpp).
struct Config {
  Policy policy = Policy::kForceCpu;
  Log log = Log::kOff;
  bool privileged = false;
  bool in_run = false;              ///< inside a `cudaguard run`, except one with OFF
  bool fenced = false;              ///< and under its --fence, which is permanent
  bool children_by_option = false;  ///< CUDAGUARD_CHILDREN is of `run --children`
  bool unhealthy = false;           ///< `run --if-healthy` has found that the driver does not work
  /// Why FORCE_CPU applies, as a clause, if the user has not named it; otherwise empty.
  std::string_view because;
  bool may_lift = false;  ///< that is a rule of the machine that a variable may lift
  /// The rule of CUDAGUARD_RULES for this process, if `because` is kIsRuled.
  std::string_view rule;
  /// The rule that gives the policy: "/etc/cudaguard.conf:7", or a rule of CUDAGUARD_RULES. Empty
  /// if no rule does.
  std::string_view decided_by;
  RuleMistake rule_mistake;      ///< of a rule (FORCE_CPU applies)
  std::string_view rule_place;   ///< "/etc/cudaguard.conf:7" or "CUDAGUARD_RULES"
  UnknownName unknown_name;      ///< because of which FORCE_CPU applies
  std::string_view unused_file;  ///< of the machine (FORCE_CPU applies); empty if all are good
  const char* why_unused = nullptr;
  std::string_view report;  ///< points into the Environment; empty: no report
  GivenList allow_list;
  ListError list_error;                     ///< of a given list that is wrong (FORCE_CPU applies)
  std::string_view bad_list;                ///< that list, cut if it is too long
  Children children = Children::kForceCpu;  ///< not used under FORCE_CPU
  /// The policy by which libraries are loaded. The root of Children::kOnly refuses CUDA, but loads
  /// what its forked children need: ld.so cannot replace a null driver later.
  Policy loads = Policy::kForceCpu;
  bool forked_child = false;  ///< a fork of a process that had CUDAGUARD_CHILDREN, too
  uint32_t root = 0;          ///< CUDAGUARD_ROOT, a process id; 0: not given
  /// The PID namespace of that number, as readlink shows it: "pid:[4026531836]". Empty if not
  /// given; points into the environment.
  std::string_view root_namespace;
  Complaint complaints[kMostComplaints];
  size_t complaint_count = 0;
};

/// The identity of a process under CUDAGUARD_CHILDREN. The number alone does not
/// distinguish the root from a process with the same number in another PID namespace.
struct Place {
  uint32_t pid = 0;
  std::string_view pid_namespace;  ///< read only if the root's is known
};

/// Config::because of a process that is one of the children, and of the root of Children::kOnly.
inline constexpr char kIsChild[] = "CUDAGUARD_CHILDREN=FORCE_CPU";
inline constexpr char kIsParent[] = "CUDAGUARD_CHILDREN=ONLY";
/// Config::because if the rule for this process, in CUDAGUARD_RULES, says FORCE_CPU.
inline constexpr char kIsRuled[] = "rule";

/// What the machine's file says about this process. Its texts outlive the Config.
struct MachineRuling {
  Ruling ruling;
  std::string_view place;          ///< "/etc/cudaguard.conf:7"; what to print as the cause
  std::string_view file;           ///< the file that is not used
  const char* unusable = nullptr;  ///< why: "root does not own it"
};

/// Adds what a file's rules say about a process: the last rule of the last file decides. `place` is
/// room for MachineRuling::place. If no rule matches, that is "no rule of" the first file.
void add_rules_of_file(MachineRuling& machine, std::span<char> place, std::string_view path,
                       std::string_view text, const RuleFacts& facts);

/// True if CUDAGUARD_CHILDREN narrows this process to FORCE_CPU.
bool is_narrowed(const Config& config, const Place& place);
/// Sets FORCE_CPU for such a process, and Config::loads for each one.
void apply_children_rule(Config& config, const Place& place);
/// Sets FORCE_CPU and the reason, which is no rule.
void narrow_to_cpu(Config& config, std::string_view because);

/// `facts` are those for which the rules of the environment ask (keys_of). `machine` is null if the
/// machine has no file.
Config parse_config(const Environment& environment, const RuleFacts& facts = {},
                    const MachineRuling* machine = nullptr);

/// True if an attempt of a new kind gets a message. `first`: it is the first of the process.
bool wants_line(Log log, bool first);

}  // namespace cudaguard
