// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/program_facts.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/doctor/cuda_runtime.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/doctor/run_path.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";
// An installer's script may have gigabytes behind it.
constexpr uint64_t kScriptText = uint64_t{1} << 20;
// By which the guard knows a stand-in.
constexpr const char* kClaim = "cudaguard_standin_claim_v1";

/// Where the file really is, which is ld.so's $ORIGIN of an executable.
std::string real_path(const std::string& path) {
  char buffer[PATH_MAX];
  return realpath(path.c_str(), buffer) == nullptr ? path : buffer;
}

/// A file that belongs to the program: itself, or a library of ld.so's answer.
struct OwnFile {
  std::string path;
  ElfFacts facts;
};

bool is_ours(const std::string& path, const Installation& installation) {
  return path == installation.guard || folder_of(path) == folder_of(installation.standin_cuda);
}

/// The executable, then what ld.so loads with it; neither our files nor the kernel's.
std::vector<OwnFile> own_files(const ExecutableFacts& facts, const Installation& installation) {
  std::vector<OwnFile> files;
  files.push_back({facts.executable.path, facts.executable.facts});
  if (!facts.examined.answer) return files;
  for (const LoadedLibrary& library : facts.examined.answer->libraries) {
    if (library.path.empty() || library.name.starts_with("linux-vdso") ||
        is_ours(library.path, installation)) {
      continue;
    }
    files.push_back({library.path, read_elf(FileBytes(library.path))});
  }
  return files;
}

void find_privileges(ExecutableFacts& facts) {
  struct stat status = {};
  const char* path = facts.executable.path.c_str();
  if (stat(path, &status) != 0) return;
  constexpr mode_t kSetgid = S_ISGID | S_IXGRP;
  facts.setuid = (status.st_mode & S_ISUID) != 0;
  facts.setgid = (status.st_mode & kSetgid) == kSetgid;
  facts.capabilities = getxattr(path, "security.capability", nullptr, 0) > 0;
}

void find_linked(const std::vector<OwnFile>& files, ExecutableFacts& facts) {
  for (const LoadedLibrary& library : facts.examined.answer->libraries) {
    const Library kind = classify(library.name).library;
    if (kind == Library::kOther) {
      if (library.path.empty()) facts.not_found.push_back(library.name);
      continue;
    }
    facts.links_driver = facts.links_driver || kind == Library::kDriver;
    facts.links_nvml = facts.links_nvml || kind == Library::kNvml;
    LinkedLibrary linked = {library.name, library.path, {}};
    for (const OwnFile& file : files) {
      const std::vector<std::string>& needed = file.facts.needed;
      if (std::find(needed.begin(), needed.end(), library.name) != needed.end()) {
        linked.needed_by.push_back(file.path);
      }
    }
    facts.linked.push_back(std::move(linked));
  }
}

struct SanitizerKind {
  const char* name;
  std::array<std::string_view, 2> libraries;
  const char* start;  ///< of a static runtime
};
constexpr SanitizerKind kSanitizers[] = {
    {"hwaddress", {"libhwasan", "libclang_rt.hwasan"}, "__hwasan_init"},
    {"address", {"libasan", "libclang_rt.asan"}, "__asan_init"},
    {"thread", {"libtsan", "libclang_rt.tsan"}, "__tsan_init"},
    {"leak", {"liblsan", "libclang_rt.lsan"}, "__lsan_init"},
    {"memory", {"libmsan", "libclang_rt.msan"}, "__msan_init"},
    {"undefined", {"libubsan", "libclang_rt.ubsan"}, "__ubsan_handle_add_overflow"}};

const char* sanitizer_of(std::string_view library) {
  if (!is_sanitizer_runtime(library)) return nullptr;
  for (const SanitizerKind& kind : kSanitizers) {
    for (const std::string_view start : kind.libraries) {
      if (base_name(library).starts_with(start)) return kind.name;
    }
  }
  return nullptr;
}

void find_sanitizers(const std::vector<OwnFile>& files, ExecutableFacts& facts) {
  for (const LoadedLibrary& library : facts.examined.answer->libraries) {
    const char* kind = sanitizer_of(library.name);
    if (kind != nullptr) {
      facts.sanitizers.push_back({kind, std::string(base_name(library.name)), library.path});
    }
  }
  const std::set<std::string> names = exported_names({files.front().path});
  for (const SanitizerKind& kind : kSanitizers) {
    if (names.count(kind.start) == 0) continue;
    facts.sanitizers.push_back({kind.name, "", ""});
    return;  // the others' entries come with it
  }
  // gcc's -static-libasan hides its entries, but takes dlopen over all the same.
  if (names.count("dlopen") != 0 && contains(FileBytes(files.front().path), "ASAN_OPTIONS")) {
    facts.sanitizers.push_back({"address", "", ""});
  }
}

void find_runtimes(const std::vector<OwnFile>& files, ExecutableFacts& facts) {
  for (const OwnFile& file : files) {
    if (classify(file.path).library != Library::kOther) continue;
    const std::string_view name =
        file.facts.soname.empty() ? base_name(file.path) : std::string_view(file.facts.soname);
    const bool shared = name.starts_with("libcudart.so");
    const CudaRuntime runtime = find_cuda_runtime(FileBytes(file.path), file.facts.machine);
    if (!shared && !runtime.found) continue;
    facts.runtimes.push_back({file.path, shared ? std::string(name) : "", runtime.version});
  }
  for (const std::string& name : facts.not_found) {
    if (base_name(name).starts_with("libcudart.so")) facts.runtimes.push_back({"", name, ""});
  }
}

void find_copies(const std::vector<OwnFile>& files, const Installation& installation,
                 ExecutableFacts& facts) {
  std::set<std::string> seen;
  for (const OwnFile& file : files) {
    const bool first = &file == &files.front();
    for (const std::string& folder :
         run_path_folders(file.facts.run_path, first ? real_path(file.path) : file.path)) {
      for (std::string& path : drivers_in(folder)) {
        if (is_ours(real_path(path), installation) || !seen.insert(path).second) continue;
        facts.copies.push_back({std::move(path), file.path});
      }
    }
  }
}

std::vector<std::string> standins_for(const ExecutableFacts& facts,
                                      const Installation& installation) {
  std::vector<std::string> files = {installation.guard};
  if (facts.links_driver) files.push_back(installation.standin_cuda);
  if (facts.links_nvml) files.push_back(installation.standin_nvml);
  return files;
}

/// Asked once more as `run` starts it: a driver that is needed by a path is loaded beside the
/// stand-in.
void find_mapped(const Installation& installation, const Variables& variables,
                 ExecutableFacts& facts) {
  if (facts.linked.empty() || !facts.examined.answer->in_time) return;
  Variables own = variables;
  own.set(kPreload, preload_list(variables.get(kPreload), {}, standins_for(facts, installation)));
  const LoaderAnswer answer =
      ask_loader(facts.executable.facts.interpreter, facts.executable.path, own);
  for (const LoadedLibrary& library : answer.libraries) {
    if (classify(library.name).library != Library::kOther && !library.path.empty() &&
        !is_ours(library.path, installation)) {
      facts.mapped.push_back(library.path);
    }
  }
}

void find_names(const std::vector<OwnFile>& files, const Installation& installation,
                ExecutableFacts& facts) {
  std::vector<std::string> paths;
  paths.reserve(files.size());
  for (const OwnFile& file : files) paths.push_back(file.path);
  facts.names = find_own_names(paths, exported_names(standins_for(facts, installation)));
}

ExecutableFacts facts_of(const Executable& executable, const Installation& installation,
                         const Variables& variables) {
  ExecutableFacts facts;
  facts.executable = executable;
  facts.examined = examine(executable, installation, variables, true);
  find_privileges(facts);
  const std::vector<OwnFile> files = own_files(facts, installation);
  if (facts.examined.answer) {
    find_linked(files, facts);
    find_mapped(installation, variables, facts);
    find_sanitizers(files, facts);
    find_names(files, installation, facts);
  }
  find_runtimes(files, facts);
  find_copies(files, installation, facts);
  return facts;
}

std::vector<BrokenFile> find_broken(const Installation& installation) {
  std::vector<BrokenFile> broken;
  for (const std::string& path : {installation.standin_cuda, installation.standin_nvml}) {
    const bool missing = FileBytes(path).error() != 0;
    if (missing || exported_names({path}).count(kClaim) == 0) broken.push_back({path, missing});
  }
  const std::string folder(folder_of(installation.standin_cuda));
  for (const char* name : {"libcuda.so", "libnvidia-ml.so", "libnvidia-opencl.so.1"}) {
    const std::string path = folder + "/" + name;
    if (access(path.c_str(), R_OK) != 0) broken.push_back({path, true});
  }
  return broken;
}

}  // namespace

ProgramFacts find_program_facts(const std::string& name, const Installation& installation,
                                const Variables& variables) {
  ProgramFacts facts;
  facts.name = name;
  facts.program = find_program(name, variables.get("PATH"));
  Variables own = variables;
  own.set(kPreload, preload_list(variables.get(kPreload), {}, {installation.guard}));
  for (const Executable& executable : facts.program.executables) {
    facts.executables.push_back(facts_of(executable, installation, own));
  }
  for (const std::string& file : facts.program.files) {
    const FileBytes bytes(file);
    if (!read_elf(bytes).is_elf && contains(bytes, kPreload, kScriptText))
      facts.script_preloads = true;
  }
  facts.off = config_of(variables).policy == Policy::kOff;
  facts.broken = find_broken(installation);
  return facts;
}

}  // namespace cudaguard::launcher
