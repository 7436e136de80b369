// SPDX-License-Identifier: Apache-2.0
// A library may have a variable called like a function of the guard, and fill it by dlsym:
// `CUresult (*cuInit)(unsigned)`. A preloaded library comes first, so the library would get the
// function instead, and write into the guard's code.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/child/ask_loader.h"

namespace cudaguard::launcher {

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

}  // namespace cudaguard::launcher
