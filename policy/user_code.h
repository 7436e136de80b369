// SPDX-License-Identifier: Apache-2.0
// Finds the owner of code, so that a message names the user's own. Pure; thread-safe,
// async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// The owner of a Python frame's code, the least useful to a reader first.
enum class Whose : uint8_t {
  kPythons,    ///< the standard library, frozen modules, the start of a bundled program
  kGenerated,  ///< code without a file that a library has made: "<makefun-gen-0>"
  kPackages,   ///< installed packages, and add-ons that a program brings along
  kNoFile,     ///< code without a file that may be the user's: "<string>", "<dynamic-code>"
  kUsers,      ///< the user's files, and what the user has typed
};

/// `file` is a Python frame's co_filename. Decides by the names alone; shim/guard/stack/owners.h
/// also looks at the files. `is_command`: the program is `python -c`, whose own code is "<string>".
Whose whose_code(std::string_view file, std::string_view function, bool is_command);

/// True for a name such as "<string>", behind which there is no file.
constexpr bool has_no_file(std::string_view file) { return file.empty() || file[0] == '<'; }

/// True for a module of the standard library that calls the user's code in a thread or process of
/// its own, if its place is unknown: "threading.py" in a bundled program.
bool is_runner(std::string_view file);

/// True if multiprocessing starts a child by this frame. The frame outside it is then the command
/// line of the child, which looks like the user's `python -c`.
bool starts_child(std::string_view file, std::string_view function);

/// Chooses the Python frame that a message names: the innermost of the user's own, otherwise the
/// innermost without a file, otherwise the outermost of a package. A frame of the standard library
/// is never chosen.
class FrameChoice {
 public:
  /// Call this with the frames from the innermost outwards. Returns true if this frame is the
  /// choice so far.
  bool takes(Whose whose, std::string_view file, std::string_view function);
  /// True if no frame further out can replace the choice.
  bool is_final() const { return best_ == Whose::kUsers; }

 private:
  Whose best_ = Whose::kPythons;
  bool starts_child_ = false;  ///< The frame before was multiprocessing's start of a child.
};

/// Returns the base name, but all of "/dev/stdin", "/dev/fd/63" and "/proc/self/fd/3", as a shell
/// names a pipe (python3 <(generate)): what comes last says nothing.
std::string_view file_name(std::string_view file);

/// A line of Python code as messages and records name it: "ppo.py:159", "notebook cell 12, line 3"
/// in Jupyter, "torch/utils/collect_env.py:952" in a package. The four parts are one text. Without
/// a line, which is 0 then, `after` is empty.
struct CodeLine {
  const char* before;     ///< "" or "notebook cell "
  std::string_view name;  ///< of the file or the cell; may hold any bytes
  const char* after;      ///< ":", ", line " or ""
  uint64_t line;
};
CodeLine code_line(std::string_view file, unsigned line);

/// Returns the path of a package's file after the directory of packages; null data if it is in
/// none.
std::string_view in_packages(std::string_view file);

/// True for a cell of a Jupyter kernel: "/tmp/ipykernel_7/2815143473.py".
bool is_kernel_cell(std::string_view file);

/// True for any cell of IPython: also "<ipython-input-12-0a1b2c>".
bool is_cell(std::string_view file);

/// Why there is no Python stack in a process without CPython, or with another one than the guard
/// can read.
inline constexpr char kNoPython[] = "no CPython";
inline constexpr char kUnknownPython[] = "unknown build of CPython";

/// True for a library that only passes calls on: CUDA's and NVIDIA's own, a foreign-function
/// library, an OpenCL loader, an OpenMP runtime, libc and ld.so, ours. `module` is a path or a base
/// name.
bool passes_calls_on(std::string_view module);

/// True for Python's libraries that call C, ctypes and cffi, and for libffi. Each has its own copy
/// of libffi or uses the system's, which Ruby and others use as well. `file` is a base name.
bool is_foreign_function(std::string_view file);

/// True for a function of CUDA's runtime, or one by which nvcc's code calls it. The runtime may be
/// linked into a program, so such a frame is not the program's own.
constexpr bool is_runtime_function(std::string_view name) {
  if (name.starts_with("libcudart_static_") || name.starts_with("__device_stub__")) return true;
  if (name.starts_with("__")) name.remove_prefix(2);
  return name.starts_with("cuda") && name.size() > 4 && name[4] >= 'A' && name[4] <= 'Z';
}

}  // namespace cudaguard
