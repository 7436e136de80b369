// SPDX-License-Identifier: Apache-2.0
// The decision about a process: which policy applies and why, from the CUDAGUARD_* variables, the
// rules, and what the process is. It is made once, when a process is made ready. Pure functions
// over strings: no I/O, no globals, no allocation; thread-safe, async-signal-safe, callable before
// constructors. A bad value never makes the guard weaker than the user has requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "policy/device_list.h"
#include "policy/policies.h"
#include "policy/process_rules.h"
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
  kForceCpu,      ///< only the first process may use CUDA
  kOnly,          ///< only its descendants may
  kNoContext,     ///< only the first process may make contexts; its descendants may query
  kOnlyContexts,  ///< only its descendants may make contexts; the first process may query
  kUnset,         ///< the variable is not set
};
/// The words of `run --children`, in the same order.
inline constexpr char kChildrenWords[][9] = {"cpu", "gpu", "query", "contexts"};
/// True if the first process gets less than its descendants.
constexpr bool favours_descendants(Children children) {
  return children == Children::kOnly || children == Children::kOnlyContexts;
}

/// What is wrong with the variables and the rules. FORCE_CPU applies because of all but some
/// complaints.
struct Mistakes {
  RuleMistake rule;
  std::string_view rule_place;  ///< "/etc/cudaguard.conf:7" or "CUDAGUARD_RULES"
  UnknownName unknown_name;
  std::string_view unused_file;  ///< of the machine; empty if all are good
  const char* why_unused = nullptr;
  ListError list;             ///< of a given list
  std::string_view bad_list;  ///< that list, cut if it is too long
  /// There is at most one complaint per variable.
  Complaint complaints[std::size(kVariables)];
  size_t complaint_count = 0;
};

/// Each default is zero, because a Decision is in pages that the kernel wipes
/// (shim/guard/state/process.h).
struct Decision {
  Policy calls = Policy::kForceCpu;  ///< the policy by which calls are answered
  /// The policy by which libraries are loaded. It is another one only in the first process of
  /// Children::kOnly, which refuses CUDA, but loads what its forked children need: ld.so cannot
  /// replace a null driver later.
  Policy loads = Policy::kForceCpu;
  Log log = Log::kOff;
  Children children = Children::kForceCpu;  ///< not used under FORCE_CPU
  GivenList allow_list;
  std::string_view report;  ///< points into the Environment; empty: no report
  /// Why FORCE_CPU or NO_CONTEXT applies, as a clause, if the user has not named it; otherwise
  /// empty.
  std::string_view because;
  bool may_lift = false;  ///< that is a rule of the machine that a variable may lift
  /// The rule of CUDAGUARD_RULES for this process, if `because` is kIsRuled.
  std::string_view rule;
  /// The rule that gives the policy: "/etc/cudaguard.conf:7", or a rule of CUDAGUARD_RULES. Empty
  /// if no rule does.
  std::string_view decided_by;
  bool privileged = false;
  bool in_run = false;              ///< inside a `cudaguard run`, except one with OFF
  bool fenced = false;              ///< and under its --fence, which is permanent
  bool children_by_option = false;  ///< CUDAGUARD_CHILDREN is of `run --children`
  bool unhealthy = false;           ///< `run --if-healthy` has found that the driver does not work
  uint32_t first_process = 0;       ///< CUDAGUARD_ROOT, a process id; 0: not given
  Mistakes mistakes;
};

/// What the decision depends on, apart from variables and rules.
struct ProcessIdentity {
  /// 0: not known. The decision is then that of a process that CUDAGUARD_CHILDREN does not narrow.
  uint32_t pid = 0;
  /// The number alone does not distinguish the first process from one with the same number in
  /// another PID namespace. Needed only if namespace_of_first_process() has a text.
  std::string_view pid_namespace = {};
  bool forked = false;      ///< the parent, which forked this process, had the same variables
  bool privileged = false;  ///< AT_SECURE: ignore the environment, which another user controls
};

/// Decision::because of a process that Children narrows, in the same order: the children, the first
/// process, and both of them again.
inline constexpr char kIsChild[] = "CUDAGUARD_CHILDREN=FORCE_CPU";
inline constexpr char kIsParent[] = "CUDAGUARD_CHILDREN=ONLY";
inline constexpr char kIsQueryChild[] = "CUDAGUARD_CHILDREN=NO_CONTEXT";
inline constexpr char kIsQueryParent[] = "CUDAGUARD_CHILDREN=ONLY_CONTEXTS";
/// Decision::because if the rule for this process, in CUDAGUARD_RULES, says FORCE_CPU or
/// NO_CONTEXT.
inline constexpr char kIsRuled[] = "rule";

/// What the machine's file says about this process. Its texts outlive the Decision.
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

struct RuleInputs {
  RuleFacts facts = {};                    ///< for which the rules of the environment ask (keys_of)
  const MachineRuling* machine = nullptr;  ///< null if the machine has no file
  /// What the rules of the environment have said earlier; null: decide() asks them.
  const Ruling* known = nullptr;
};

Decision decide(const Environment& environment, const RuleInputs& rules = {},
                const ProcessIdentity& process = {});

/// Returns what the rules of the environment say, for RuleInputs::known.
Ruling rule_for(const Environment& environment, const RuleFacts& facts);

/// True if CUDAGUARD_CHILDREN is given, so that decide() needs the identity of the process.
bool names_children(const Environment& environment);
/// Returns the PID namespace of CUDAGUARD_ROOT, as readlink shows it: "pid:[4026531836]". Empty if
/// none is given.
std::string_view namespace_of_first_process(const Environment& environment);

/// True if an attempt of a new kind gets a message. `first`: it is the first of the process.
bool wants_line(Log log, bool first);

}  // namespace cudaguard
