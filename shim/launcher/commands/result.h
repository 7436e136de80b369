// SPDX-License-Identifier: Apache-2.0
// The result of verify.
#pragma once

#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/commands/plan.h"
#include "shim/launcher/print/output.h"

namespace cudaguard::launcher {

struct Verdict;

class Result {
 public:
  /// Opens the result files of the plan. Throws Refusal if one cannot be written, or is one of
  /// `taken`.
  Result(const Plan& plan, std::vector<TakenFile> taken);
  /// Descriptors to keep open while the program runs.
  std::vector<int> descriptors() const;
  /// Decides about the run, prints the result, and writes the files. Returns the exit code.
  int give(Verdict& verdict, const Variables& variables);

 private:
  const Plan& plan_;
  std::vector<TakenFile> taken_;
  OutputFile json_;
  OutputFile junit_;
  OutputFile html_;
};

}  // namespace cudaguard::launcher
