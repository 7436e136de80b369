// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/program_report.h"

#include "shim/launcher/doctor/guarded.h"
#include "shim/launcher/doctor/program_facts.h"
#include "shim/launcher/doctor/program_text.h"

namespace cudaguard::launcher {

ProgramReport examine_program(const std::string& name, const Installation& installation,
                              const Variables& variables) {
  const ProgramFacts facts = find_program_facts(name, installation, variables);
  const Guarded guarded = judge_facts(facts);
  const int code = guarded.run == Hold::kYes ? 0 : guarded.run == Hold::kInPart ? 1 : 2;
  return {program_json(facts, guarded), program_text(facts, guarded), code};
}

}  // namespace cudaguard::launcher
