// SPDX-License-Identifier: Apache-2.0
// A library that ld.so loads at the start may have a variable called like a function of the guard:
// `CUresult (*cuInit)(unsigned)`, which it fills by dlsym. A preloaded library comes first, so the
// library would be given the function instead, and write into the guard's code.
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/child/ask_loader.h"

namespace cudaguard::launcher {

struct ReplacedVariables {
  std::string library;             ///< its path
  std::vector<std::string> names;  ///< of its variables, sorted
};

/// `answer`: what ld.so loads with the executable. `preloaded`: our files. Not those that only the
/// library itself uses and was linked to (-Bsymbolic), nor those that the executable defines.
std::vector<ReplacedVariables> replaced_variables(const std::string& executable,
                                                  const LoaderAnswer& answer,
                                                  const std::vector<std::string>& preloaded);

/// A clause: "libx.so has a variable cuInit, which ...".
std::string why_replaced(const ReplacedVariables& variables);

}  // namespace cudaguard::launcher
