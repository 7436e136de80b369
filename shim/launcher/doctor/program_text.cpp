// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/program_text.h"

#include <elf.h>

#include <algorithm>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/doctor/lines.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + printable(word);
  return text;
}

/// The line's name the first time, then nothing.
class Once {
 public:
  explicit Once(const char* name) : name_(name) {}
  const char* next() {
    const char* name = name_;
    name_ = "";
    return name;
  }

 private:
  const char* name_;
};

bool is_shell(const std::string& path) {
  const std::string_view name = base_name(path);
  return name == "sh" || name == "bash" || name == "dash" || name == "zsh" || name == "ksh" ||
         name == "busybox";
}

void add_program(const ProgramFacts& facts, std::string& text) {
  const Program& program = facts.program;
  add_line(text, "program", printable(program.path));
  if (program.files.size() < 2) return;
  std::string chain = "a script, run by ";
  for (size_t i = 1; i < program.files.size(); ++i) {
    chain += (i > 1 ? ", then " : "") + printable(program.files[i]);
  }
  add_line(text, "", chain);
  if (is_shell(program.files.back())) {
    add_line(text, "", "what the script starts is not looked at");
  }
}

void add_kind(const ExecutableFacts& facts, bool alone, std::string& text) {
  const ElfFacts& elf = facts.executable.facts;
  std::string kind;
  if (const char* link = link_of(facts)) kind = std::string(link) + ", ";
  kind += elf.is_64 ? "64-bit " : "32-bit ";
  kind += elf.little_endian ? machine_name(elf.machine) : "big-endian";
  if (facts.setuid) kind += ", setuid";
  if (facts.setgid) kind += ", setgid";
  if (facts.capabilities) kind += ", with file capabilities";
  add_line(text, "executable", (alone ? "" : printable(facts.executable.path) + ": ") + kind);
  if (elf.interpreter.empty()) return;
  std::string loader = printable(elf.interpreter);
  if (facts.examined.answer) {
    loader += facts.loads_guard() ? ", loads the guard" : ", does not load the guard";
  }
  add_line(text, "ld.so", loader);
}

void add_linked(const ExecutableFacts& facts, std::string& text) {
  Once label("linked to");
  for (const LinkedLibrary& library : facts.linked) {
    std::string line = printable(library.name) + ": ";
    line += library.path.empty() ? "not found" : printable(library.path);
    if (!library.needed_by.empty()) line += ", needed by " + joined(library.needed_by, ", ");
    add_line(text, label.next(), line);
  }
  if (!facts.mapped.empty()) {
    add_line(text, "",
             "what is mapped beside the stand-in: its calls get ours, a dlsym on the "
             "handle of a library that needs it does not");
  }
  if (facts.linked.empty()) add_line(text, label.next(), "neither libcuda.so.1 nor NVML");
  if (!facts.not_found.empty()) {
    add_line(text, "not found", joined(facts.not_found, ", ") + ": it does not start");
  }
}

void add_runtimes(const ExecutableFacts& facts, std::string& text) {
  Once label("CUDA runtime");
  bool has_static = false;
  for (const RuntimeFact& runtime : facts.runtimes) {
    has_static = has_static || runtime.name.empty();
    std::string line = runtime.name.empty() ? "static, " : "shared, ";
    line += runtime.version.empty() ? "version not known" : "version " + runtime.version;
    if (runtime.file.empty()) {
      line += ", " + printable(runtime.name) + " is not found";
    } else {
      line += ", " + std::string(runtime.name.empty() ? "in " : "") + printable(runtime.file);
    }
    add_line(text, label.next(), line);
  }
  if (facts.runtimes.empty()) {
    add_line(text, label.next(),
             facts.examined.answer ? "none that ld.so loads with it" : "none seen in it");
  }
  if (has_static) {
    add_line(text, "", "VALIDATE and CLAMP cannot see a static runtime's own checks of an index");
  }
}

void add_copies(const ExecutableFacts& facts, std::string& text) {
  Once label("run path");
  for (const DriverCopy& copy : facts.copies) {
    add_line(text, label.next(),
             printable(copy.path) + ", by the run path of " + printable(copy.of));
  }
  if (!facts.copies.empty()) {
    add_line(text, "", "under FORCE_CPU a dlopen does not lead there: it gets the stand-in");
  }
}

void add_names(const ExecutableFacts& facts, std::string& text) {
  std::vector<std::string> files;
  for (const OwnName& name : facts.names) {
    if (files.empty() || files.back() != name.file) files.push_back(name.file);
  }
  Once label("our names");
  for (const std::string& file : files) {
    const bool first = file == facts.executable.path;
    for (const bool variables : {false, true}) {
      std::vector<std::string> names;
      bool taken = false;
      for (const OwnName& name : facts.names) {
        if (name.file != file || name.variable != variables) continue;
        if (first && name.is_hook() && facts.intercepts()) continue;
        names.push_back(name.name);
        taken = taken || name.taken;
      }
      if (names.empty()) continue;
      const bool one = names.size() == 1;
      std::string line = printable(file) + (one ? " has a " : " has ");
      line += variables ? "variable" : "function";
      line += (one ? " " : "s ") + joined(names, ", ") + ": ";
      if (!variables) {
        line += first ? "before ours" : "behind ours";
      } else {
        line += taken ? "ld.so puts our function in its place, and it crashes where it uses it"
                      : "left alone";
      }
      add_line(text, label.next(), line);
    }
  }
}

void add_sanitizers(const ExecutableFacts& facts, std::string& text) {
  Once label("sanitizer");
  for (const Sanitizer& sanitizer : facts.sanitizers) {
    std::string line = sanitizer.kind + ", ";
    if (sanitizer.name.empty()) {
      line += "static";
    } else if (sanitizer.path.empty()) {
      line += printable(sanitizer.name) + " is not found";
    } else {
      line += printable(sanitizer.path);
      if (can_be_preloaded(sanitizer.path)) line += ", which cudaguard run puts first";
    }
    add_line(text, label.next(), line);
  }
}

void add_executable(const ExecutableFacts& facts, const ProgramFacts& program, std::string& text) {
  const bool last = &facts == &program.executables.back();
  add_kind(facts, program.program.files.size() == 1, text);
  if (last || !facts.linked.empty()) {
    if (facts.examined.answer) add_linked(facts, text);
  }
  if (last || !facts.runtimes.empty()) add_runtimes(facts, text);
  add_copies(facts, text);
  add_names(facts, text);
  add_sanitizers(facts, text);
}

/// What speaks against this way, the weightiest first.
std::vector<std::string> reasons_of(const Guarded& guarded, Hold Reason::*way) {
  std::vector<std::string> reasons;
  for (const Hold hold : {Hold::kNo, Hold::kInPart}) {
    for (const Reason& reason : guarded.reasons) {
      if (reason.*way == hold) reasons.push_back(reason.why);
    }
  }
  return reasons;
}

void add_preload(const Guarded& guarded, std::string& text) {
  std::string line = name_of(guarded.preload);
  const char* between = ", because ";
  for (const std::string& reason : reasons_of(guarded, &Reason::preload)) {
    line += between + reason;
    between = "; ";
  }
  add_line(text, "LD_PRELOAD alone", line);
}

void add_verdict(const Guarded& guarded, std::string& text) {
  const std::vector<std::string> reasons = reasons_of(guarded, &Reason::run);
  Once label("also");
  for (size_t i = 1; i < reasons.size(); ++i) add_line(text, label.next(), reasons[i]);
  text += std::string("guarded: ") + name_of(guarded.run);
  if (!reasons.empty()) text += ", because " + reasons[0];
  text += "\n";
}

}  // namespace

const char* link_of(const ExecutableFacts& facts) {
  const ElfFacts& elf = facts.executable.facts;
  if (elf.type == 0) return nullptr;
  if (!elf.interpreter.empty()) return "dynamic";
  switch (facts.examined.kind) {
    case Examined::Kind::kLoader:
      return "loader";
    case Examined::Kind::kLauncher:
      return "launcher";
    default:
      return elf.type == ET_DYN ? "static-pie" : "static";
  }
}

std::string program_text(const ProgramFacts& facts, const Guarded& guarded) {
  std::string text;
  add_program(facts, text);
  for (const ExecutableFacts& executable : facts.executables) {
    add_executable(executable, facts, text);
  }
  if (guarded.preload != guarded.run) add_preload(guarded, text);
  add_verdict(guarded, text);
  return text;
}

}  // namespace cudaguard::launcher
