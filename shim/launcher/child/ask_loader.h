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
  std::string errors;                ///< what it wrote on stderr
  std::chrono::seconds patience{0};  ///< that it was asked with
  bool in_time = true;
  std::string hangs_at;  ///< the file, where it is not in time and that is known
  int stuck = 0;         ///< its process, where that does not die of SIGKILL

  const LoadedLibrary* find(std::string_view name) const;
  /// For one that is not in time: "gave no answer within 10 s, at /nfs/libcuda.so.1".
  std::string why_none() const;
};

/// Takes out what changes or redirects what ld.so prints, or runs other people's code (LD_AUDIT).
void unset_loader_questions(Variables& variables);

/// `variables`: the environment that the program will have. `loader` must be a glibc's.
LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables,
                        std::chrono::seconds patience = std::chrono::seconds{10});

}  // namespace cudaguard::launcher
