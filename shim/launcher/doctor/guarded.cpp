// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/guarded.h"

#include <algorithm>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

void add(Guarded& guarded, const char* id, Hold run, Hold preload, const std::string& file,
         const std::string& why) {
  guarded.reasons.push_back({id, run, preload, file, why});
  guarded.run = std::max(guarded.run, run);
  guarded.preload = std::max(guarded.preload, preload);
}

/// A name without its folders, for a clause that is followed by the whole path elsewhere.
std::string short_name(const std::string& path) { return printable(base_name(path)); }

/// Is the stand-in for that one?
bool is_broken(const ProgramFacts& facts, Library kind) {
  return std::any_of(facts.broken.begin(), facts.broken.end(), [&](const BrokenFile& broken) {
    return classify(broken.path).library == kind;
  });
}

void judge_linked(const ExecutableFacts& facts, const ProgramFacts& program, Guarded& guarded) {
  const std::string& file = facts.executable.path;
  for (const LinkedLibrary& library : facts.linked) {
    const std::string linked = "it is linked to " + printable(library.name) + ", ";
    if (classify(library.name).library == Library::kRefused) {
      add(guarded, "linked_refused", Hold::kInPart, Hold::kInPart, file,
          linked + "which opens the GPU by itself");
    } else if (library.path.empty()) {
      add(guarded, "linked", Hold::kYes, Hold::kNo, file,
          linked + "which is not found: it does not start");
    } else {
      add(guarded, "linked", Hold::kYes, Hold::kInPart, file,
          linked + "which ld.so maps before anyone can act");
    }
  }
  for (const std::string& path : facts.mapped) {
    const Library kind = classify(path).library;
    if (kind == Library::kRefused || is_broken(program, kind)) continue;
    add(guarded, "linked_file", Hold::kInPart, Hold::kInPart, path,
        "ld.so maps " + printable(path) + " beside the stand-in");
  }
  for (const BrokenFile& broken : program.broken) {
    const std::string_view name = base_name(broken.path);
    if (!broken.missing) continue;  // `run` preloads it, and ld.so has its own opinion
    if ((facts.links_driver && name == "libcuda.so.1") ||
        (facts.links_nvml && name == "libnvidia-ml.so.1")) {
      add(guarded, "stand_in", Hold::kNo, Hold::kYes, broken.path,
          "it is linked to " + std::string(name) + ", and " + printable(broken.path) + " " +
              broken.why());
    }
  }
}

void judge_names(const ExecutableFacts& facts, Guarded& guarded) {
  for (const OwnName& name : facts.names) {
    if (name.taken) {
      add(guarded, "variable", Hold::kInPart, Hold::kInPart, name.file,
          short_name(name.file) + " has a variable " + printable(name.name) +
              ", which our function takes the place of");
    }
    if (name.is_hook() && !facts.intercepts() && name.file == facts.executable.path) {
      add(guarded, "own_dlopen", Hold::kInPart, Hold::kInPart, name.file,
          "it has a " + name.name + " of its own, which comes before the guard's");
    }
  }
}

void judge_sanitizers(const ExecutableFacts& facts, Guarded& guarded) {
  for (const Sanitizer& sanitizer : facts.sanitizers) {
    if (sanitizer.path.empty() || (sanitizer.kind != "address" && sanitizer.kind != "hwaddress")) {
      continue;
    }
    if (can_be_preloaded(sanitizer.path)) {
      add(guarded, "sanitizer", Hold::kYes, Hold::kNo, sanitizer.path,
          printable(sanitizer.name) + " starts no program in which it is not the first library");
    } else {
      add(guarded, "sanitizer", Hold::kNo, Hold::kNo, sanitizer.path,
          printable(sanitizer.name) +
              " has to be the first library, and LD_PRELOAD cannot carry "
              "its path, which has a space or a colon");
    }
  }
}

void judge_executable(const ExecutableFacts& facts, const ProgramFacts& program, Guarded& guarded) {
  const std::string& file = facts.executable.path;
  for (const Hindrance& hindrance : facts.examined.hindrances) {
    add(guarded, hindrance.id, Hold::kNo, Hold::kNo, file, hindrance.why);
  }
  if (facts.examined.kind == Examined::Kind::kStatic && facts.examined.hindrances.empty()) {
    add(guarded, "static", Hold::kInPart, Hold::kInPart, file,
        "it is a static executable; dynamic programs that it starts are guarded");
  }
  judge_linked(facts, program, guarded);
  judge_names(facts, guarded);
  judge_sanitizers(facts, guarded);
}

void judge_scripts(const ProgramFacts& facts, Guarded& guarded) {
  const std::string& file = facts.program.path;
  if (facts.program.env_clears) {
    add(guarded, "env_clears", Hold::kNo, Hold::kNo, file,
        "its #! line has env take LD_PRELOAD away (" + printable(facts.program.env_words) + ")");
  } else if (!facts.program.env_words.empty()) {
    add(guarded, "env_unknown", Hold::kInPart, Hold::kInPart, file,
        "what env starts by its #! line is not told (" + printable(facts.program.env_words) + ")");
  }
  if (facts.script_preloads) {
    add(guarded, "script_preload", Hold::kInPart, Hold::kInPart, file,
        "the script says LD_PRELOAD itself, and may put something in our place");
  }
}

void judge_installation(const ProgramFacts& facts, Guarded& guarded) {
  for (const BrokenFile& broken : facts.broken) {
    const bool said = std::any_of(guarded.reasons.begin(), guarded.reasons.end(),
                                  [&](const Reason& reason) { return reason.file == broken.path; });
    if (said) continue;
    add(guarded, "installation", Hold::kInPart, Hold::kInPart, broken.path,
        printable(broken.path) + " " + broken.why());
  }
}

}  // namespace

const char* name_of(Hold hold) {
  switch (hold) {
    case Hold::kYes:
      return "yes";
    case Hold::kInPart:
      return "in part";
    case Hold::kNo:
      return "no";
  }
  return "";
}

Guarded judge_facts(const ProgramFacts& facts) {
  Guarded guarded;
  if (facts.off) {
    add(guarded, "policy_off", Hold::kNo, Hold::kNo, facts.program.path,
        "CUDAGUARD_POLICY is OFF here (cudaguard run --cpu goes before it)");
  }
  for (const ExecutableFacts& executable : facts.executables) {
    judge_executable(executable, facts, guarded);
  }
  judge_scripts(facts, guarded);
  judge_installation(facts, guarded);
  return guarded;
}

}  // namespace cudaguard::launcher
