// SPDX-License-Identifier: Apache-2.0
// Finds names for native frames in the files themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policy/user_code.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// "/src/app.cpp:12" for each frame with a known line.
using NativeLines = std::map<NativeFrame, std::string>;

/// Reads each file once. The files are untrusted.
class Symbols {
 public:
  Symbols();
  ~Symbols();
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;
  /// The demangled function that has the instruction before this return address, from .symtab,
  /// otherwise .dynsym. Empty if there is none, or the file cannot be read.
  std::string name_of(const NativeFrame& frame);
  void set_lines(NativeLines lines) { lines_ = std::move(lines); }
  /// "/src/app.cpp:12"; empty if unknown.
  std::string line_of(const NativeFrame& frame) const {
    const auto found = lines_.find(frame);
    return found == lines_.end() ? std::string() : found->second;
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  NativeLines lines_;
};

/// The innermost frame of the user's own code; null if there is none.
inline const NativeFrame* own_frame(const std::vector<NativeFrame>& frames, Symbols& symbols) {
  const auto own = std::find_if(frames.begin(), frames.end(), [&](const NativeFrame& frame) {
    return !passes_calls_on(frame.module) && !is_runtime_function(symbols.name_of(frame));
  });
  return own == frames.end() ? nullptr : &*own;
}

/// That line of a source file, without its newline and outer blanks: "device = torch.device(...)".
/// Empty if it cannot be read.
std::string source_line(const std::string& file, uint32_t line);

/// The source line of a toucher's frame; for `python -c`, a line of the given text.
std::string source_of(const Findings& findings, const CallSite& toucher, const PythonFrame& frame);

}  // namespace cudaguard::launcher
