// SPDX-License-Identifier: Apache-2.0
// Finds names for native frames in the files themselves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/native_lines.h"

namespace cudaguard::launcher {

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

/// That line of a source file, without its newline and outer blanks: "device = torch.device(...)".
/// Empty if it cannot be read.
std::string source_line(const std::string& file, uint32_t line);

/// The source line of a toucher's frame; for `python -c`, a line of the given text.
std::string source_of(const Findings& findings, const CallSite& toucher, const PythonFrame& frame);

}  // namespace cudaguard::launcher
