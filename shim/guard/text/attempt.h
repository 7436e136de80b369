// SPDX-License-Identifier: Apache-2.0
// What messages and records say about a CUDA attempt. Pure; thread-safe, async-signal-safe,
// allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/library.h"
#include "policy/policies.h"
#include "policy/program.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A place in the code: the file that is mapped there and the offset in that file.
struct CodePlace {
  std::string_view module;  ///< full path; empty: not a file
  uint64_t offset = 0;      ///< bytes from the start of the file
};

/// What was allowed. kNone: the attempt was denied. kNoContext: NO_CONTEXT has denied it. kStart:
/// there was no attempt, the process has started. kRefused: a library was not loaded, because a
/// file of cudaguard cannot be used, so it is not known whether the program would have asked for a
/// GPU. kExposed: the program was started with NVIDIA's library, whose symbols the guard could not
/// change, so it is not known whether the program has asked.
enum class EventKind : uint8_t {
  kNone,
  kNoContext,
  kInit,
  kContext,
  kSelect,
  kNvml,
  kWork,
  kStart,
  kRefused,
  kExposed
};

/// A frame of Python's.
struct PythonFrame {
  std::string_view file;  ///< co_filename
  std::string_view function;
  unsigned line = 0;
};

/// The thread's Python frames, innermost first. Too large for a stack, so in pages of its own.
struct Stack {
  static constexpr unsigned kMostPython = 48;
  const char* python_missing;  ///< why there is no Python stack
  unsigned python_count;
  unsigned shown;   ///< the frame that the message names; kMostPython if none is useful
  bool python_cut;  ///< there are more frames
  PythonFrame python[kMostPython];

  /// The frame that the message names, or null if the message names the command.
  const PythonFrame* named() const { return shown < python_count ? &python[shown] : nullptr; }
};

/// A CUDA attempt, or the start of a process.
struct Attempt {
  std::string_view api;  ///< "cuInit", "nvmlInit_v2", "dlopen"
  /// For dlopen: the requested name or path. For an init: the list of GPUs that the driver got.
  std::string_view object;
  std::string_view program;  ///< the process's arguments, as /proc/self/cmdline has them
  /// The first of these that is a file, if the program is an interpreter whose options are not
  /// known.
  std::string_view script;
  /// The program that started this one, "python3 app.py", if this one is a tool such as nvidia-smi
  /// or runs a deleted script.
  std::string_view started_by;
  bool is_deleted = false;  ///< the script that a message names does not exist any more
  EventKind event = EventKind::kNone;
  DriverApi asked = DriverApi::kCuda;  ///< as driver_api_of() or is_context() says
  int device = -1;                     ///< the index of a context or selection
  int result = -1;                     ///< of an init or a context: its answer; -1: none
  bool last_place = false;             ///< attempts from further places are not recorded
  Policy policy = Policy::kForceCpu;   ///< of kStart
  std::string_view rule;               ///< Decision::decided_by; empty if FORCE_CPU has replaced it
  CodePlace caller;
  std::string_view file;         ///< lasting_name() of the caller's file; empty: its name
  const Stack* stack = nullptr;  ///< null: not known
};

/// True if the guard refused the attempt by its policy.
constexpr bool is_denied(EventKind event) {
  return event == EventKind::kNone || event == EventKind::kNoContext;
}

/// True if the call has made a context, or was refused one.
constexpr bool is_context(EventKind event) {
  return event == EventKind::kContext || event == EventKind::kNoContext;
}

/// Returns the name of the caller's file; empty if it is none.
std::string_view file_of(const Attempt& attempt);
/// Returns the frame that a message names, or null.
const PythonFrame* named_frame(const Attempt& attempt);
/// Returns the file that a message names: the frame's, or the script of an interpreter whose frames
/// cannot be read. The line is 0 if it is not known, and the file is empty.
PythonFrame named_code(const Attempt& attempt);
/// Returns the caller: "libfoo.so", "ctypes/cffi" or "generated code".
std::string_view library_of(const Attempt& attempt);

}  // namespace cudaguard
