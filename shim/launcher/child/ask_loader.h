// SPDX-License-Identifier: Apache-2.0
// Asks an executable's own ld.so what it would load. No code of the program runs.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/child/variables.h"

namespace cudaguard::launcher {

struct LoadedLibrary {
  std::string name;  ///< as it was asked for: "libc.so.6", or the path that was preloaded
  std::string path;  ///< empty: not found
};

struct LoaderAnswer {
  std::vector<LoadedLibrary> libraries;
  std::string errors;   ///< what it wrote on stderr
  std::string trouble;  ///< "gave no answer within 10 s, at /nfs/libcuda.so.1"; empty: it did

  const LoadedLibrary* find(std::string_view name) const;
};

/// Takes out what changes or redirects what ld.so prints, or runs other people's code (LD_AUDIT).
void unset_loader_questions(Variables& variables);

/// `variables`: the environment that the program will have. `loader` must be a glibc's. Throws
/// Refusal where it cannot be started, Shortage where no process can.
LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables,
                        std::chrono::seconds patience = std::chrono::seconds{10});

}  // namespace cudaguard::launcher
