// SPDX-License-Identifier: Apache-2.0
// Every sentence that a guarded process may write. Only formats; writes nothing. Pure; thread-safe,
// async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/device_list.h"
#include "policy/text.h"
#include "policy/unusable.h"
#include "shim/guard/text/attempt.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Complaint;
struct ListError;
struct RuleMistake;
struct UnknownName;

// Clauses from which the guard and the launcher make their sentences.

/// Writes `entry 2 "x" is not accepted (accepted: index, GPU-..., MIG-...)`. `count` is the number
/// of the machine's GPUs, if the error is about them.
Text& put_list_error(Text& out, const ListError& error, size_t count);
/// Writes "is not accepted (accepted: off, error, deny, all)", without what applies now.
Text& put_complaint(Text& out, const Complaint& complaint);
/// Writes `"VALIDATES" is not accepted (accepted: FORCE_CPU, VALIDATE, ...)`, for a file and
/// for `run --rule` alike.
Text& put_rule_mistake(Text& out, const RuleMistake& mistake);
// What put_report_error() takes besides errno values.
inline constexpr int kAnothersFile = 0x1001;
inline constexpr int kUnsafeDirectory = 0x1002;
/// Writes "Is a directory (accepted: a file, ...)", "Permission denied; name a file or ...".
Text& put_report_error(Text& out, int error);

// The guard's sentences. Each is a message between begin_line and "\n".

/// Writes "cudaguard[7]: ".
Text& begin_line(Text& out, uint32_t pid);

/// Writes the code that a message names: "ppo.py:159 through libfoo.so", or "libfoo.so in python3
/// -m pkg" if Python's frames are not known.
Text& put_call_site(Text& out, const Attempt& attempt);

/// Facts for the message that CUDA, NVML or OpenCL was refused. It names the cause and the call
/// site. Under CUDAGUARD_LOG=all the message names the call. The advice works in the place where
/// the message is read. A privileged process gets no advice. There is none either if another
/// message has given the cause.
struct DeniedFacts {
  uint32_t pid = 0;
  std::string_view because;  ///< Decision's: why this policy applies
  std::string_view rule;     ///< if the cause is a rule of CUDAGUARD_RULES
  const Attempt& attempt;
  bool names_call = false;  ///< CUDAGUARD_LOG=all
  bool is_child = false;    ///< the cause is CUDAGUARD_CHILDREN, which favours the first process
  bool is_parent = false;   ///< the cause is CUDAGUARD_CHILDREN, which favours the descendants
  bool may_lift = false;    ///< Decision's, as all that follow
  bool privileged = false;
  bool in_run = false;
  bool fenced = false;
  bool children_by_option = false;
  bool unhealthy = false;
  uint32_t first_process = 0;
};
void write_denied(Text& out, const DeniedFacts& facts);

/// Writes, under CUDAGUARD_LOG=all: "context on device 1 (policy VALIDATE; cuCtxCreate_v2 asked by
/// libfoo.so)".
void write_allowed(Text& out, Policy policy, const Attempt& attempt);

// The messages name the list as the user has given it: `by` is Decision's.

/// A mistake in an allow-list.
struct ListErrorFacts {
  std::string_view list;
  const ListError& error;
  size_t count = 0;  ///< as in put_list_error
  ListBy by = ListBy::kVariable;
  std::string_view place = {};  ///< as in GivenList, also below
};
void write_list_error(Text& out, const ListErrorFacts& facts);

/// The allow-list cannot be enforced; `why` follows its name.
struct NotEnforcedFacts {
  const char* why;
  ListBy by = ListBy::kVariable;
  std::string_view place = {};
};
void write_not_enforced(Text& out, const NotEnforcedFacts& facts);

/// The allow-list is good, but there is no GPU to show: "NVIDIA's driver cannot be loaded".
struct ListInVainFacts {
  std::string_view list;
  const char* why;
  ListBy by = ListBy::kVariable;
  int error = 0;  ///< cuInit's answer, if `why` is about it
  std::string_view place = {};
};
void write_list_in_vain(Text& out, const ListInVainFacts& facts);

/// A device index that does not exist.
struct IndexFacts {
  const Attempt& site;  ///< what put_call_site() needs
  std::string_view api = {};
  int asked = 0;
  int count = 0;                    ///< visible devices; 0: not known
  int used = -1;                    ///< under CLAMP: the index that was used instead
  int meant = -1;                   ///< "did you mean"
  std::string_view are = {};        ///< the names of 0 to count-1, comma separated; may be empty
  std::string_view are_whose = {};  ///< "GPUs " or "CUDA_VISIBLE_DEVICES="
};
void write_bad_index(Text& out, const IndexFacts& facts);

/// CUDA_VISIBLE_DEVICES was changed after the number of GPUs had been reported to the program. If
/// `api` is empty, the variable has left out GPUs of the allow-list since the start.
struct LateWriteFacts {
  bool was_set = false;
  std::string_view was;
  bool is_set = false;
  std::string_view is;
  std::string_view api;       ///< the call that reported the number or read the variable
  std::string_view by;        ///< its call site, as put_call_site() has written it; may be empty
  unsigned reported = 0;      ///< the number of GPUs that it reported
  bool read_already = false;  ///< the change came after cuInit
  unsigned sees = 0;          ///< otherwise: the number that CUDA sees now
  std::string_view left;      ///< the machine's numbers of these GPUs: "4,5"; may be empty
  unsigned gpus = 0;          ///< of the machine; 0: not known
  std::string_view allow_list;
  ListBy list_by = ListBy::kVariable;
  bool in_run = false;  ///< Decision's: the advice is an option, not a variable
};
void write_late_write(Text& out, const LateWriteFacts& facts);

/// A forked child uses CUDA after its parent has initialised it.
struct ForkFacts {
  std::string_view api;       ///< the child's call
  uint32_t parent = 0;        ///< process id
  std::string_view by;        ///< the call site that initialised it there, as above
  uint64_t milliseconds = 0;  ///< before this call; the time before the fork is not known
};
void write_fork_poison(Text& out, const ForkFacts& facts);

/// NVIDIA's OpenCL was refused under an allow-list or NO_CONTEXT.
struct NoOpenClFacts {
  const Attempt& site;
  std::string_view limit;  ///< the list as the user has given it, or NO_CONTEXT
};
void write_no_opencl(Text& out, const NoOpenClFacts& facts);

/// A file of the machine's rules, and why it is not used.
struct UnusedFileFacts {
  std::string_view file;
  const char* why;
};
void write_unused_file(Text& out, const UnusedFileFacts& facts);

/// A rule that is not accepted, in CUDAGUARD_RULES or at "/etc/cudaguard.conf:7".
struct RuleMistakeFacts {
  std::string_view place;
  const RuleMistake& mistake;
};
void write_rule_mistake(Text& out, const RuleMistakeFacts& facts);

/// A name of a rule that no file knows.
void write_unknown_name(Text& out, const UnknownName& unknown);

void write_complaint(Text& out, const Complaint& complaint);

/// A file of cudaguard that cannot be used.
struct MissingFacts {
  std::string_view file;
  Unusable why;
  const char* instead;  ///< what happens now
};
void write_missing(Text& out, const MissingFacts& facts);

/// A library in the place of NVIDIA's that has nothing to call.
struct StubFacts {
  std::string_view file;
  const char* function;
  bool denies;  ///< FORCE_CPU applies
};
void write_stub(Text& out, const StubFacts& facts);

/// `library` is the path of NVIDIA's library, whose symbols the guard could not change.
void write_exposed(Text& out, std::string_view library);

void write_report_failed(Text& out, std::string_view path, int error);

/// Calls a write function for a caller that passes the facts by address.
template <auto kWrite, typename Facts>
void write_line_of(Text& out, const void* facts) {
  kWrite(out, *static_cast<const Facts*>(facts));
}

}  // namespace cudaguard
