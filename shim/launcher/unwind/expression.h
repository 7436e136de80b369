// SPDX-License-Identifier: Apache-2.0
// DWARF expressions, as far as call frame information uses them: in the linkers' PLT stubs, in
// libc's signal trampoline, and in functions that realign the stack.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shim/launcher/unwind/process_view.h"
#include "shim/launcher/unwind/registers.h"

namespace cudaguard::launcher {

/// `first` is on the expression's stack at its start. Returns no value if the expression is
/// damaged, jumps, or needs a register or memory that is unknown.
std::optional<uint64_t> evaluate(std::string_view expression, std::optional<uint64_t> first,
                                 const Registers& registers, WordReader& memory);

}  // namespace cudaguard::launcher
