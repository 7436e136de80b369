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
  std::string name;  ///< the name in the request, "libc.so.6", or the preloaded path
  std::string path;  ///< empty if not found
};

struct LoaderAnswer {
  std::vector<LoadedLibrary> libraries;
  std::string errors;   ///< the text on stderr
  std::string trouble;  ///< "gave no answer within 10 s, at /nfs/libcuda.so.1"; empty if none

  const LoadedLibrary* find(std::string_view name) const;
};

/// Removes variables that change or redirect ld.so's output, or that run foreign code (LD_AUDIT).
void unset_loader_questions(Variables& variables);

/// `variables` is the program's future environment. `loader` must be a glibc's. Throws Refusal if
/// `loader` cannot be started, Shortage if no process can be created.
LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables,
                        std::chrono::seconds patience = std::chrono::seconds{10});

}  // namespace cudaguard::launcher
