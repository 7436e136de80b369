// SPDX-License-Identifier: Apache-2.0
// The kinds of files that the kernel starts by an interpreter which an administrator has registered
// (Wine, qemu-user, Java).
#pragma once

#include <string_view>

namespace cudaguard::launcher {

/// True if binfmt_misc starts a file that begins so. False if its entries are not visible here.
bool is_emulated(std::string_view head, std::string_view name);

}  // namespace cudaguard::launcher
