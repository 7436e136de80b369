// SPDX-License-Identifier: Apache-2.0
// Whose code is it? So that a line names the user's own. Pure; thread-safe, async-signal-safe,
// allocation-free.
#pragma once

#include <cstddef>
#include <string_view>

#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A Python frame's file (co_filename) and function: false below site-packages or dist-packages, in
/// the standard library, for what the interpreter has frozen into itself and what libraries make.
bool is_user_code(std::string_view file, std::string_view function);

/// Why there is no Python stack, where nobody expects one.
inline constexpr char kNoPython[] = "no CPython";

/// A library that only passes calls on: CUDA's and NVIDIA's own, a foreign-function library, an
/// OpenCL loader, libc and ld.so, ours. `module`: a path or a base name.
bool passes_calls_on(std::string_view module);

/// Python's ways to call C, ctypes and cffi: each with a copy of libffi of its own or the system's,
/// which Ruby and others use as well. `file`: a base name.
inline bool is_foreign_function(std::string_view file) {
  return begins(file, "libffi.so\0libffi-\0_ctypes.\0_cffi_backend.\0") != 0;
}

/// A function of CUDA's runtime, which may be linked into a program: the frame is not its own.
constexpr bool is_runtime_function(std::string_view name) {
  if (name.starts_with("libcudart_static_")) return true;
  return name.starts_with("cuda") && name.size() > 4 && name[4] >= 'A' && name[4] <= 'Z';
}

}  // namespace cudaguard
