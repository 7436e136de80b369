// SPDX-License-Identifier: Apache-2.0
// Finds a program's libraries like ld.so, but only where the standard glibc and /etc/ld.so.cache
// decide alone.
#pragma once

#include <optional>
#include <string>

#include "shim/launcher/child/child.h"
#include "shim/launcher/child/variables.h"
#include "shim/launcher/elf/program.h"

namespace cudaguard::launcher {

inline constexpr char kLdSoCache[] = "/etc/ld.so.cache";

/// The answer of ask_loader() for a program with `guard` in LD_PRELOAD, without ld.so itself and
/// the vDSO: a process saved. None if anything else could decide: the caller then asks ld.so.
/// `variables` is the program's future environment.
std::optional<LoaderAnswer> answer_from_cache(const Executable& executable,
                                              const Variables& variables, const std::string& guard,
                                              const std::string& cache = kLdSoCache);

}  // namespace cudaguard::launcher
