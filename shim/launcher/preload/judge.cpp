// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/judge.h"

#include <elf.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/ld_so_cache.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

void hinder(Examined& examined, const char* id, const std::string& why,
            Remedy remedy = Remedy::kFence) {
  examined.hindrances.push_back({id, why, remedy});
}

void check_machine(const ElfFacts& facts, Examined& examined) {
  const std::string ours = "the guard is 64-bit " + machine_name(kMachine);
  if (!facts.little_endian) {
    hinder(examined, "architecture", "it is big-endian, " + ours, Remedy::kNone);
  } else if (!facts.is_64) {
    hinder(examined, "architecture",
           "it is a 32-bit program (" + machine_name(facts.machine) + "), " + ours,
           is_foreign(facts) ? Remedy::kNone : Remedy::kFence);
  } else if (facts.machine != kMachine) {
    hinder(examined, "architecture", "it is for " + machine_name(facts.machine) + ", " + ours,
           Remedy::kNone);
  }
}

/// As in the kernel, a setuid or setgid file changes nothing if the user has that id already. The
/// fence of a user other than root would take these rights away.
void check_rights(const std::string& file, Examined& examined) {
  struct stat status = {};
  struct statvfs system = {};
  const char* path = file.c_str();
  if (stat(path, &status) != 0) return;  // execve reports the error
  if (statvfs(path, &system) == 0 && (system.f_flag & ST_NOSUID) != 0) return;
  const std::string why = ", so ld.so ignores LD_PRELOAD";
  constexpr mode_t kSetgid = S_ISGID | S_IXGRP;
  const bool setuid = (status.st_mode & S_ISUID) != 0;
  const bool setgid = (status.st_mode & kSetgid) == kSetgid;
  const bool hinders_root = (setuid && status.st_uid != 0) || (setgid && status.st_gid != 0);
  const Remedy remedy = getuid() == 0  ? Remedy::kFence
                        : hinders_root ? Remedy::kRootWithFence
                                       : Remedy::kRoot;
  if (setuid && status.st_uid != getuid()) {
    hinder(examined, "setuid", "it is setuid" + why, remedy);
  }
  if (setgid && status.st_gid != getgid()) {
    hinder(examined, "setgid", "it is setgid" + why, remedy);
  }
  if (getuid() != 0 && getxattr(path, "security.capability", nullptr, 0) > 0) {
    hinder(examined, "capabilities", "it has file capabilities" + why, remedy);
  }
}

void check_privileges(const std::string& file, Examined& examined) {
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) check_rights(file, examined);
}

/// A mark in this and later versions. A nested launcher needs no warning: it preloads by itself.
constexpr std::string_view kLauncherMark = "cudaguard-launcher-v1";

bool is_loader(const ElfFacts& facts) {
  return facts.soname.starts_with("ld-linux") || facts.soname.starts_with("ld.so");
}

void examine_static(const Executable& executable, Examined& examined) {
  const FileBytes file(executable.path);
  // The rest of the file, such as an image that the program mounts, may be very long.
  const uint64_t end = executable.facts.loaded_end;
  if (is_loader(executable.facts)) {
    examined.kind = Examined::Kind::kLoader;
  } else if (base_name(executable.path).starts_with("ld-musl")) {
    hinder(examined, "musl", "it is musl's ld.so, the guard is for glibc");
  } else if (contains(file, kLauncherMark, end)) {
    examined.kind = Examined::Kind::kLauncher;
  } else {
    examined.kind = Examined::Kind::kStatic;
    // Every static program of glibc has its ld.so inside, with this message, of which others have
    // no copy. musl's dlopen always fails in a static program, and Go's and Rust's own code has
    // none.
    const bool loads = contains(file, "cannot create shared object descriptor", end);
    if (loads && contains(file, "libcuda.so", end)) {
      hinder(examined, "static_driver", "it is a static executable and names libcuda.so");
    }
  }
}

bool is_for_musl(const ElfFacts& facts) {
  const std::string_view name = base_name(facts.interpreter);
  return name.starts_with("ld-musl") ||
         (!name.starts_with("ld-") && contains(FileBytes(facts.interpreter), "musl libc"));
}

/// The reason that ld.so gives for ignoring the guard.
std::string reason_for(const LoaderAnswer& answer, const std::string& guard) {
  if (!answer.trouble.empty()) return "its ld.so " + answer.trouble;
  std::string last;
  std::istringstream lines(answer.errors);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
    if (line.find("'" + guard + "'") != std::string::npos) break;
  }
  if (last.empty()) return "its ld.so does not load " + printable(guard);
  return "its ld.so says: " + printable(last);
}

void examine_dynamic(const Executable& executable, const Installation& installation,
                     const Variables& variables, bool all, Examined& examined) {
  // Only glibc's ld.so is started; any other interpreter would be untrusted code.
  const std::string& interpreter = executable.facts.interpreter;
  const FileBytes loader(interpreter);
  const ElfFacts facts = read_elf(loader);
  if (loader.error() == 0 && !(is_loader(facts) && facts.interpreter.empty())) {
    const std::string why = in_quotes(interpreter) + " is not glibc's ld.so";
    if (!facts.is_elf)
      throw Refusal(kCannotRun, "the interpreter of " + in_quotes(executable.path) + ", " + why);
    hinder(examined, "loader", "its interpreter " + why);
    return;
  }
  if (!all) examined.answer = answer_from_cache(executable, variables, installation.guard);
  if (!examined.answer) examined.answer = ask_loader(interpreter, executable.path, variables);
  const LoadedLibrary* guard = examined.answer->find(installation.guard);
  if (guard == nullptr || guard->path.empty()) {
    hinder(examined, "loader", reason_for(*examined.answer, installation.guard));
  }
}

/// Notes the libraries that must be preloaded besides the guard.
void note_libraries(const LoaderAnswer& answer, Judged& judged) {
  const Linked linked = linked_to(answer);
  judged.linked.cuda |= linked.cuda;
  judged.linked.nvml |= linked.nvml;
  for (const LoadedLibrary& library : answer.libraries) {
    if (library.name == library.path || !is_sanitizer_runtime(library.name)) continue;
    // If LD_PRELOAD cannot carry the path, the sanitizer prints its own message.
    if (!can_be_preloaded(library.path)) continue;
    if (std::ranges::count(judged.sanitizers, library.path) == 0) {
      judged.sanitizers.push_back(library.path);
    }
  }
}

/// What the user of this command can do: a clause with a semicolon, or empty.
std::string advice(Remedy remedy, const RunContext& context) {
  const bool fence = remedy == Remedy::kFence || remedy == Remedy::kRootWithFence;
  const bool root = remedy == Remedy::kRoot || remedy == Remedy::kRootWithFence;
  if (remedy == Remedy::kNone || (fence && context.strict)) return "";
  if (!root && context.fence_tried) return "";
  if (context.verifies) {
    return root ? "; to check it: sudo cudaguard verify -- PROGRAM" : "; leave out --fence=off";
  }
  return std::string("; to run it without CUDA: ") + (root ? "sudo " : "") + "cudaguard run" +
         (fence ? " --fence" : " -- PROGRAM");
}

/// Refuses, or warns if there is a fence.
void note_unguarded(const std::string& path, const std::string& why, const RunContext& context,
                    Judged& judged, Remedy remedy = Remedy::kFence) {
  if ((context.fenced || context.listed) && !context.strict) {
    judged.unguarded = why;
    if (context.errors_only) return;  // the fence holds, so this is no error
    const std::string fence =
        context.listed ? "); the fence leaves it only the listed GPUs"
                       : std::string("); the fence refuses CUDA, ") +
                             (context.records_ioctls ? "and the result lists its ioctls"
                                                     : "but no message names the caller");
    judged.warnings.push_back(in_quotes(path) + " is not guarded (" + why + fence);
    return;
  }
  throw Refusal(kRefused, in_quotes(path) + " cannot be guarded: " + why + advice(remedy, context));
}

/// Refuses, or warns once.
void note_unchecked(const std::string& path, const std::string& why, const RunContext& context,
                    Judged& judged) {
  const std::string subject = in_quotes(path) + " cannot be checked: " + why;
  if (context.strict) throw Refusal(kRefused, subject + "; without --strict it is started");
  if (std::exchange(judged.unchecked, true)) return;
  judged.linked = {true, true};
  judged.warnings.push_back(subject +
                            "; it is started as a program that is linked to the driver "
                            "(--strict refuses)");
}

/// Like examine(), or only what is known if no process can be started.
Examined examine_if_possible(const Executable& executable, const Installation& installation,
                             const Variables& variables, const RunContext& context,
                             Judged& judged) {
  try {
    return examine(executable, installation, variables, false);
  } catch (const Shortage& shortage) {
    if (context.observed) throw;  // the program needs a process as well
    note_unchecked(executable.path, shortage.what(), context, judged);
  }
  for (const std::string& name : executable.facts.needed) {
    if (is_sanitizer_runtime(name)) judged.sanitizers.push_back(name);
  }
  return {};
}

/// Excludes glibc, NVIDIA's libraries, which export only functions, and the vDSO, which has no
/// path. A path may be relative, because a run path may be.
bool may_have_variables(const LoadedLibrary& library) {
  const Library kind = classify(library.name).library;
  return library.path.find('/') != std::string::npos && library.name != "libc.so.6" &&
         !base_name(library.path).starts_with("ld-linux") && kind != Library::kDriver &&
         kind != Library::kNvml;
}

std::shared_ptr<const ElfFile> opened(const LoadedLibrary& library) {
  return library.file ? library.file : std::make_shared<const ElfFile>(library.path);
}

}  // namespace

std::string machine_name(uint16_t machine) {
  constexpr std::pair<uint16_t, const char*> kNames[] = {
      {EM_X86_64, "x86-64"}, {EM_AARCH64, "AArch64"}, {EM_386, "i386"},
      {EM_ARM, "ARM"},       {EM_PPC64, "POWER"},     {EM_RISCV, "RISC-V"}};
  for (const auto& [number, name] : kNames) {
    if (number == machine) return name;
  }
  return "machine " + std::to_string(machine);
}

bool is_foreign(const ElfFacts& facts) {
  return facts.machine != kMachine && facts.machine != kOlderMachine;
}

bool loses_rights(const std::string& path) {
  Examined examined;
  check_rights(path, examined);
  return getuid() != 0 && !examined.hindrances.empty();
}

std::vector<Hindrance> privileges_of(const std::string& path) {
  Examined examined;
  check_privileges(path, examined);
  return examined.hindrances;
}

Examined examine_file(const Executable& executable) {
  Examined examined;
  check_machine(executable.facts, examined);
  // A file of another class was not read, so its interpreter is unknown.
  if (!examined.hindrances.empty()) return examined;
  if (executable.facts.interpreter.empty()) {
    examine_static(executable, examined);
  } else if (is_for_musl(executable.facts)) {
    hinder(examined, "musl", "it is for musl, the guard is for glibc");
  }
  return examined;
}

Examined examine(const Executable& executable, const Installation& installation,
                 const Variables& variables, bool all) {
  Examined examined = examine_file(executable);
  const bool hindered = !examined.hindrances.empty();
  if (!hindered || all) check_privileges(executable.path, examined);
  if (hindered || executable.facts.interpreter.empty()) return examined;
  if (examined.hindrances.empty() || all) {
    examine_dynamic(executable, installation, variables, all, examined);
  }
  return examined;
}

Linked linked_to(const LoaderAnswer& answer) {
  Linked linked;
  for (const LoadedLibrary& library : answer.libraries) {
    // Includes libraries linked by path, or by the name of a driver without a SONAME.
    const Library kind = classify(library.name).library;
    linked.cuda |= kind == Library::kDriver;
    linked.nvml |= kind == Library::kNvml;
  }
  return linked;
}

std::vector<std::string> preloaded_for(Linked linked, Policy policy,
                                       const Installation& installation) {
  std::vector<std::string> files;
  if (policy == Policy::kOff) return files;
  const bool cpu = policy == Policy::kForceCpu;
  if (linked.cuda) files.push_back(cpu ? installation.null_driver_cuda : installation.proxy_cuda);
  if (linked.nvml) files.push_back(cpu ? installation.null_driver_nvml : installation.proxy_nvml);
  return files;
}

Judged judge(const Program& program, const Installation& installation, const Variables& variables,
             const RunContext& context) {
  Judged judged;
  for (const Executable& executable : program.executables) {
    const Examined examined =
        examine_if_possible(executable, installation, variables, context, judged);
    if (!examined.hindrances.empty()) {
      const Hindrance& first = examined.hindrances.front();
      note_unguarded(executable.path, first.why, context, judged, first.remedy);
    } else if (examined.kind == Examined::Kind::kStatic &&
               (context.strict || context.fenced || context.listed)) {
      note_unguarded(executable.path, "it is a static executable", context, judged);
    } else if (examined.kind == Examined::Kind::kStatic) {
      judged.warnings.push_back(
          in_quotes(executable.path) +
          " is a static executable, not guarded (dynamic programs that it starts are)" +
          (context.fence_tried ? "" : "; to keep it off CUDA: --fence"));
    }
    if (examined.kind == Examined::Kind::kLoader) {
      judged.warnings.push_back(in_quotes(executable.path) +
                                " is ld.so: the program that it starts is not checked; to check "
                                "it, run that program itself");
    }
    if (examined.answer) {
      note_libraries(*examined.answer, judged);
      judged.answers.emplace_back(executable.path, *examined.answer);
    }
  }
  if (!program.not_read.empty()) {
    const std::vector<Hindrance> hindrances = privileges_of(program.files.back());
    if (hindrances.empty()) {
      note_unchecked(program.files.back(), program.not_read, context, judged);
    } else {
      const Hindrance& first = hindrances.front();
      note_unguarded(program.files.back(), first.why, context, judged, first.remedy);
    }
  }
  if (program.unknown) {
    const std::string subject =
        in_quotes(program.files.back()) + " is neither an ELF file nor a script";
    if (context.strict) throw Refusal(kRefused, subject + "; without --strict it is started");
    judged.warnings.push_back(subject +
                              "; the kernel decides what starts it, and that is not checked "
                              "(--strict refuses)");
  }
  if (!program.env_words.empty()) {
    // An unguarded program reports nothing, which would count as a PASS.
    if (context.observed && !context.records_ioctls) {
      throw Refusal(kRefused, in_quotes(program.path) +
                                  " may not be guarded, because its #! line "
                                  "gives env options (" +
                                  printable(program.env_words) +
                                  "); start its interpreter instead");
    }
    note_unchecked(
        program.path,
        "it is not known what env starts by its #! line (" + printable(program.env_words) + ")",
        context, judged);
  }
  return judged;
}

std::vector<ReplacedVariables> replaced_variables(const std::string& executable,
                                                  const LoaderAnswer& answer,
                                                  const std::vector<std::string>& preloaded) {
  std::vector<const LoadedLibrary*> libraries;
  for (const LoadedLibrary& library : answer.libraries) {
    const bool own = std::find(preloaded.begin(), preloaded.end(), library.path) != preloaded.end();
    if (!own && may_have_variables(library)) libraries.push_back(&library);
  }
  if (libraries.empty()) return {};
  std::set<std::string> ours;
  for (const std::string& file : preloaded) ours.merge(read_exports(FileBytes(file)).names);
  const std::vector<uint32_t> hashes = gnu_hashes(ours);
  std::vector<ReplacedVariables> found;
  for (const LoadedLibrary* library : libraries) {
    ReplacedVariables variables = {library->path, {}};
    const auto file = opened(*library);
    if (!may_export(file->bytes, file->facts, hashes)) continue;
    std::ranges::set_intersection(read_exports(file->bytes, Exports::kVariables).names, ours,
                                  std::back_inserter(variables.names));
    if (!variables.names.empty()) found.push_back(std::move(variables));
  }
  if (found.empty()) return found;
  // The executable's own definition comes before ours. A copy of a library's variable does not
  // count: ld.so fills it from the first library with that name, which is the guard.
  const FileBytes program(executable);
  std::set<std::string> looked_up = read_references(program).names;
  for (const LoadedLibrary* library : libraries) {
    looked_up.merge(read_references(opened(*library)->bytes).names);
  }
  std::set<std::string> defined = read_exports(program).names;
  for (const std::string& name : read_references(program, References::kCopies).names) {
    defined.erase(name);
  }
  for (ReplacedVariables& variables : found) {
    std::erase_if(variables.names, [&](const std::string& name) {
      return !looked_up.contains(name) || defined.contains(name);
    });
  }
  std::erase_if(found, [](const ReplacedVariables& variables) { return variables.names.empty(); });
  return found;
}

std::string why_replaced(const ReplacedVariables& variables) {
  const std::string library = printable(base_name(variables.library));
  const std::string name = printable(variables.names.front());
  const size_t count = variables.names.size();
  if (count == 1) {
    return library + " has a variable " + name + ", which cudaguard's function would replace";
  }
  return library + " has " + std::to_string(count) + " variables such as " + name +
         ", which cudaguard's functions would replace";
}

bool can_preload(const std::vector<std::string>& own, const RunContext& context, Judged& judged) {
  for (const auto& [executable, answer] : judged.answers) {
    const std::vector<ReplacedVariables> replaced = replaced_variables(executable, answer, own);
    if (replaced.empty()) continue;
    const std::string why = why_replaced(replaced.front());
    // An unguarded program reports nothing, which would count as a PASS.
    if (context.observed || !(context.fenced || context.listed) || context.strict) {
      throw Refusal(kRefused, in_quotes(executable) + " cannot be guarded: " + why +
                                  (context.verifies ? "" : advice(Remedy::kFence, context)));
    }
    note_unguarded(executable, why, context, judged);
    return false;
  }
  return true;
}

}  // namespace cudaguard::launcher
