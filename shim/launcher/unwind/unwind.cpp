// SPDX-License-Identifier: Apache-2.0
// A hostile program can forge the memory that is read, so the number of frames and words is
// limited.
#include "shim/launcher/unwind/unwind.h"

namespace cudaguard::launcher {

namespace {

/// The kernel of AArch64 has no tables for the code that returns from a signal handler. That code
/// finds a struct rt_sigframe on the stack (arch/arm64/kernel/signal.c).
bool leave_signal_handler(WordReader& memory, uint64_t code, Registers& registers) {
  constexpr uint64_t kReturnFromSignal = 0xd4000001d2801168;  // mov x8, #139; svc #0
  constexpr uint64_t kSavedRegisters =
      128 + 184;  // the siginfo_t, and the registers in the ucontext_t
  if (memory.word(code) != kReturnFromSignal) return false;
  const auto stack = registers.get(kArmProcessor.stack_pointer);
  for (uint64_t number = 0; number < Registers::kCount; ++number) {
    registers.set(number,
                  stack ? memory.word(*stack + kSavedRegisters + 8 * number) : std::nullopt);
  }
  return true;
}

}  // namespace

NativeStack unwind(ProcessView& process, const Registers& registers,
                   const std::function<bool(std::string_view file)>& is_left_out,
                   const UnwindLimits& limits, const Processor& processor) {
  const ProcessImage image(process.maps());
  WordReader memory(process, limits.words);
  Registers frame = registers;
  NativeStack stack;
  const auto cut = [&](const char* why) {
    stack.cut = why;
    return stack;
  };
  if (image.empty()) return cut("the mappings cannot be read");
  // The instruction after a call may be the next function's.
  bool is_after_call = false;
  for (size_t steps = 0; steps < limits.frames; ++steps) {
    uint64_t address = frame.get(processor.program_counter).value_or(0);
    if (processor.is_aarch64) address &= image.address_bits();
    if (address == 0) return stack;
    if (processor.is_aarch64 && leave_signal_handler(memory, address, frame)) {
      is_after_call = false;
      continue;
    }
    const uint64_t code = is_after_call ? address - 1 : address;
    const MappedCode mapped = image.find(memory, code);
    if (mapped.file.empty()) return cut("code outside any file");
    if (!stack.frames.empty() || !is_left_out || !is_left_out(mapped.file)) {
      // A frame is a return address, and names are looked up for the byte before it.
      stack.frames.push_back({std::string(mapped.file), mapped.offset + 1});
    }
    if (mapped.tables == 0) return cut("code without unwind tables");
    const auto stack_pointer = frame.get(processor.stack_pointer);
    const Step found = step(processor, memory, mapped.tables, code, frame);
    if (found == Step::kOutermost) return stack;
    if (found == Step::kNoTable) return cut("code without unwind tables");
    if (found == Step::kUnreadable) return cut("the stack cannot be read");
    // A function of AArch64 that calls no other function may use no stack.
    const bool is_same = frame.get(processor.stack_pointer) == stack_pointer;
    if (is_same && is_after_call) return cut("the stack goes in a circle");
    is_after_call = found == Step::kCaller;
  }
  return cut("the stack is deeper");
}

}  // namespace cudaguard::launcher
