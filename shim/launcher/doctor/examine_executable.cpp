// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/examine_executable.h"

#include <elf.h>

#include <algorithm>
#include <set>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/replaced_variables.h"

namespace cudaguard::launcher {

namespace {

using Texts = std::vector<std::string>;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + printable(word);
  return text;
}

/// NVIDIA's CUDA runtime, linked in statically: the text of an error, and a row of its table of
/// callback names. Both are in the runtimes 11.1 to 13.5, also where the linker dropped unused
/// sections; none of the driver, NVML, CUPTI, nvrtc, nvJitLink has them. (In two parts: whole, they
/// would be in this executable.)
bool has_static_runtime(const FileBytes& file) {
  return has_constant(file, std::string("CUDA driver version is insufficient") +
                                " for CUDA runtime version") &&
         has_constant(file, std::string("cudaD3D9") + "GetDevice");
}

/// Looks at one executable and says what it sees, subject by subject.
class Look {
 public:
  Look(const Executable& executable, const Surroundings& around, Reasons& reasons)
      : executable_(executable),
        around_(around),
        own_(around.installation),
        reasons_(reasons),
        examined_(examine(executable, own_, around.variables, true)) {}

  Rows all() {
    find_files();
    kind();
    linked();
    runtimes();
    sanitizers();
    names();
    return rows_;
  }

 private:
  struct File {
    std::string path;
    ElfFacts facts;
  };

  void add(const char* id, Json value, Lines lines = {}) {
    rows_.push_back({id, std::move(value), std::move(lines)});
  }
  void because(const char* id, Hold run, Hold preload, const std::string& file,
               const std::string& why) {
    reasons_.push_back({id, run, preload, file, why});
  }
  bool is_ours(const std::string& path) const {
    return path == own_.guard || folder_of(path) == folder_of(own_.standin_cuda);
  }
  const std::vector<LoadedLibrary>& loaded() const {
    static const std::vector<LoadedLibrary> none;
    return examined_.answer ? examined_.answer->libraries : none;
  }
  bool is_last() const { return &executable_ == &around_.program.executables.back(); }

  /// The executable, then what ld.so loads with it; neither our files nor the kernel's.
  void find_files() {
    files_.push_back({executable_.path, executable_.facts});
    for (const LoadedLibrary& library : loaded()) {
      if (library.path.empty() || library.name.starts_with("linux-vdso") || is_ours(library.path)) {
        continue;
      }
      files_.push_back({library.path, read_elf(FileBytes(library.path))});
    }
  }

  std::string link() const {
    using Kind = Examined::Kind;
    const ElfFacts& elf = executable_.facts;
    if (elf.type == 0) return {};  // of a class that was not read
    if (!elf.interpreter.empty()) return "dynamic";
    if (examined_.kind == Kind::kLoader) return "loader";
    if (examined_.kind == Kind::kLauncher) return "launcher";
    return elf.type == ET_DYN ? "static-pie" : "static";
  }

  void kind() {
    const ElfFacts& elf = executable_.facts;
    const std::string machine = elf.little_endian ? machine_name(elf.machine) : "";
    const std::string type = link();
    const bool alone = around_.program.files.size() == 1;
    add("path", executable_.path);
    add("link", or_null(type));
    add("bits", elf.is_64 ? 64 : 32);
    add("machine", or_null(machine),
        named("executable", {(alone ? "" : printable(executable_.path) + ": ") + type +
                             (type.empty() ? "" : ", ") + (elf.is_64 ? "64-bit " : "32-bit ") +
                             (machine.empty() ? "big-endian" : machine)}));
    // A privileged program's ld.so ignores LD_PRELOAD.
    const bool loads = examined_.hindrances.empty();
    std::string loader = printable(elf.interpreter);
    if (examined_.answer) loader += loads ? ", loads the guard" : ", does not load the guard";
    add("interpreter", or_null(elf.interpreter),
        named("ld.so", {elf.interpreter.empty() ? "" : loader}));
    add("loads_guard", examined_.answer ? Json(loads) : Json());
    for (const Hindrance& hindrance : examined_.hindrances) {
      because(hindrance.id, Hold::kNo, Hold::kNo, executable_.path, hindrance.why);
    }
    if (examined_.kind == Examined::Kind::kStatic && loads) {
      because("static", Hold::kNo, Hold::kNo, executable_.path,
              "it is a static executable; dynamic programs that it starts are guarded");
    }
  }

  /// NVIDIA's libraries that ld.so loads with it.
  void linked() {
    Json list = Json::array();
    Texts texts;
    for (const LoadedLibrary& library : loaded()) {
      const Library kind = classify(library.name).library;
      if (kind == Library::kOther || kind == Library::kLibc) {
        if (library.path.empty()) not_found_.push_back(library.name);
        continue;
      }
      links_driver_ = links_driver_ || kind == Library::kDriver;
      links_nvml_ = links_nvml_ || kind == Library::kNvml;
      std::vector<std::string> by;
      for (const File& file : files_) {
        const std::vector<std::string>& needed = file.facts.needed;
        if (std::find(needed.begin(), needed.end(), library.name) != needed.end()) {
          by.push_back(file.path);
        }
      }
      list.push_back({{"name", library.name}, {"path", or_null(library.path)}, {"needed_by", by}});
      texts.push_back(printable(library.name) + ": " +
                      (library.path.empty() ? "not found" : printable(library.path)) +
                      (by.empty() ? "" : ", needed by " + joined(by)));
      judge_linked(library, kind);
    }
    if (!texts.empty() && examined_.answer->trouble.empty()) judge_mapped();
    if (texts.empty() && is_last() && examined_.answer) {
      texts.emplace_back("neither libcuda.so.1 nor NVML");
    }
    add("linked", list, named("linked to", texts));
    add("not_found", not_found_,
        named("not found", {not_found_.empty() ? "" : joined(not_found_) + ": it does not start"}));
    judge_standins();
  }

  void judge_linked(const LoadedLibrary& library, Library kind) {
    const std::string linked = "it is linked to " + printable(library.name) + ", ";
    if (kind == Library::kRefused) {
      because("linked_refused", Hold::kInPart, Hold::kInPart, executable_.path,
              linked + "which opens the GPU by itself");
    } else if (library.path.empty()) {
      because("linked", Hold::kYes, Hold::kNo, executable_.path,
              linked + "which is not found: it does not start");
    } else {
      because("linked", Hold::kYes, Hold::kInPart, executable_.path,
              linked + "which ld.so maps before anyone can act");
    }
  }

  std::vector<std::string> preloaded_by_run() const {
    std::vector<std::string> files = {own_.guard};
    if (links_driver_) files.push_back(own_.standin_cuda);
    if (links_nvml_) files.push_back(own_.standin_nvml);
    return files;
  }

  /// Asked once more as `run` starts it: a driver that is needed by a path is loaded beside the
  /// stand-in.
  void judge_mapped() {
    Variables variables = around_.variables;
    variables.set("LD_PRELOAD", preload_list(variables.get("LD_PRELOAD"), {}, preloaded_by_run()));
    for (const LoadedLibrary& library :
         ask_loader(executable_.facts.interpreter, executable_.path, variables).libraries) {
      const Library kind = classify(library.name).library;
      if (kind == Library::kOther || kind == Library::kLibc || library.path.empty() ||
          is_ours(library.path)) {
        continue;
      }
      const bool broken =
          std::any_of(around_.broken.begin(), around_.broken.end(),
                      [&](const OwnFile& file) { return classify(file.path).library == kind; });
      if (kind == Library::kRefused || broken) continue;
      because("linked_file", Hold::kInPart, Hold::kInPart, library.path,
              "ld.so maps " + printable(library.path) + " beside the stand-in");
    }
  }

  /// What `run` would have to preload.
  void judge_standins() {
    for (const OwnFile& file : around_.broken) {
      if (!file.missing) continue;  // ld.so has its own opinion
      if ((links_driver_ && file.path == own_.standin_cuda) ||
          (links_nvml_ && file.path == own_.standin_nvml)) {
        because("stand_in", Hold::kNo, Hold::kYes, file.path,
                "it is linked to " + std::string(base_name(file.path)) + ", and " +
                    printable(file.path) + " " + file.trouble());
      }
    }
  }

  void runtimes() {
    Json list = Json::array();
    Texts texts;
    bool is_static = false;
    const auto found = [&](const std::string& name, const std::string& file) {
      list.push_back({{"kind", name.empty() ? "static" : "shared"},
                      {"name", or_null(name)},
                      {"file", or_null(file)}});
      is_static = is_static || name.empty();
      texts.push_back(name.empty()   ? "static, in " + printable(file)
                      : file.empty() ? "shared, " + printable(name) + " is not found"
                                     : "shared, " + printable(file));
    };
    for (const File& file : files_) {
      if (classify(file.path).library != Library::kOther) continue;
      const std::string name(file.facts.soname.empty() ? base_name(file.path)
                                                       : std::string_view(file.facts.soname));
      const bool shared = name.starts_with("libcudart.so");
      if (shared || has_static_runtime(FileBytes(file.path))) found(shared ? name : "", file.path);
    }
    for (const std::string& name : not_found_) {
      if (base_name(name).starts_with("libcudart.so")) found(name, "");
    }
    if (is_static) {
      texts.emplace_back("VALIDATE and CLAMP cannot see a static runtime's own checks of an index");
    }
    if (texts.empty() && is_last()) {
      texts.emplace_back(examined_.answer ? "none that ld.so loads with it" : "none seen in it");
    }
    add("runtimes", list, named("CUDA runtime", texts));
  }

  /// A shared address sanitizer's runtime has to come first.
  void sanitizers() {
    for (const LoadedLibrary& library : loaded()) {
      const std::string name(base_name(library.name));
      if (!is_sanitizer_runtime(name) || name.find("asan") == std::string::npos) continue;
      if (library.path.empty()) continue;
      const bool can = can_be_preloaded(library.path);
      because("sanitizer", can ? Hold::kYes : Hold::kNo, Hold::kNo, library.path,
              printable(name) +
                  (can ? " starts no program in which it is not the first library"
                       : " has to be the first library, and LD_PRELOAD cannot carry its path, "
                         "which has a space or a colon"));
    }
  }

  /// A static sanitizer's dlopen goes on to the next one, the guard's.
  bool has_static_sanitizer() const {
    const FileBytes file(executable_.path);
    return has_constant(file, "ASAN_OPTIONS") || has_constant(file, "TSAN_OPTIONS") ||
           has_constant(file, "MSAN_OPTIONS");
  }

  /// Names that are also exported by what `run` preloads.
  void names() {
    if (!examined_.answer) return;
    for (const ReplacedVariables& one :
         replaced_variables(executable_.path, *examined_.answer, preloaded_by_run())) {
      because("variable", Hold::kNo, Hold::kNo, one.library, why_replaced(one));
    }
    std::set<std::string> exports;
    read_exports(FileBytes(executable_.path), exports);
    for (const char* hook : {"dlopen", "dlmopen"}) {
      if (exports.count(hook) == 0 || has_static_sanitizer()) continue;
      because("own_dlopen", Hold::kInPart, Hold::kInPart, executable_.path,
              std::string("it has a ") + hook + " of its own, which comes before the guard's");
    }
  }

  const Executable& executable_;
  const Surroundings& around_;
  const Installation& own_;
  Reasons& reasons_;
  Examined examined_;
  Rows rows_;
  std::vector<File> files_;
  std::vector<std::string> not_found_;
  bool links_driver_ = false;
  bool links_nvml_ = false;
};

}  // namespace

Row examine_executable(const Executable& executable, const Surroundings& around, Reasons& reasons) {
  return group("executables", Look(executable, around, reasons).all());
}

}  // namespace cudaguard::launcher
