// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/policies.h"
#include "shim/launcher/commands/commands.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/preload/machine_rules.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/rule_warnings.h"
#include "shim/launcher/system/guard_file.h"
#include "shim/launcher/system/preload_file.h"
#include "shim/launcher/system/processes.h"
#include "shim/launcher/system/spool.h"
#include "shim/launcher/system/try_programs.h"

namespace cudaguard::launcher {

namespace {

/// Makes this directory the root directory. Returns the path without links.
std::string enter(const std::string& directory) {
  char resolved[PATH_MAX];
  if (realpath(directory.c_str(), resolved) == nullptr || chroot(resolved) != 0 ||
      chdir("/") != 0) {
    throw Refusal(kRefused, "--root " + in_quotes(directory) + ": " + strerror(errno));
  }
  return resolved;
}

/// Returns the executable of a program. A path may be of one that is not installed here.
std::string executable_named(const std::string& name) {
  if (name.starts_with("/") && access(name.c_str(), F_OK) != 0) return name;
  return executable_of(find_program(name, getenv("PATH")));
}

/// Returns the process that the options describe, or nothing.
std::optional<AskedProcess> process_of(const Options& options) {
  AskedProcess process;
  if (options.asked_program) process.program = executable_named(*options.asked_program);
  process.args = options.asked_args;
  if (options.asked_cgroup) process.cgroups = "0::" + *options.asked_cgroup;
  if (options.asked_user) add_user(*options.asked_user, process);
  for (const std::string& group : options.asked_groups) add_group(group, process);
  const bool some =
      process.program || process.args || process.cgroups || process.user || process.groups;
  return some ? std::optional(process) : std::nullopt;
}

std::string text_of_answer(const AskedProcess& process, const RuleAnswer& answer) {
  std::string text;
  const auto row = [&](const char* name, const std::string& value) {
    text.append(name).append(": ").append(value).append("\n");
  };
  if (process.program) row("program", printable(*process.program));
  row("policy", answer.policy);
  row("rule", answer.rule.empty() ? printable(answer.place)
                                  : printable(answer.place) + ": " + printable(answer.rule));
  row("gpus", answer.policy == name_of(Policy::kForceCpu) ? "none"
              : answer.gpus.empty()                       ? "all"
                                                          : printable(answer.gpus));
  row("log", answer.log);
  row("report", answer.report.empty() ? "none" : printable(answer.report));
  if (answer.may_widen) row("variables", "may allow more");
  if (!answer.unsure.empty()) {
    row("not sure", answer.unsure + ": this is the case that allows less");
  }
  return text;
}

/// Prints a file's mistakes, and what a process gets.
int check(const Options& options) {
  // The path of a file that the user names is not one in DIR.
  std::optional<MachineRules> named;
  if (*options.program != nullptr) named.emplace(*options.program);
  if (options.system_directory) enter(*options.system_directory);
  const MachineRules rules = named ? *std::move(named) : MachineRules();
  if (!rules.exist()) {
    print("/etc/cudaguard.conf is not there: no rules are read, and variables alone decide.\n");
    if (!has_more_files()) return 0;
    print(
        "The files of /etc/cudaguard.conf.d are not read; make /etc/cudaguard.conf, which may be "
        "empty.\nmistakes: 1\n");
    return 1;
  }
  const std::vector<std::string> mistakes = rules.mistakes();
  std::string text;
  for (const std::string& file : rules.summary()) text += file + "\n";
  text += rules.for_others() + "\n";
  for (const std::string& mistake : mistakes) text += mistake + "\n";
  text += "mistakes: " + (mistakes.empty() ? "none" : grouped(mistakes.size())) + "\n";
  if (const std::optional<AskedProcess> asked = process_of(options)) {
    text += "\n" + text_of_answer(*asked, rules.answer(*asked));
  }
  print(text);
  return mistakes.empty() ? 0 : 1;
}

/// Enters the root directory and returns the path of the guard in it.
std::string guard_inside(const Options& options) {
  std::string guard =
      *options.program == nullptr ? expected_installation().guard : *options.program;
  if (!options.system_directory) return guard;
  const std::string system_directory = enter(*options.system_directory);
  if (guard.starts_with(system_directory + "/")) guard.erase(0, system_directory.size());
  return guard;
}

/// Makes the directory for records. Returns what to print about it.
std::string make_spool(const Options& options, const std::optional<Spool>& spool) {
  if (!spool) return "";
  if (options.dry_run && !spool->is_there()) return spool->path() + " would be made.\n";
  spool->make();
  return spool->path() +
         " has the records of programs whose rule in /etc/cudaguard.conf has report=" +
         spool->path() + "/.\n";
}

/// Prints the new text if it is not to be written.
int finish(const PreloadFile& file, const std::string& text, const Options& options,
           const std::string& done) {
  if (options.dry_run) {
    print(std::string(kPreloadFile) + " would be:\n" + text);
    return 0;
  }
  file.replace(text);
  print(done);
  return 0;
}

/// Prints the mistakes of the rules that all programs will have. Throws Refusal if it is left open
/// what most of them get.
void check_before_enabling() {
  const MachineRules rules;
  if (!rules.exist()) return;
  const std::string why = rules.no_default();
  for (const std::string& mistake : rules.mistakes()) {
    if (mistake != why) warn(mistake);
  }
  if (!why.empty()) throw Refusal(kRefused, why);
}

int enable(const std::string& guard, const Options& options) {
  check_before_enabling();
  if (const std::string why = why_unfit(guard); !why.empty()) {
    throw Refusal(kRefused,
                  in_quotes(guard) + " " + (options.system_directory ? "(in --root) " + why : why));
  }
  const PreloadFile file;
  std::optional<Spool> spool;
  if (options.spool) spool.emplace(*options.spool);
  std::string removed;
  const auto is_other = [&](const std::string& entry) {
    return is_guard(entry) || means_file(entry, guard);
  };
  const std::string text = file.changed(is_other, guard);
  std::string shown = "Programs that were tried with " + printable(guard) + ":\n";
  for (const TriedProgram& program : try_programs(guard)) {
    const std::string how = program.why_not.empty() ? "guarded" : "not guarded: " + program.why_not;
    std::string name = "  " + program.path;
    name.resize(std::max(name.size() + 1, size_t{25}), ' ');
    add_wrapped(shown, name, how);
  }
  print(shown + make_spool(options, spool));
  if (text == file.text()) {
    // The new file is root's, for every user to read.
    const std::string why = why_not_roots(kPreloadFile);
    if (!why.empty()) {
      return finish(file, text, options,
                    std::string(kPreloadFile) +
                        " already names it, and now has mode 644 and belongs to root (before: " +
                        why + ").\n");
    }
    print(std::string(kPreloadFile) + " already names it, and is unchanged.\n");
    return 0;
  }
  for (const std::string& entry : file.entries()) {
    if (is_other(entry) && entry != guard) removed += " instead of " + printable(entry);
  }
  return finish(file, text, options,
                std::string(kPreloadFile) + " now names it" + removed +
                    ". Programs that start from now on load it.\n");
}

int disable(const std::string& guard, const Options& options) {
  const PreloadFile file;
  const auto is_ours = [&](const std::string& entry) { return means_file(entry, guard); };
  const std::string text = file.changed(is_ours, "");
  for (const std::string& entry : preloads_of(text)) {
    if (is_guard(entry))
      warn(std::string(kPreloadFile) + " also names " + printable(entry) +
           ", another guard (kept)");
  }
  if (text == file.text()) {
    print(std::string(kPreloadFile) + " does not name " + printable(guard) + ".\n");
    return 0;
  }
  return finish(file, text, options,
                std::string(kPreloadFile) + " no longer names " + printable(guard) +
                    ". Programs that run keep it until they end.\n");
}

/// Returns the entries of the file that are guards.
std::vector<std::string> guards_of(const PreloadFile& file) {
  std::vector<std::string> guards = file.entries();
  std::erase_if(guards, [](const std::string& entry) { return !is_guard(entry); });
  return guards;
}

int status() {
  const std::vector<std::string> guards = guards_of(PreloadFile());
  std::string text;
  bool well = !guards.empty();
  for (const std::string& guard : guards) {
    const std::string why = why_unfit(guard);
    well &= why.empty();
    text +=
        std::string(kPreloadFile) + " names " + printable(guard) +
        (why.empty() ? ", version " + printable(version_of(FileBytes(guard))) : ", which " + why) +
        ".\n";
  }
  if (guards.empty()) {
    text += std::string(kPreloadFile) + " names no guard.\n";
  } else if (const std::string why = why_not_roots(kPreloadFile); !why.empty()) {
    well = false;
    text += std::string("Use cudaguard system enable to correct ") + kPreloadFile + ", which " +
            why + ".\n";
  } else if (const std::string above = why_not_roots_path(kPreloadFile); !above.empty()) {
    well = false;
    text += std::string(kPreloadFile) + " " + above + ".\n";
  }
  if (!has_own_numbers()) {
    print(text + "Processes are not listed: there is no /proc.\n");
    return well ? 0 : 1;
  }
  size_t due = 0;
  for (const ProcessGroup& group : look_at_processes(guards)) {
    text += group.what + ": " + counted(group.processes.size(), "process") + "\n";
    add_wrapped(text, "  ", joined(group.processes, ", "));
    if (group.due) due += group.processes.size();
  }
  print(text + "restart due: " + (due == 0 ? "no" : counted(due, "process")) + "\n");
  return well && due == 0 ? 0 : 1;
}

}  // namespace

int whole_system(const Options& options) {
  if (options.action == Options::Action::kCheck) return check(options);
  const std::string guard = guard_inside(options);
  switch (options.action) {
    case Options::Action::kEnable:
      return enable(guard, options);
    case Options::Action::kDisable:
      return disable(guard, options);
    case Options::Action::kStatus:
      return status();
    case Options::Action::kCheck:
      break;
  }
  return 0;
}

}  // namespace cudaguard::launcher
