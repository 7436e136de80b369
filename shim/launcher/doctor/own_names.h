// SPDX-License-Identifier: Apache-2.0
// Names of a program and its libraries that are also exported by what we preload.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace cudaguard::launcher {

struct OwnName {
  std::string file;
  std::string name;
  bool variable = false;  ///< else a function
  /// A variable in whose place somebody finds the guard's function: ld.so goes by names alone.
  bool taken = false;

  bool is_hook() const { return !variable && (name == "dlopen" || name == "dlmopen"); }
};

/// What these files export; a file that cannot be read has none.
std::set<std::string> exported_names(const std::vector<std::string>& files);

/// `files`: what ld.so loads besides our own, the executable first. Those of them that are called
/// so by right (the driver, the runtime, libc) are left out.
std::vector<OwnName> find_own_names(const std::vector<std::string>& files,
                                    const std::set<std::string>& ours);

}  // namespace cudaguard::launcher
