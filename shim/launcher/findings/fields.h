// SPDX-License-Identifier: Apache-2.0
// The fields of one record, out of JSON that anybody may have written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

// What is missing, or of another kind, is empty or -1.

/// What a record says of the process that wrote it.
struct WriterFields {
  int64_t v = -1;
  int64_t pid = -1;
  int64_t ppid = -1;
  int64_t uid = -1;
  double ts = 0;
  std::string host;
  std::string exe;
  std::string command;  ///< argv's words; of the first without its directories
  std::string cgroup;
  std::string slurm;
  bool operator==(const WriterFields&) const = default;
};

/// What it says of the call.
struct CallFields {
  int64_t device = -1;
  int64_t result = -1;
  std::string api;
  std::string object;
  std::string event;
  std::string decision;
  std::string caller;
  std::string library;  ///< who asked: "libc10_cuda.so", "ctypes/cffi"
  std::string code;     ///< the user's line: "ppo.py:159"; may be empty
  std::string policy;
  Stack stack;
  bool operator==(const CallFields&) const = default;
};

/// Of a text: a whole value; the beginning of one, as far as can be told; something else.
enum class Whole { kYes, kCut, kNo };

/// Sets what the text has, if it is whole.
Whole read_fields(std::string_view text, WriterFields& writer, CallFields& call);

/// "slurm:1234", "kubernetes:PODUID", "systemd:UNIT", or empty: where the process belongs.
std::string job_of(const std::string& slurm, std::string_view cgroup);

}  // namespace cudaguard::launcher
