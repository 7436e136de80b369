// SPDX-License-Identifier: Apache-2.0
// Gives the result of `cudaguard verify` about the records on standard input, with verify's options
// and words. So a test can choose every field of a record.
#include <unistd.h>

#include <cstdio>
#include <iterator>
#include <string>

#include "shim/launcher/commands/plan.h"
#include "shim/launcher/commands/result.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/starts.h"

int main(int argc, char** argv) {
  using namespace cudaguard::launcher;
  remember_stderr();
  try {
    const Plan plan = plan_of_verify(parse_options(argc, argv));
    Result result(plan, taken_by_program({}, plan.program));
    Verdict verdict;
    verdict.started = seconds_now();
    Records records;
    Lines lines([&](std::string_view line) { records.add(line); });
    char part[65536];
    for (size_t size = 1; size != 0;) {
      size = fread(part, 1, sizeof part, stdin);
      lines.feed({part, size});
    }
    lines.finish();
    verdict.findings = records.findings();
    verdict.tree.guarded = verdict.findings.processes.size();
    verdict.ended = seconds_now();
    return result.give(verdict, Variables(environ));
  } catch (const Refusal& refusal) {
    print_message(refusal.what());
    return refusal.code();
  }
}
