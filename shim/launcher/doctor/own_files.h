// SPDX-License-Identifier: Apache-2.0
// Are the files of this installation all there, and of one version?
#pragma once

#include <string>
#include <vector>

#include "shim/launcher/preload/installation.h"

namespace cudaguard::launcher {

struct OwnFile {
  std::string path;
  bool library = false;   ///< else a link to one, or the probe
  bool stand_in = false;  ///< one, or a link to one
  bool missing = false;   ///< or it cannot be read
  std::string version;    ///< "0.2.0", by the note in the file; empty: none, or it is damaged

  /// Null: it is well.
  const char* trouble() const {
    if (missing) return "is missing or cannot be read";
    return library && version.empty() ? "is damaged or of another version" : nullptr;
  }
};

/// The guard is the first of them.
std::vector<OwnFile> look_at_own_files(const Installation& installation);

/// What doctor asks the driver with: a dynamic executable that is linked to libcuda.so.1.
std::string probe_of(const Installation& installation);

}  // namespace cudaguard::launcher
