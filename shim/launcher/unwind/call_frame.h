// SPDX-License-Identifier: Apache-2.0
// One step of unwinding, by DWARF's call frame information.
#pragma once

#include <cstdint>

#include "shim/launcher/unwind/process_view.h"
#include "shim/launcher/unwind/registers.h"

namespace cudaguard::launcher {

enum class Step : uint8_t {
  kCaller,      ///< the registers are the caller's
  kSignal,      ///< the registers are those of code that a signal interrupted
  kOutermost,   ///< the tables say that nothing called this code
  kNoTable,     ///< the tables do not describe this code, or their form is unknown
  kUnreadable,  ///< memory that is needed cannot be read: the stack, or the tables
};

/// `tables` is the address of .eh_frame_hdr; `code` is an address in the frame's instruction.
/// Unless there is a caller, the registers stay unchanged.
Step step(const Processor& processor, WordReader& memory, uint64_t tables, uint64_t code,
          Registers& registers);

}  // namespace cudaguard::launcher
