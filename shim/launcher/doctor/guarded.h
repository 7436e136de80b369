// SPDX-License-Identifier: Apache-2.0
// The verdict: is a program guarded, and why not. Pure.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/doctor/program_facts.h"

namespace cudaguard::launcher {

enum class Hold { kYes, kInPart, kNo };

/// "yes", "in part", "no".
const char* name_of(Hold hold);

/// Two ways of starting it: `cudaguard run`, which preloads what the program needs, and LD_PRELOAD
/// with the guard alone.
struct Reason {
  const char* id;  ///< never changed: "static"
  Hold run;        ///< what it leaves of the guarding
  Hold preload;
  std::string file;  ///< that it is about
  std::string why;   ///< a clause after "because"
};

struct Guarded {
  Hold run = Hold::kYes;
  Hold preload = Hold::kYes;
  std::vector<Reason> reasons;
};

Guarded judge_facts(const ProgramFacts& facts);

}  // namespace cudaguard::launcher
