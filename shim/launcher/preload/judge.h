// SPDX-License-Identifier: Apache-2.0
// Will the guard hold in this program? Asked before it is started.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

/// What speaks against guarding an executable.
struct Hindrance {
  const char* id;   ///< doctor's, never changed: "musl"
  std::string why;  ///< a clause: "it is for musl, the guard is for glibc"
};

struct Examined {
  enum class Kind {
    kDynamic,
    kStatic,    ///< not guarded itself; what it starts may be
    kLoader,    ///< ld.so as a command, which preloads into what it starts
    kLauncher,  ///< a cudaguard command, which preloads by itself
  };
  Kind kind = Kind::kDynamic;
  std::vector<Hindrance> hindrances;   ///< none: it can be guarded
  std::optional<LoaderAnswer> answer;  ///< of its own ld.so, where that was asked
};

/// `variables`: with the guard in LD_PRELOAD. `all`: what comes after the first hindrance too.
Examined examine(const Executable& executable, const Installation& installation,
                 const Variables& variables, bool all);

/// What the file alone says, without a question to its ld.so; not whether it is setuid.
Examined examine_file(const Executable& executable);

/// "x86-64", as people write it.
std::string machine_name(uint16_t machine);

/// What the program's own ld.so says.
struct Judged {
  bool linked_cuda = false;  ///< to the driver, itself or through a library
  bool linked_nvml = false;
  bool unchecked = false;               ///< something cannot be looked at: taken as linked to both
  std::vector<std::string> sanitizers;  ///< full paths of runtimes that must come first
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, LoaderAnswer>> answers;  ///< for each executable's path
};

struct RunContext {
  bool strict = false;          ///< refuse what is not guarded
  bool fenced = false;          ///< what is not guarded finds no CUDA all the same
  bool records_ioctls = false;  ///< and what it asks the driver for is told
  bool observed = false;        ///< the launcher stays, and reports who asked
  bool fence_tried = false;     ///< a message that advises --fence would be no remedy
};

/// Throws Refusal for what can never be guarded, where no fence stands. `variables`: with the guard
/// in LD_PRELOAD.
Judged judge(const Program& program, const Installation& installation, const Variables& variables,
             const RunContext& context);

/// May these files of ours be preloaded? Not where they would replace a library's variables: false
/// where a fence does without them, else throws Refusal.
bool can_preload(const std::vector<std::string>& own, const RunContext& context, Judged& judged);

}  // namespace cudaguard::launcher
