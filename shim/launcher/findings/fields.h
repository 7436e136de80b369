// SPDX-License-Identifier: Apache-2.0
// Reads the fields of one record. The JSON is untrusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

// A field that is missing, or of another type, is empty or -1.

/// The fields that describe the process that wrote the record.
struct WriterFields {
  int64_t v = -1;
  int64_t pid = -1;
  int64_t ppid = -1;
  int64_t uid = -1;
  double ts = 0;
  std::string host;
  std::string exe;
  std::string command;  ///< the words of argv, the first one without its directories
  std::string cgroup;
  std::string slurm;
  bool operator==(const WriterFields&) const = default;
};

/// The fields that describe the call.
struct CallFields {
  int64_t device = -1;
  int64_t result = -1;
  std::string api;
  std::string object;
  std::string event;
  std::string decision;
  std::string caller;
  std::string library;  ///< the calling library: "libc10_cuda.so", "ctypes/cffi"
  std::string code;     ///< the user's line: "ppo.py:159"; may be empty
  std::string policy;
  std::string reason;  ///< of a health record
  Stack stack;
  bool operator==(const CallFields&) const = default;
};

/// Whether a text is a whole value, possibly the beginning of one, or something else.
enum class Whole { kYes, kCut, kNo };

/// Sets the fields that the text has, if it is whole.
Whole read_fields(std::string_view text, WriterFields& writer, CallFields& call);

/// The process's job: "slurm:1234", "kubernetes:PODUID", "systemd:UNIT", or empty.
std::string job_of(const std::string& slurm, std::string_view cgroup);

}  // namespace cudaguard::launcher
