// SPDX-License-Identifier: Apache-2.0
// DWARF expressions, as far as call frame information has them: those of the linkers' PLT stubs, of
// libc's signal trampoline, and of functions that realign the stack.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shim/launcher/unwind/process_view.h"
#include "shim/launcher/unwind/registers.h"

namespace cudaguard::launcher {

/// `first`: what is on the expression's stack at its start. No value if the expression is damaged,
/// jumps, or needs a register or memory that is not known.
std::optional<uint64_t> evaluate(std::string_view expression, std::optional<uint64_t> first,
                                 const Registers& registers, WordReader& memory);

}  // namespace cudaguard::launcher
