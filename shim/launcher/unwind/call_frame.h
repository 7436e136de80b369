// SPDX-License-Identifier: Apache-2.0
// One step of unwinding, by DWARF's call frame information.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "shim/launcher/unwind/process.h"

namespace cudaguard::launcher {

/// The facts about a processor that unwinding needs. Registers are called by their DWARF numbers.
struct Processor {
  uint64_t stack_pointer;
  uint64_t program_counter;
  uint64_t return_address;  ///< the register that the tables restore it to
  bool is_aarch64;
};
inline constexpr Processor kX86Processor = {7, 16, 16, false};
inline constexpr Processor kArmProcessor = {31, 32, 30, true};
#if defined(__x86_64__)
inline constexpr const Processor& kThisProcessor = kX86Processor;
#elif defined(__aarch64__)
inline constexpr const Processor& kThisProcessor = kArmProcessor;
#endif

/// The registers of one frame. A frame knows those that a function must preserve, and no others,
/// unless a signal interrupted it.
class Registers {
 public:
  static constexpr uint64_t kCount = 33;

  std::optional<uint64_t> get(uint64_t number) const {
    return number < kCount ? values_[number] : std::nullopt;
  }
  /// Ignores a register that is not tracked, such as a vector register.
  void set(uint64_t number, std::optional<uint64_t> value) {
    if (number < kCount) values_[number] = value;
  }

 private:
  std::array<std::optional<uint64_t>, kCount> values_;
};

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
