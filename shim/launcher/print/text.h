// SPDX-License-Identifier: Apache-2.0
// The text that verify, run --observe and report end with: of the finished model. Pure, but that
// verify's reads the files which the stacks name. Lines of at most 100 columns, where names allow,
// of what a terminal can show.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/symbols.h"

namespace cudaguard::launcher {

/// Of verify. Long stacks are cut.
std::string text_of_verdict(const Verdict& verdict, Symbols& symbols);

/// Of run --observe. `left`: processes that were not waited for, or empty. `idle`: that the program
/// has not used what was kept for it, or empty.
std::string text_of_findings(const Findings& findings, const std::string& left = {},
                             const std::string& idle = {});

/// Of report. With `by`: the table of these groups.
std::string text_of_records(const Findings& findings, const ReadFiles& read,
                            const std::optional<ByWord>& by);

/// "3 files, 120 records of 17 processes on 4 hosts, 2026-11-20 10:00 to 2026-11-22 07:28 UTC"
std::string what_was_read(const Findings& findings, const ReadFiles& read);

/// "PASS: none of 3 processes touched CUDA", "FAIL: 1 line asked for CUDA, in 2 of 3 processes"
std::string result_line(const Verdict& verdict);

/// What a reader should know besides, each a sentence.
std::vector<std::string> notes_of(const Verdict& verdict);

/// "CUDA or NVML"
std::string denied_names(const std::set<DriverApi>& denied);

/// "ended with exit code 3", "was killed by signal 9 (Killed)". `status`: as waitpid gives it.
std::string text_of_end(int status);

}  // namespace cudaguard::launcher
