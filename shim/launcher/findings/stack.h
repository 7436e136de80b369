// SPDX-License-Identifier: Apache-2.0
// The stack of a call. Its texts are as in the records, not yet escaped for a terminal or a page.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cudaguard::launcher {

struct PythonFrame {
  std::string file;
  std::string function;
  uint32_t line = 0;
  std::string source = {};  ///< that line of the file, by name_frames(); may be empty
  auto operator<=>(const PythonFrame&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct NativeFrame {
  std::string module;   ///< full path
  uint64_t offset = 0;  ///< bytes from the start of the file to the return address
  // By name_frames(); empty if unknown.
  std::string symbol = {};                               ///< the demangled function
  std::string line = {};                                 ///< "/src/app.cpp:12"
  auto operator<=>(const NativeFrame&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct NativeStack {
  std::vector<NativeFrame> frames;  ///< innermost first
  std::string cut;  ///< a clause that says why outer frames are missing; empty if none are
  bool is_known() const { return !frames.empty() || !cut.empty(); }
};

/// Innermost frame first. Without frames, the reason why there are none.
struct Stack {
  std::vector<PythonFrame> python;
  int64_t line_frame = -1;  ///< index in `python` of the frame that has the user's line; -1: none
  std::vector<NativeFrame> native;
  std::string python_missing;
  std::string native_missing;
  auto operator<=>(const Stack&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// "/home/u/ppo.py:159"; without the number if the line is not known
std::string file_and_line(const PythonFrame& frame);
/// The frame of the line that the guard's message names. Null if there is none, or if the line is
/// in a notebook.
const PythonFrame* own_frame(const Stack& stack);
/// The innermost frame of the user's own native code; null if there is none. Needs the names of the
/// frames' functions.
const NativeFrame* own_frame(std::span<const NativeFrame> frames);

}  // namespace cudaguard::launcher
