// SPDX-License-Identifier: Apache-2.0
// A record that no guard has written: of what the kernel has told.
#pragma once

#include <string>

#include "policy/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// `why`: a clause, why there is no stack; null: nobody asks for one. Without the end of the line.
std::string kernel_record(const Owner& owner, const Identity& who, Touch touch, const char* why);

}  // namespace cudaguard::launcher
