// SPDX-License-Identifier: Apache-2.0
// Decides which of the CUDA attempts fail the run (decide.cpp), also by --allow (allow.cpp), whose
// pattern is a glob for a process, "lib:", "module:" or "line:" and a glob for the code that made
// the attempt, or "program:" and a glob for a program that need not be guarded. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policy/driver_api.h"

namespace cudaguard::launcher {

struct CallSite;
struct Command;
struct Verdict;

/// The words of --deny, each list like "init,nvml". No list means init. Throws Refusal otherwise.
std::set<DriverApi> denied_words(const std::vector<std::string>& lists);

/// Sets the members of the model that say "by decide()". An unguarded process that has the driver
/// counts as one that asked for CUDA, because no guard could refuse the attempt. NVML alone does
/// not count as CUDA, as with --deny.
void decide(Verdict& verdict);

// --allow

/// Throws Refusal for an empty pattern.
void check_patterns(const std::vector<std::string>& patterns);

/// True if a pattern matches a word of the command, its base name, or the whole command, with or
/// without the directories of its program. If the command is cut, no pattern matches that might not
/// match the whole one.
bool is_allowed(const std::vector<std::string>& patterns, const Command& command);

/// True if a pattern matches the name of a program (groups.h), or its base name.
bool is_program_allowed(const std::vector<std::string>& patterns, const std::string& name);
/// The pattern for exactly this file: "program:stat".
std::string pattern_of_program(std::string_view file);

/// True if a pattern matches the calling library, the user's line, or a Python module between.
bool is_code_allowed(const std::vector<std::string>& patterns, const CallSite& site);

/// After decide(): patterns with which the run would not fail, one for each line, library or
/// program that fails it.
std::vector<std::string> patterns_for(const Verdict& verdict);

/// After decide(): a sentence for each pattern of --allow that matches nothing.
std::vector<std::string> unused_patterns(const Verdict& verdict);

}  // namespace cudaguard::launcher
