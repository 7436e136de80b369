// SPDX-License-Identifier: Apache-2.0
// Rules by program: which policy a process gets, by its executable, command line, user, groups and
// cgroup. The machine's file, CUDAGUARD_RULES and `run --rule` have the same grammar:
//
//   VALIDATE program=/usr/bin/nvidia-smi group=gpu gpus=0,1   # a comment
//   FORCE_CPU args="*jupyter lab*"
//
// The last rule that matches decides. If it is not known whether a rule matches, the narrower of
// both cases counts, so a fact that cannot be read never widens. A name that is in no file belongs
// to no process whose own user or groups have other names there; only a directory service, or
// nothing, knows it. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "policy/device_list.h"
#include "policy/policies.h"
#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

enum class RuleKey : uint8_t {
  kProgram,      ///< a glob: the executable's path, or without a slash its base name
  kArgs,         ///< a glob: the command line, its words joined by a blank
  kUser,         ///< a name or number: the real user
  kGroup,        ///< a name or number: one of the process's groups
  kCgroup,       ///< a glob: the paths in /proc/self/cgroup
  kGpus,         ///< an allow-list
  kLog,          ///< a word of CUDAGUARD_LOG
  kReport,       ///< an absolute path, or syslog:
  kEnvironment,  ///< may-widen: the variables may allow more than the rule
};
/// The keys before it are conditions.
inline constexpr RuleKey kFirstAction = RuleKey::kGpus;
inline constexpr char kRuleKeys[][12] = {"program", "args", "user",   "group",      "cgroup",
                                         "gpus",    "log",  "report", "environment"};
/// The one value of environment=.
inline constexpr char kMayWiden[] = "may-widen";
/// The files that know the names of user= and group=.
inline constexpr char kUserFile[] = "/etc/passwd";
inline constexpr char kGroupFile[] = "/etc/group";
constexpr uint32_t bit_of(RuleKey key) { return 1U << static_cast<uint32_t>(key); }

enum class RuleSource : uint8_t {
  kFile,      ///< may have environment=
  kOption,    ///< run --rule
  kVariable,  ///< may have "&", and one mistake means that no rule can be trusted
};

struct RuleMistake {
  enum class Why : uint8_t {
    kNone,
    kPolicy,       ///< the first word is no policy
    kWord,         ///< is not key=value
    kKey,          ///< there is no such key
    kTwice,        ///< the key is given twice
    kEmpty,        ///< the key has no value
    kQuote,        ///< a quote that is not around the whole value
    kSingleQuote,  ///< the value begins with a single quote
    kHash,         ///< a # in a value without quotes, which is no comment
    kControl,      ///< a control character in the line, or a CR that is not before its end
    kByteOrderMark,
    kGpusInVain,   ///< gpus= with FORCE_CPU or OFF
    kNoGpu,        ///< gpus=-1
    kGpus,         ///< `list` has the mistake
    kNumber,       ///< no user or group can have this number
    kLog,          ///< no such level
    kReport,       ///< neither an absolute path of a usable length nor syslog:
    kEnvironment,  ///< not may-widen
    kFileOnly,     ///< environment= outside of the machine's file
    kNoRule,       ///< nothing follows "&"
  };
  Why why = Why::kNone;
  RuleKey key = RuleKey::kProgram;
  std::string_view word;  ///< the policy, the word or the value
  ListError list;
};

/// One rule of a text.
struct ProcessRule {
  std::string_view text;     ///< the rule as written
  size_t line = 0;           ///< of the text, from 1
  bool begins_list = false;  ///< comes after "&"
  Policy policy = Policy::kForceCpu;
  uint32_t given = 0;  ///< bits of RuleKey
  std::string_view values[std::size(kRuleKeys)];
  RuleMistake mistake;

  bool has(RuleKey key) const { return (given & bit_of(key)) != 0; }
  std::string_view value(RuleKey key) const { return values[static_cast<size_t>(key)]; }
};

/// Where the reader is in a text.
struct RuleText {
  std::string_view rest;
  RuleSource source = RuleSource::kFile;
  size_t line = 1;
  size_t clean_line = 0;  ///< the line that is known to have no control character
};

/// Takes the next rule. Rules are separated by newlines and semicolons. After a mistake, the text
/// goes on with the next line. Returns false at the end.
bool take_rule(RuleText& text, ProcessRule& rule);

/// Returns bits of RuleKey: what the rules of this text ask of a process.
uint32_t keys_of(std::string_view text, RuleSource source);
/// True for a number that no user or group can have: "-1", "4294967295". False for a name.
bool is_impossible_number(std::string_view value);
/// True if a rule names a user or group by its name, so that RuleFacts::names_of_… are needed.
bool names_by_word(std::string_view text, RuleSource source, RuleKey key);

/// Something that a rule may ask.
struct RuleFact {
  std::string_view text;
  bool known = false;
  bool cut = false;  ///< the text goes on
};

struct RuleFacts {
  RuleFact program;     ///< the path of the executable
  RuleFact args;        ///< words, each ended by a zero byte, as in /proc/self/cmdline
  RuleFact cgroup;      ///< /proc/self/cgroup
  RuleFact user_file;   ///< kUserFile
  RuleFact group_file;  ///< kGroupFile
  bool knows_user = false;
  uint32_t user = 0;
  bool knows_groups = false;
  std::span<const uint32_t> groups;
};

/// Removes a line of /proc/self/cgroup, and returns its path: "4:cpu,cpuacct:/user.slice".
std::string_view take_cgroup(std::string_view& lines);

/// True if the glob matches the whole text: *, ?, [a-z], [!a-z]. The star also matches a slash, and
/// zero bytes match a blank. `steps` is how many bytes of the pattern were read: at most about the
/// product of both lengths.
bool matches_glob(std::string_view pattern, std::string_view text, size_t* steps = nullptr);

/// A name that no file knows: user="ci".
struct UnknownName {
  RuleKey key = RuleKey::kProgram;  ///< kUser or kGroup
  std::string_view name;            ///< empty: there is none
};
constexpr const char* file_of_names(RuleKey key) {
  return key == RuleKey::kUser ? kUserFile : kGroupFile;
}

/// What the rules say about a process.
struct Ruling {
  bool decided = false;  ///< a rule matches, or may match
  bool unsure = false;   ///< it is not known whether it does
  UnknownName unknown;   ///< why that is not known, if it is a name
  Policy policy = Policy::kForceCpu;
  std::string_view gpus;   ///< an allow-list without a mistake; empty: all GPUs
  bool may_widen = false;  ///< environment=may-widen
  int log = -1;            ///< the place among CUDAGUARD_LOG's words; -1: not given
  std::string_view report;
  size_t line = 0;  ///< of the deciding rule
  std::string_view rule;
  RuleMistake mistake;  ///< of the deciding rule: FORCE_CPU applies
  bool split = false;   ///< FORCE_CPU applies because of two lists, of which neither has the other
};

/// Returns the one that allows less; `one` if both allow the same. The result has the entries of
/// both lists, so it allows nothing that one of the two does not allow.
Ruling narrower(const Ruling& one, const Ruling& other);

/// Returns what the last rule that matches says, or `otherwise` if none does.
Ruling decide_by_rules(std::string_view text, RuleSource source, const RuleFacts& facts,
                       const Ruling& otherwise);

}  // namespace cudaguard
