// SPDX-License-Identifier: Apache-2.0
// Makes a record of a call that the seccomp listener saw, in place of a guard.
#pragma once

#include <string>

#include "policy/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// `why` is the reason why the record has no stack; null leaves the stack out. The result has no
/// newline.
std::string kernel_record(const Owner& owner, const Identity& who, Touch touch, const char* why);

}  // namespace cudaguard::launcher
