// SPDX-License-Identifier: Apache-2.0
// Which cudaguard a library of ours is, by the notes in its file.
#pragma once

#include <string>

namespace cudaguard::launcher {

struct OwnVersion {
  std::string version;  ///< "0.1.0"; empty: it does not say
  std::string build;    ///< the linker's build id in hexadecimal digits; empty: it has none
};

OwnVersion read_own_version(const std::string& path);

}  // namespace cudaguard::launcher
