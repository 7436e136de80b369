// SPDX-License-Identifier: Apache-2.0
// Names for native frames, from the files themselves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/native_lines.h"

namespace cudaguard::launcher {

/// Reads each file once. Files that other people made: any content is possible.
class Symbols {
 public:
  Symbols();
  ~Symbols();
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;
  /// The function that holds the instruction before this return address, demangled: from .symtab,
  /// else .dynsym. Empty where there is none, or the file cannot be read.
  std::string name_of(const NativeFrame& frame);
  void set_lines(NativeLines lines) { lines_ = std::move(lines); }
  /// "/src/app.cpp:12"; empty: not known.
  std::string line_of(const NativeFrame& frame) const {
    const auto found = lines_.find(frame);
    return found == lines_.end() ? std::string() : found->second;
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  NativeLines lines_;
};

/// "    device = torch.device(...)": that line of a source file, without its end and outer blanks;
/// empty where it cannot be read.
std::string source_line(const std::string& file, uint32_t line);

/// The same of a frame of this toucher's; in what `python -c` was given, that.
std::string source_of(const Findings& findings, const CallSite& toucher, const PythonFrame& frame);

}  // namespace cudaguard::launcher
