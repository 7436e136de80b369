// SPDX-License-Identifier: Apache-2.0
// The fields of one record (shim/guard/text/record_fields.inc), as fields.cpp reads them. A field
// that is missing, or of another type, is empty or -1. The JSON is untrusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shim/launcher/findings/command.h"
#include "shim/launcher/findings/stack.h"

namespace cudaguard::launcher {

/// The start of every record. It occurs nowhere else in one, because JSON escapes quotes in texts.
inline constexpr std::string_view kRecordMark = R"({"v":1,)";

namespace read {

using Number = int64_t;
using Count = int64_t;
using Time = double;  ///< seconds since 1970-01-01 UTC; 0: none
using Flag = bool;
using Word = std::string;
using Text = std::string;
using TextOrEmpty = std::string;
using Words = Command;
using Address = std::string;
using Line = std::string;
using Frames = std::vector<PythonFrame>;
using Addresses = std::vector<NativeFrame>;
/// Of the fields that were cut. No reader needs the other names.
struct Names {
  bool argv = false;
  bool operator==(const Names&) const = default;
};

template <typename Field>
Field none() {
  if constexpr (std::is_same_v<Field, int64_t>) return -1;
  return Field();
}

}  // namespace read

/// The fields that describe the process that wrote the record.
struct WriterFields {
#define RECORD_PROCESS(type, name, ...) read::type name = read::none<read::type>();
#include "shim/guard/text/record_fields.inc"
  bool operator==(const WriterFields&) const = default;
};

/// The fields that describe the call.
struct CallFields {
#define RECORD_CALL(type, name, ...) read::type name = read::none<read::type>();
#define RECORD_LAUNCHER RECORD_CALL
#include "shim/guard/text/record_fields.inc"
  bool operator==(const CallFields&) const = default;
};

/// Whether a text is a whole value, possibly the beginning of one, or something else.
enum class Whole { kYes, kCut, kNo };

/// Sets the fields that the text has, if it is whole.
Whole read_fields(std::string_view text, WriterFields& writer, CallFields& call);

/// The process's job: "slurm:1234", "kubernetes:PODUID", "systemd:UNIT", or empty.
std::string job_of(const std::string& slurm, std::string_view cgroup);

}  // namespace cudaguard::launcher
