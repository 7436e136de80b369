// SPDX-License-Identifier: Apache-2.0
// Decides whether every program of a machine may load a file as its guard.
#pragma once

#include <cstdint>
#include <string>

#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

/// True for file systems whose server may be away: programs would then not start.
bool is_network_file_system(int64_t type);

/// The version in the note of a library of cudaguard; empty if it has none.
std::string version_of(const Bytes& file);

/// Says which user other than root can change the file or directory, or cannot use it: "cannot be
/// read by every user"; empty if there is none. The second one also looks at the directories above
/// it.
std::string why_not_roots(const std::string& path);
std::string why_not_roots_path(const std::string& path);

/// Says why the file must not be in every program: "is below /home"; empty if it may. Setuid
/// programs load it, too, so only root may be able to change it.
std::string why_unfit(const std::string& path);

/// True if an entry names a guard, of whatever installation. A program must load only one.
bool is_guard(const std::string& entry);

/// True if the entry of /etc/ld.so.preload means this file: the same path, a path with $LIB or
/// links that leads to it, or the bare name.
bool means_file(const std::string& entry, const std::string& path);

}  // namespace cudaguard::launcher
