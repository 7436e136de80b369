// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/unwind/expression.h"

#include <vector>

#include "shim/launcher/unwind/cursor.h"

namespace cudaguard::launcher {

namespace {

/// Performs an operation on the two topmost values; `right` is on top.
std::optional<uint64_t> combine(uint64_t op, uint64_t left, uint64_t right) {
  const auto signed_left = static_cast<int64_t>(left);
  const auto signed_right = static_cast<int64_t>(right);
  if (op == 0x1a) return left & right;                           // DW_OP_and
  if (op == 0x1c) return left - right;                           // DW_OP_minus
  if (op == 0x1e) return left * right;                           // DW_OP_mul
  if (op == 0x21) return left | right;                           // DW_OP_or
  if (op == 0x22) return left + right;                           // DW_OP_plus
  if (op == 0x24) return right < 64 ? left << right : 0;         // DW_OP_shl
  if (op == 0x25) return right < 64 ? left >> right : 0;         // DW_OP_shr
  if (op == 0x29) return uint64_t{left == right};                // DW_OP_eq
  if (op == 0x2a) return uint64_t{signed_left >= signed_right};  // DW_OP_ge
  if (op == 0x2b) return uint64_t{signed_left > signed_right};   // DW_OP_gt
  if (op == 0x2c) return uint64_t{signed_left <= signed_right};  // DW_OP_le
  if (op == 0x2d) return uint64_t{signed_left < signed_right};   // DW_OP_lt
  if (op == 0x2e) return uint64_t{left != right};                // DW_OP_ne
  return std::nullopt;
}

/// The value that an operation without an input pushes. None if `op` is another operation.
std::optional<uint64_t> operand(uint64_t op, Cursor& code, const Registers& registers) {
  if (op == 0x08) return code.number<uint8_t>();   // DW_OP_const1u
  if (op == 0x09) return code.number<int8_t>();    // DW_OP_const1s
  if (op == 0x0a) return code.number<uint16_t>();  // DW_OP_const2u
  if (op == 0x0b) return code.number<int16_t>();   // DW_OP_const2s
  if (op == 0x0c) return code.number<uint32_t>();  // DW_OP_const4u
  if (op == 0x0d) return code.number<int32_t>();   // DW_OP_const4s
  if (op == 0x10) return code.uleb();              // DW_OP_constu
  if (op == 0x11) return code.sleb();              // DW_OP_consts
  if (op >= 0x30 && op < 0x50) return op - 0x30;   // DW_OP_lit0 to DW_OP_lit31
  if (op < 0x70 || op >= 0x90) return std::nullopt;
  const auto base = registers.get(op - 0x70);  // DW_OP_breg0 to DW_OP_breg31
  const uint64_t offset = code.sleb();
  return base ? std::optional(*base + offset) : std::nullopt;
}

}  // namespace

std::optional<uint64_t> evaluate(std::string_view expression, std::optional<uint64_t> first,
                                 const Registers& registers, WordReader& memory) {
  Cursor code(expression, 0);
  std::vector<uint64_t> stack;  // Shorter than the expression: an operation pushes at most one.
  if (first) stack.push_back(*first);
  while (code.more()) {
    const uint64_t op = code.number<uint8_t>();
    if (const auto value = operand(op, code, registers)) {
      stack.push_back(*value);
      continue;
    }
    if (stack.empty()) return std::nullopt;
    uint64_t& top = stack.back();
    if (op == 0x06) {  // DW_OP_deref
      const auto value = memory.word(top);
      if (!value) return std::nullopt;
      top = *value;
    } else if (op == 0x12) {  // DW_OP_dup
      stack.push_back(uint64_t{top});
    } else if (op == 0x23) {  // DW_OP_plus_uconst
      top += code.uleb();
    } else if (stack.size() > 1) {
      const auto value = combine(op, stack[stack.size() - 2], top);
      if (!value) return std::nullopt;
      stack.pop_back();
      stack.back() = *value;
    } else {
      return std::nullopt;
    }
  }
  return code.ok() && !stack.empty() ? std::optional(stack.back()) : std::nullopt;
}

}  // namespace cudaguard::launcher
