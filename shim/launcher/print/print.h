// SPDX-License-Identifier: Apache-2.0
// All outputs of verify, run --observe and report. They are made of the finished model alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "policy/driver_api.h"
#include "shim/launcher/findings/groups.h"

namespace cudaguard::launcher {

struct Findings;
struct Verdict;

/// The files that the records were read from.
struct ReadFiles {
  size_t files = 0;
  // Counts of the files in directories that were left out.
  size_t compressed = 0;
  size_t unreadable = 0;
  std::string why;  ///< the error of the first such file
};

// Texts. Lines have at most 100 printable columns, unless names are longer.

/// The text of verify. Long stacks are cut.
std::string text_of_verdict(const Verdict& verdict);
/// The same text with its result in colour, for a terminal.
std::string in_colour(const Verdict& verdict, std::string text);

/// The text of run --observe. `left` has the processes that still run. `idle` says that the program
/// has not used the GPU that it had for itself. Both may be empty.
std::string text_of_findings(const Findings& findings, const std::string& left = {},
                             const std::string& idle = {});

/// The text of report. With `by`, the table of these groups.
std::string text_of_records(const Findings& findings, const ReadFiles& read, const Keys& by);

/// "3 files, 120 records of 17 processes on 4 hosts, 2026-11-20 10:00 to 2026-11-22 07:28 UTC"
std::string what_was_read(const Findings& findings, const ReadFiles& read);

/// "PASS: none of 3 processes asked for CUDA", "FAIL: 1 line asked for CUDA, in 2 of 3 processes"
std::string result_line(const Verdict& verdict);

/// Sentences with further facts for the reader.
std::vector<std::string> notes_of(const Verdict& verdict);

/// "3 programs started: 2 guarded, 1 unguarded: ./stat (static)"
std::string account_line(const TreeTruth& tree);

/// "CUDA or NVML"
std::string denied_names(const std::set<DriverApi>& denied);

/// Lines about text that is no record, or only a piece of one.
std::string what_was_left_out(const Findings& findings);

/// "ended with exit code 3", "was killed by signal 9 (Killed)". `status` is as from waitpid.
std::string text_of_end(int status);

// Files. `text` is the text report.

/// The JSON of verify --json (verify.schema.json). `indent` as in Json. Only `most_stacks` attempts
/// get their stacks, failing ones first.
std::string document(const Verdict& verdict, unsigned indent = 1, size_t most_stacks = SIZE_MAX);

/// One test suite with the same three tests each time.
std::string junit_of(const Verdict& verdict, const std::string& text);

/// One self-contained HTML page, made of page/page.{html,css,js}. Its script draws the JSON
/// document that is in the page; `text` is for a reader without JavaScript. The document is that of
/// --json, but it has only the stacks of the 40 attempts that the page shows.
std::string page_of_verdict(const Verdict& verdict, const std::string& text);
/// The page of records alone. `title` is what was read: "3 files of /var/log/cudaguard".
std::string page_of_records(const Findings& findings, const std::string& title,
                            const std::string& text);

}  // namespace cudaguard::launcher
