// SPDX-License-Identifier: Apache-2.0
// Checks whether a program can be guarded. preload/judge finds the reasons for which `run` refuses;
// this file adds the exceptions for programs that `run` starts. Does not start the program.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "policy/library.h"
#include "policy/policies.h"
#include "policy/text.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/doctor/doctor.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";
// An installer's script may be followed by gigabytes of data.
constexpr uint64_t kScriptText = uint64_t{1} << 20;

/// Programs that do not work in a Landlock domain, by the start of their names (docs/fence.md).
constexpr std::pair<std::string_view, const char*> kNoDeviceFence[] = {
    {"bwrap", "bubblewrap fails, because it mounts"},
    {"podman", "rootless Podman fails, because it mounts"},
    {"buildah", "Buildah fails, because it mounts"},
    {"flatpak", "Flatpak fails, because it starts bubblewrap"},
    {"chromium", "Chromium draws without a GPU, and its sandbox may fail"},
    {"chrome", "Chrome draws without a GPU, and its sandbox may fail"},
    {"google-chrome", "Chrome draws without a GPU, and its sandbox may fail"},
};

/// Programs that start others without LD_PRELOAD: with a new environment, or by a service.
constexpr std::string_view kNewEnvironment[] = {"sudo", "doas", "pkexec", "run0", "systemd-run"};

/// True if a sanitizer is linked statically. Its dlopen calls the next one, the guard's.
bool has_static_sanitizer(const FileBytes& file) {
  const uint64_t end = read_elf(file).loaded_end;
  return contains(file, "ASAN_OPTIONS", end) || contains(file, "TSAN_OPTIONS", end) ||
         contains(file, "MSAN_OPTIONS", end);
}

class ProgramCheck {
 public:
  ProgramCheck(const std::string& name, const Machine& machine, FindingList& findings)
      : program_(find_program(name, machine.variables.get("PATH"))),
        machine_(machine),
        own_(machine.installation),
        guarded_(machine.variables),
        findings_(findings) {
    if (program_.unknown) {
      throw Refusal(kCannotRun, in_quotes(program_.files.back()) +
                                    " is neither an ELF file nor a script; only the kernel knows "
                                    "what starts it");
    }
    guarded_.set(kPreload, preload_list(guarded_.get(kPreload), {}, {own_.guard}));
  }

  void all() {
    chain();
    rules();
    for (const Executable& executable : program_.executables) look_at(executable);
    unchecked();
    children();
    owner();
    scripts();
    broken_files();
    fence();
    device_fence();
  }

 private:
  void fact(const char* id, const std::string& text) {
    findings_.push_back({id, Question::kProgram, State::kFact, text, ""});
  }
  void because(const char* id, State state, const std::string& why) {
    findings_.push_back({id, Question::kProgram, state, why, ""});
  }

  /// "a script, run by /usr/bin/env, then /usr/bin/python3"
  void chain() {
    fact("program", printable(program_.path));
    if (program_.files.size() == 1) return;
    std::string text;
    for (size_t i = 1; i < program_.files.size(); ++i) {
      text += (i > 1 ? ", then " : "a script, run by ") + printable(program_.files[i]);
    }
    fact("program", text);
    fact("program", "what the script starts is not looked at");
  }

  static std::string text_of(const RuleAnswer& answer) {
    return answer.policy + (answer.gpus.empty() ? "" : " of GPUs " + printable(answer.gpus));
  }

  /// Says what the machine's rules give the program, if this user starts it with these variables.
  void rules() {
    const MachineRules& rules = machine_.rules;
    const AskedProcess process = started_here(program_);
    Variables variables = machine_.variables;
    replace_if_healthy(variables);
    const Environment environment =
        read_environment([&](const char* name) { return variables.get(name); });
    const RuleAnswer answer = rules.answer(process, environment);
    if (rules.exist()) {
      const RuleAnswer file = rules.answer(process);
      fact("rules", text_of(file) + " by " + printable(file.place));
      if (text_of(answer) != text_of(file)) {
        fact("rules", "with the variables here: " + text_of(answer));
      }
      if (!file.unsure.empty()) fact("rules", "not sure: " + file.unsure);
    }
    if (answer.policy == name_of(Policy::kOff)) {
      because(
          "policy_off", State::kNo,
          "its policy is OFF by " + printable(answer.by) + " (cudaguard run --cpu overrides it)");
    } else if (answer.may_be_off) {
      because("policy_off", State::kInPart, "a rule with OFF may decide (" + answer.unsure + ")");
    }
  }

  void unchecked() {
    const std::string last = printable(program_.files.back());
    if (!program_.not_read.empty()) {
      for (const Hindrance& hindrance : privileges_of(program_.files.back())) {
        because(hindrance.id, State::kNo, hindrance.why);
      }
      because("not_checked", State::kInPart, last + " cannot be checked: " + program_.not_read);
    }
  }

  /// Warns of programs whose children get no LD_PRELOAD, also if this user starts them guarded.
  void children() {
    const std::string name(base_name(program_.path));
    if (std::ranges::find(kNewEnvironment, name) == std::end(kNewEnvironment)) return;
    because("new_environment", State::kInPart,
            "what it starts gets an environment without LD_PRELOAD; to guard that: " + name +
                " cudaguard run -- PROGRAM");
  }

  /// Says what this user, as whom the program runs anyway, does not notice.
  void owner() {
    struct stat status = {};
    if (stat(program_.files.back().c_str(), &status) != 0) return;
    if ((status.st_mode & S_ISUID) == 0 || status.st_uid != getuid()) return;
    fact("program", "it is setuid: if another user starts it, ld.so ignores LD_PRELOAD");
  }

  void scripts() {
    if (!program_.env_words.empty()) {
      because(
          "env_unknown", State::kInPart,
          "it is not known what env starts by its #! line (" + printable(program_.env_words) + ")");
    }
    for (const std::string& path : program_.files) {
      const FileBytes file(path);
      if (read_elf(file).is_elf || !contains(file, kPreload, kScriptText)) continue;
      because("script_preload", State::kInPart,
              "the script sets LD_PRELOAD itself, and may leave the guard out");
    }
  }

  /// Reports null drivers that are missing or damaged.
  void broken_files() {
    for (const OwnFile& file : machine_.own_files) {
      if (!file.null_driver || file.trouble.empty()) continue;
      const std::string what = printable(file.path) + " " + file.trouble;
      // `run` must preload this file.
      const bool needed = std::ranges::count(preloaded_, file.path) != 0;
      if (needed && access(file.path.c_str(), R_OK) != 0) {
        because("null_driver", State::kNo,
                "it is linked to " + std::string(base_name(file.path)) + ", and " + what);
      } else {
        because("installation", State::kInPart, what);
      }
    }
  }

  void fence() {
    // `run --fence` refuses these as well.
    const bool refused =
        std::any_of(findings_.begin(), findings_.end(), [](const Finding& finding) {
          return finding.id == "policy_off" || finding.id == "null_driver";
        });
    const bool foreign = std::ranges::any_of(program_.executables, is_foreign, &Executable::facts);
    if (!machine_.fence.holds || refused || foreign ||
        verdict(findings_) == std::string_view("yes"))
      return;
    fact("with --fence", "it finds no CUDA: cudaguard run --fence");
  }

  /// Warns of programs that do not work under --fence=devices.
  void device_fence() {
    const std::string_view name = base_name(program_.path);
    for (const auto& [start, why] : kNoDeviceFence) {
      if (!name.starts_with(start)) continue;
      fact("with --fence=devices", std::string(why) + "; use --fence, or start cudaguard inside");
      return;
    }
  }

  void look_at(const Executable& executable) {
    const Examined examined = examine(executable, own_, guarded_, true);
    kind(executable, examined);
    for (const Hindrance& hindrance : examined.hindrances) {
      because(hindrance.id, State::kNo, hindrance.why);
    }
    if (examined.kind == Examined::Kind::kStatic && examined.hindrances.empty()) {
      because("static", State::kNo,
              "it is a static executable; dynamic programs that it starts are guarded");
    }
    if (!examined.answer) return;
    const Linked to = linked_to(*examined.answer);
    std::ranges::copy(preloaded_for(to, Policy::kForceCpu, own_), std::back_inserter(preloaded_));
    linked(*examined.answer);
    names(executable, *examined.answer);
  }

  void kind(const Executable& executable, const Examined& examined) {
    const ElfFacts& elf = executable.facts;
    std::string link = elf.type == ET_DYN ? "static-pie, " : "static, ";
    if (elf.type == 0) link = "";  // a file of another class was not read
    if (examined.kind == Examined::Kind::kLoader) link = "loader, ";
    if (examined.kind == Examined::Kind::kLauncher) link = "launcher, ";
    if (!elf.interpreter.empty()) link = "dynamic, ";
    fact("executable", (program_.files.size() == 1 ? "" : printable(executable.path) + ": ") +
                           link + (elf.is_64 ? "64-bit " : "32-bit ") +
                           (elf.little_endian ? machine_name(elf.machine) : "big-endian"));
  }

  /// Reports NVIDIA's libraries that ld.so loads with the program.
  void linked(const LoaderAnswer& answer) {
    for (const LoadedLibrary& library : answer.libraries) {
      const Library kind = classify(library.name).library;
      const std::string name = printable(library.name);
      const std::string path = printable(library.path);
      if (kind == Library::kOther || kind == Library::kLibc) continue;
      fact("linked to", name + ": " + (path.empty() ? "not found" : path));
      if (kind == Library::kRefused) {
        because("linked_refused", State::kInPart,
                "it is linked to " + name + ", which opens the GPU by itself");
        continue;
      }
      const bool driver = kind == Library::kDriver;
      // ld.so uses the preloaded null driver only for a library with exactly its name.
      if (path.empty() ||
          library.name == base_name(driver ? own_.null_driver_cuda : own_.null_driver_nvml))
        continue;
      because("linked_file", State::kInPart, "ld.so maps " + path + " as well as the null driver");
    }
  }

  /// Reports names that the libraries preloaded by `run` export as well.
  void names(const Executable& executable, const LoaderAnswer& answer) {
    for (const ReplacedVariables& one : replaced_variables(executable.path, answer, preloaded_)) {
      because("variable", State::kNo, why_replaced(one));
    }
    const FileBytes file(executable.path);
    const std::set<std::string> exports = read_exports(file).names;
    for (const char* hook : {"dlopen", "dlmopen"}) {
      if (!exports.contains(hook) || has_static_sanitizer(file)) continue;
      because("own_dlopen", State::kInPart,
              std::string("it has a ") + hook + " of its own, which comes before the guard's");
    }
  }

  const Program program_;
  const Machine& machine_;
  const Installation& own_;
  Variables guarded_;  ///< the environment with the guard in LD_PRELOAD
  FindingList& findings_;
  std::vector<std::string> preloaded_ = {own_.guard};  ///< by `run`
};

}  // namespace

std::string ask_program(const std::string& name, const Machine& machine, FindingList& findings) {
  ProgramCheck(name, machine, findings).all();
  return guarded_line(findings);
}

}  // namespace cudaguard::launcher
