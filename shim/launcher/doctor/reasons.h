// SPDX-License-Identifier: Apache-2.0
// The verdict: is a program guarded, and why not.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/doctor/rows.h"

namespace cudaguard::launcher {

enum class Hold { kYes, kInPart, kNo };
NLOHMANN_JSON_SERIALIZE_ENUM(Hold,
                             {{Hold::kYes, "yes"}, {Hold::kInPart, "in part"}, {Hold::kNo, "no"}})

/// What speaks against two ways of starting it: `cudaguard run`, which preloads what the program
/// needs, and LD_PRELOAD with the guard alone.
struct Reason {
  std::string id;  ///< never changed: "static"
  Hold run;        ///< what it leaves of the guarding
  Hold preload;
  std::string file;  ///< that it is about
  std::string why;   ///< a clause after "because"
};
using Reasons = std::vector<Reason>;

/// What is left by this way.
Hold hold_of(const Reasons& reasons, Hold Reason::*way);

/// "guarded" of doctor.schema.json. `fence`: one can be had, or stands here.
Row row_of(const Reasons& reasons, bool fence);

}  // namespace cudaguard::launcher
