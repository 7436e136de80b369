// SPDX-License-Identifier: Apache-2.0
// Which driver libraries a program would get, and what each of them is.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/doctor/rows.h"

namespace cudaguard::launcher {

struct DriverLibrary {
  enum class Kind {
    kUnknown,
    kNotKnown,  ///< ld.so could not be asked
    kNone,
    kDriver,   ///< NVIDIA's
    kStub,     ///< the CUDA toolkit's, to link against and nothing else
    kStandIn,  ///< ours
  };
  std::string name;  ///< as programs ask for it: "libcuda.so.1"
  Kind kind = Kind::kNone;
  std::string path;     ///< as it was found
  std::string file;     ///< without links
  std::string version;  ///< of NVIDIA's, by the file's name: "535.261.03"; empty: not known
};

/// What the file is, by what is in it.
DriverLibrary identify(std::string_view name, const std::string& path);

struct Libraries {
  /// libcuda.so.1, libcuda.so, libnvidia-ml.so.1, libnvidia-opencl.so.1, as ld.so finds them.
  std::vector<DriverLibrary> found;
  std::string guard_by_bare_name;  ///< what LD_PRELOAD=libcudaguard.so gives; empty: nothing
  std::string system_guard;        ///< the guard that /etc/ld.so.preload has
  std::string trouble;             ///< why ld.so could not be asked, or hung: a clause
  bool hangs = false;              ///< ld.so does
};

/// `probe`: a dynamic executable that is linked to libcuda.so.1. `limit`: how long ld.so may take
/// for an answer.
Libraries find_libraries(const std::string& probe, const Variables& variables,
                         std::chrono::seconds limit);

Row row_of(const Libraries& libraries);

/// The folders of LD_LIBRARY_PATH; an empty one is ".".
std::vector<std::string> library_path(const Variables& variables);

}  // namespace cudaguard::launcher
