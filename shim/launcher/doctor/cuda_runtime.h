// SPDX-License-Identifier: Apache-2.0
// NVIDIA's CUDA runtime inside a file: libcudart.so itself, or linked into a program or library
// statically. Told by what the runtime's own code cannot do without, so a stripped file is no
// obstacle; a packed one is.
#pragma once

#include <cstdint>
#include <string>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

struct CudaRuntime {
  bool found = false;
  std::string version;  ///< "12.9"; empty: not known
};

/// `machine`: the file's EM_*.
CudaRuntime find_cuda_runtime(const Bytes& file, uint16_t machine);

}  // namespace cudaguard::launcher
