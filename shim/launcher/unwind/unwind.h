// SPDX-License-Identifier: Apache-2.0
// The native stack of a thread that waits in a system call, taken from another process by reading
// memory alone. The guard does not unwind in its own process: libgcc's unwinder takes locks that a
// forked child may inherit, and faults on some coroutines' stacks.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "shim/launcher/findings/stack.h"
#include "shim/launcher/unwind/call_frame.h"

namespace cudaguard::launcher {

struct UnwindLimits {
  size_t frames = 64;
  size_t words = 100'000;  ///< the most words to read of the process's memory
};

/// The stack omits the innermost frames whose files `is_left_out` accepts. Never fails: if the
/// process's registers or memory are invalid, the stack ends there.
NativeStack unwind(ProcessView& process, const Registers& registers,
                   const std::function<bool(std::string_view file)>& is_left_out = {},
                   const UnwindLimits& limits = {}, const Processor& processor = kThisProcessor);

}  // namespace cudaguard::launcher
