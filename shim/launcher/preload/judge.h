// SPDX-License-Identifier: Apache-2.0
// Decides before the program starts whether the guard will work in it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/policies.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

/// How a program that cannot be guarded can be kept off CUDA. Root's fence takes no rights away.
enum class Remedy { kNone, kFence, kRoot, kRootWithFence };

/// A reason why an executable cannot be guarded.
struct Hindrance {
  const char* id;   ///< used by doctor, never changed: "musl"
  std::string why;  ///< a clause: "it is for musl, the guard is for glibc"
  Remedy remedy = Remedy::kFence;
};

struct Examined {
  enum class Kind {
    kDynamic,
    kStatic,    ///< not guarded itself; the programs that it starts may be
    kLoader,    ///< ld.so as a command, which preloads into the program that it starts
    kLauncher,  ///< a cudaguard command, which preloads by itself
  };
  Kind kind = Kind::kDynamic;
  std::vector<Hindrance> hindrances;   ///< empty if it can be guarded
  std::optional<LoaderAnswer> answer;  ///< of its own ld.so, or from its cache
};

/// `variables` has the guard in LD_PRELOAD. `all`: continue after the first hindrance, and always
/// ask ld.so.
Examined examine(const Executable& executable, const Installation& installation,
                 const Variables& variables, bool all);

/// Examines the file alone: does not ask ld.so, and does not check for setuid.
Examined examine_file(const Executable& executable);

/// Says of a file, which need not be readable, why execve would make it a privileged process.
std::vector<Hindrance> privileges_of(const std::string& path);

/// True if a fence of this user takes the rights away that the file gives.
bool loses_rights(const std::string& path);

/// True for a program for another processor, which does not run under a fence either.
bool is_foreign(const ElfFacts& facts);

/// "x86-64", as in usual spelling.
std::string machine_name(uint16_t machine);

/// NVIDIA's libraries that a program or one of its libraries is linked to.
struct Linked {
  bool cuda = false;  ///< the driver
  bool nvml = false;
};
Linked linked_to(const LoaderAnswer& answer);

/// Our files that such a program needs in LD_PRELOAD after the guard.
std::vector<std::string> preloaded_for(Linked linked, Policy policy,
                                       const Installation& installation);

/// The answer of the program's own ld.so.
struct Judged {
  Linked linked;
  bool unchecked = false;               ///< a file is unreadable: assume that both are linked
  std::string unguarded;                ///< why the program is not guarded; empty if it is
  std::vector<std::string> sanitizers;  ///< full paths of runtimes that must come first
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, LoaderAnswer>> answers;  ///< for each executable's path
};

struct RunContext {
  bool strict = false;          ///< refuse what is not guarded
  bool fenced = false;          ///< unguarded programs find no CUDA either
  bool records_ioctls = false;  ///< and their ioctls are reported
  bool observed = false;        ///< the launcher stays, and reports CUDA attempts
  bool verifies = false;        ///< the command is verify
  bool fence_tried = false;     ///< the user gave --fence, so messages must not advise it
  bool listed = false;          ///< unguarded programs reach only the listed GPUs either
  bool errors_only = false;     ///< the user wants errors only, or nothing
};

/// Throws Refusal if the program can never be guarded and there is no fence. `variables` has the
/// guard in LD_PRELOAD.
Judged judge(const Program& program, const Installation& installation, const Variables& variables,
             const RunContext& context);

/// A library may have a variable called like a function of the guard, and fill it by dlsym:
/// `CUresult (*cuInit)(unsigned)`. A preloaded library comes first, so the library would get the
/// function instead, and write into the guard's code.
struct ReplacedVariables {
  std::string library;             ///< its path
  std::vector<std::string> names;  ///< of its variables, sorted
};

/// `answer` is what ld.so loads with the executable; `preloaded` are our files. Ignores variables
/// that the library binds to itself (-Bsymbolic), and those that the executable defines.
std::vector<ReplacedVariables> replaced_variables(const std::string& executable,
                                                  const LoaderAnswer& answer,
                                                  const std::vector<std::string>& preloaded);

/// A clause: "libx.so has a variable cuInit, which ...".
std::string why_replaced(const ReplacedVariables& variables);

/// Returns false if our files would replace a library's variables and the fence suffices. Throws
/// Refusal if the fence does not suffice.
bool can_preload(const std::vector<std::string>& own, const RunContext& context, Judged& judged);

}  // namespace cudaguard::launcher
