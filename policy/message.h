// SPDX-License-Identifier: Apache-2.0
// Every sentence and every record that a guarded process may write. Formats only; writes nothing.
// Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/config.h"
#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// One line is one write; longer ones would interleave on a pipe (POSIX PIPE_BUF on Linux).
inline constexpr size_t kMaxLine = 4096;
/// One record in a report file.
inline constexpr size_t kMaxRecord = 65536;

/// A place in the code: the file that is mapped there and the offset in that file.
struct CodePlace {
  std::string_view module;  ///< full path; empty: not a file
  uint64_t offset = 0;      ///< bytes from the start of the file
};

/// What was allowed; kNone: it was denied; kStart: nobody asked, the process has begun.
enum class EventKind : uint8_t { kNone, kInit, kContext, kSelect, kNvml, kWork, kStart };

/// A frame of Python's.
struct PythonFrame {
  std::string_view file;  ///< co_filename
  std::string_view function;
  unsigned line = 0;
};

/// The thread's Python frames, innermost first. Large: in pages of its own.
struct Stack {
  static constexpr unsigned kMostPython = 48;
  const char* python_missing;  ///< why there is none
  unsigned python_count;
  unsigned shown;   ///< the frame that the message names; kMostPython: none is worth it
  bool python_cut;  ///< there are more
  PythonFrame python[kMostPython];

  /// What the message names; null: it names the command.
  const PythonFrame* named() const { return shown < python_count ? &python[shown] : nullptr; }
};

/// Somebody asked for the driver.
struct Touch {
  std::string_view api;  ///< "cuInit", "nvmlInit_v2", "dlopen"
  /// For dlopen: the name or path that was asked for. For an init: what the driver was told to
  /// show.
  std::string_view object;
  std::string_view program;  ///< the process's arguments, as ProcessFacts has them
  EventKind event = EventKind::kNone;
  int device = -1;  ///< the index of a context or selection
  int result = -1;  ///< of an init or of NVML's: what it answered; -1: none of these
  Policy policy = Policy::kForceCpu;  ///< of kStart
  CodePlace caller;
  const Stack* stack = nullptr;  ///< null: not known
};

struct ProcessFacts {
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  uint32_t thread_id = 0;
  uint64_t seconds = 0;       ///< since 1970-01-01 UTC
  uint32_t microseconds = 0;  ///< 0..999999
  uint32_t uid = 0;           ///< the effective one
  std::string_view executable;
  std::string_view arguments;  ///< as /proc/self/cmdline: each ends in a zero byte
  std::string_view host;
  std::string_view cgroup;  ///< as cgroup_of has it
  std::string_view slurm;   ///< the job's number
};

/// The path that says most, the longest, of what /proc/self/cgroup has. (Version 2 has one line,
/// "0::/system.slice/x.service"; version 1 has a path for each controller, and a batch system
/// divides some of them.)
std::string_view cgroup_of(std::string_view lines);

// Clauses, from which the guard and the launcher put their sentences together.

/// `entry 2 "x" is not accepted (accepted: index, GPU-..., MIG-...)`. `count`: the machine's GPUs,
/// where the error is about them.
Text& put_list_error(Text& out, const ListError& error, size_t count);
/// "is not accepted (accepted: off, error, deny, all)"; without what applies now.
Text& put_complaint(Text& out, const Complaint& complaint);
/// "Permission denied (accepted: a file or /dev/stderr)". `error` is an errno value.
Text& put_report_error(Text& out, int error);

// The guard's sentences. Each is a line between begin_line and "\n".

/// "cudaguard[7]: "
Text& begin_line(Text& out, uint32_t pid);

/// "no CUDA here (FORCE_CPU; asked by ppo.py:159 through libc10_cuda.so); to allow CUDA:
/// CUDAGUARD_POLICY=OFF"; if Python's frames are not known, "asked by libfoo.so in python3 ppo.py".
/// NVML has "no GPU to see", OpenCL "no OpenCL from NVIDIA here". Under CUDAGUARD_LOG=all it names
/// the call. The advice works in the place where the message is read. There is none in a privileged
/// process, and none if another message has given the cause.
struct DeniedFacts {
  uint32_t pid = 0;
  const Config& config;
  std::string_view because;  ///< why it is FORCE_CPU, where nobody asked for that by name
  const Touch& touch;
};
void write_denied(Text& out, const DeniedFacts& facts);

/// CUDAGUARD_LOG=all: "context on device 1 (policy VALIDATE; cuCtxCreate_v2 asked by libfoo.so)".
void write_allowed(Text& out, Policy policy, const Touch& touch);

// The list is named as the user has given it: `by_option` is Config's.

/// What is wrong with an allow-list.
struct ListErrorFacts {
  std::string_view list;
  const ListError& error;
  size_t count = 0;  ///< as in put_list_error
  bool by_option = false;
};
void write_list_error(Text& out, const ListErrorFacts& facts);

/// The allow-list cannot be enforced: `why` is what follows its name.
struct NotEnforcedFacts {
  const char* why;
  bool by_option = false;
};
void write_not_enforced(Text& out, const NotEnforcedFacts& facts);

/// The allow-list is good, and there is nothing to show: "NVIDIA's driver is not installed".
struct ListInVainFacts {
  std::string_view list;
  const char* why;
  bool by_option = false;
  int error = 0;  ///< cuInit's answer, if `why` is about it
};
void write_list_in_vain(Text& out, const ListInVainFacts& facts);

/// A device index that does not exist.
struct IndexFacts {
  std::string_view api;
  CodePlace caller;
  int asked = 0;
  int count = 0;               ///< visible devices; 0: not known
  int used = -1;               ///< under CLAMP: what was used instead
  int meant = -1;              ///< "did you mean"
  std::string_view are;        ///< what 0 to count-1 are, comma separated; may be empty
  std::string_view are_whose;  ///< "GPUs " or "CUDA_VISIBLE_DEVICES="
};
void write_bad_index(Text& out, const IndexFacts& facts);

/// CUDA_VISIBLE_DEVICES was changed after the program had been told how many GPUs there are; with
/// no `api`: its numbers name no GPU of the allow-list.
struct LateWriteFacts {
  bool was_set = false;
  std::string_view was;
  bool is_set = false;
  std::string_view is;
  std::string_view api;       ///< what told the program, or what read the variable
  unsigned told = 0;          ///< how many GPUs it said
  bool read_already = false;  ///< the change came after cuInit
  unsigned sees = 0;          ///< else: how many CUDA sees now
  unsigned gpus = 0;          ///< of the machine; 0: not known
  std::string_view allow_list;
  bool by_option = false;
  bool in_run = false;  ///< Config's: the advice is an option, not a variable
};
void write_late_write(Text& out, const LateWriteFacts& facts);

/// A forked child uses CUDA, which its parent had initialised.
struct ForkFacts {
  std::string_view api;       ///< the child's call
  uint32_t parent = 0;        ///< process id
  std::string_view by;        ///< the library that initialised it there; may be empty
  uint64_t milliseconds = 0;  ///< before the fork is not known: before this call
};
void write_fork_poison(Text& out, const ForkFacts& facts);

/// NVIDIA's OpenCL under an allow-list.
struct NoOpenClFacts {
  CodePlace caller;
  bool by_option = false;
};
void write_no_opencl(Text& out, const NoOpenClFacts& facts);

void write_complaint(Text& out, const Complaint& complaint);

/// A file of ours that cannot be used.
struct MissingFacts {
  std::string_view file;
  const char* why;      ///< a clause: "is missing", "is cut short"
  const char* instead;  ///< what happens now
  bool reinstall;       ///< a new installation is the remedy
};
void write_missing(Text& out, const MissingFacts& facts);

void write_report_failed(Text& out, std::string_view path, int error);

/// What the name of a report may contain.
struct ReportName {
  uint32_t pid = 0;       ///< for "%p"
  uint32_t uid = 0;       ///< for "%u": the effective one. A user's name would need a look-up.
  std::string_view host;  ///< for "%h"; a slash becomes "_"
};
/// `path` with each of them replaced.
void put_report_name(Text& out, std::string_view path, const ReportName& name);

/// One of these for a caller that knows its facts by address alone.
template <auto kWrite, typename Facts>
void write_line_of(Text& out, const void* facts) {
  kWrite(out, *static_cast<const Facts*>(facts));
}

/// One line of JSON. `limit` is the longest that may be written in one piece, in bytes; the long
/// fields are cut to fit, and "cut" names them.
void write_record(Text& out, const ProcessFacts& process, const Touch& touch, size_t limit);

}  // namespace cudaguard
