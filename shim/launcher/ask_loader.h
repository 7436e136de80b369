// SPDX-License-Identifier: Apache-2.0
// Asks an executable's own ld.so what it would load. No code of the program runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/variables.h"

namespace cudaguard::launcher {

struct LoadedLibrary {
  std::string name;  ///< as it was asked for: "libc.so.6", or the path that was preloaded
  std::string path;  ///< empty: not found
};

struct LoaderAnswer {
  std::vector<LoadedLibrary> libraries;
  std::string errors;  ///< what it wrote on stderr
  bool in_time = true;

  const LoadedLibrary* find(std::string_view name) const;
};

/// `variables`: the environment that the program will have. `loader` must be a glibc's.
LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables);

}  // namespace cudaguard::launcher
