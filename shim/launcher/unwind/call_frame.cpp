// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/unwind/call_frame.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

namespace {

/// A copied piece of another process's memory, read from front to back. Signed numbers are returned
/// in two's complement, because sums of hostile ones may overflow. After a read past the end `ok()`
/// is false and every number is 0.
class Cursor {
 public:
  /// `address` is the address of these bytes in the process.
  Cursor(std::string_view bytes, uint64_t address)
      : rest_(bytes), end_address_(address + bytes.size()) {}

  bool ok() const { return ok_; }
  bool more() const { return ok_ && !rest_.empty(); }
  uint64_t address() const { return end_address_ - rest_.size(); }
  std::string_view rest() const { return rest_; }

  std::string_view block(uint64_t size) {
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) return {};
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  /// A number of T's size, sign-extended if T is signed.
  template <typename T>
  uint64_t number() {
    T value = 0;
    const std::string_view taken = block(sizeof value);
    if (!taken.empty()) memcpy(&value, taken.data(), sizeof value);
    return static_cast<uint64_t>(value);
  }
  uint64_t uleb() { return leb(false); }
  uint64_t sleb() { return leb(true); }
  /// DW_EH_PE_*, without DW_EH_PE_indirect.
  uint64_t pointer(uint8_t encoding) {
    const uint64_t base = (encoding & 0x70U) == 0x10 ? address() : 0;  // DW_EH_PE_pcrel
    ok_ = ok_ && ((encoding & 0xf0U) == 0x10 || (encoding & 0xf0U) == 0);
    return base + plain(encoding & 0xfU);
  }

 private:
  uint64_t plain(unsigned format) {
    if (format == 0x1) return uleb();                                // DW_EH_PE_uleb128
    if (format == 0x2) return number<uint16_t>();                    // DW_EH_PE_udata2
    if (format == 0x3) return number<uint32_t>();                    // DW_EH_PE_udata4
    if (format == 0x9) return sleb();                                // DW_EH_PE_sleb128
    if (format == 0xa) return number<int16_t>();                     // DW_EH_PE_sdata2
    if (format == 0xb) return number<int32_t>();                     // DW_EH_PE_sdata4
    ok_ = ok_ && (format == 0x0 || format == 0x4 || format == 0xc);  // DW_EH_PE_absptr, 8 bytes
    return number<uint64_t>();
  }
  uint64_t leb(bool is_signed) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = number<uint8_t>();
      value |= (byte & 0x7fU) << shift;
      if ((byte & 0x80U) != 0) continue;
      if (is_signed && (byte & 0x40U) != 0 && shift < 57) value |= ~uint64_t{0} << (shift + 7);
      return value;
    }
    ok_ = false;
    return 0;
  }

  std::string_view rest_;
  uint64_t end_address_;
  bool ok_ = true;
};

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

/// Evaluates a DWARF expression, as far as call frame information uses them: in the linkers' PLT
/// stubs, in libc's signal trampoline, and in functions that realign the stack. `first` is on the
/// expression's stack at its start. Returns no value if the expression is damaged, jumps, or needs
/// a register or memory that is unknown.
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

/// The longest entry in 400 libraries has 3,000 bytes.
constexpr uint32_t kLongestEntry = 65536;
/// Compilers write one remember_state within another at most.
constexpr size_t kMostRemembered = 16;

/// How the caller's value of a register is found.
struct Rule {
  enum class Kind : uint8_t {
    kSame,
    kUndefined,
    kSavedAt,   ///< in memory, `value` bytes from the frame's address or at `expression`
    kComputed,  ///< the frame's address and `value`, or the value of `expression`
    kRegister,  ///< in register `value`
  };
  Kind kind = Kind::kSame;
  uint64_t value = 0;
  std::string_view expression;  ///< without data if there is none
};

/// The rules for one instruction. A frame's address is DWARF's CFA, the stack pointer before the
/// call. It is computed from a register, unless there is an expression.
struct Row {
  uint64_t frame_register = Registers::kCount;
  uint64_t frame_offset = 0;
  std::string_view frame_expression;
  /// The last rule is for all registers that are not tracked.
  std::array<Rule, Registers::kCount + 1> rules;
  static size_t index(uint64_t number) { return std::min(number, Registers::kCount); }
};

/// The instructions that set the rule of one register, and their second operand.
enum class Operand : uint8_t { kNone, kNumber, kFactored, kSignedFactored, kBlock };
struct RuleInstruction {
  uint8_t op;
  Rule::Kind kind;
  Operand operand;
};
constexpr RuleInstruction kRuleInstructions[] = {
    {0x05, Rule::Kind::kSavedAt, Operand::kFactored},         // DW_CFA_offset_extended
    {0x07, Rule::Kind::kUndefined, Operand::kNone},           // DW_CFA_undefined
    {0x08, Rule::Kind::kSame, Operand::kNone},                // DW_CFA_same_value
    {0x09, Rule::Kind::kRegister, Operand::kNumber},          // DW_CFA_register
    {0x10, Rule::Kind::kSavedAt, Operand::kBlock},            // DW_CFA_expression
    {0x11, Rule::Kind::kSavedAt, Operand::kSignedFactored},   // DW_CFA_offset_extended_sf
    {0x14, Rule::Kind::kComputed, Operand::kFactored},        // DW_CFA_val_offset
    {0x15, Rule::Kind::kComputed, Operand::kSignedFactored},  // DW_CFA_val_offset_sf
    {0x16, Rule::Kind::kComputed, Operand::kBlock},           // DW_CFA_val_expression
};

/// The entry of a function and the one that it shares with others (FDE and CIE).
struct Entry {
  std::string bytes;
  std::string common_bytes;
  std::string_view common_program;
  uint64_t code_factor = 1;
  uint64_t data_factor = 1;
  uint64_t return_address = 0;
  uint8_t encoding = 0;
  bool has_augmentation = false;
  bool is_signal = false;
};

/// Reads an entry without its length.
bool read_entry(WordReader& memory, uint64_t address, std::string& bytes) {
  const auto length = memory.word<uint32_t>(address);
  if (!length || *length < 4 || *length > kLongestEntry) return false;
  bytes.resize(*length);
  return memory.read(address + sizeof(uint32_t), bytes.data(), bytes.size());
}

bool read_augmentation(std::string_view letters, Cursor data, Entry& entry) {
  for (const char letter : letters) {
    if (letter == 'L') data.number<uint8_t>();  // how the language's data is encoded
    if (letter == 'P') data.pointer(static_cast<uint8_t>(data.number<uint8_t>() & 0x7fU));
    if (letter == 'R') entry.encoding = static_cast<uint8_t>(data.number<uint8_t>());
    if (letter == 'S') entry.is_signal = true;
    // 'B': an AArch64 return address is signed by the other key.
    if (std::string_view("BLPRS").find(letter) == std::string_view::npos) return false;
  }
  return data.ok();
}

/// Returns false if the entry is damaged, or of an unknown form.
bool read_common(WordReader& memory, uint64_t address, Entry& entry) {
  if (!read_entry(memory, address, entry.common_bytes)) return false;
  Cursor in(entry.common_bytes, address + sizeof(uint32_t));
  const uint64_t id = in.number<uint32_t>();
  const uint64_t version = in.number<uint8_t>();
  if (id != 0 || (version != 1 && version != 3)) return false;
  std::string letters;
  while (const auto letter = static_cast<char>(in.number<uint8_t>())) letters += letter;
  entry.code_factor = in.uleb();
  entry.data_factor = in.sleb();
  entry.return_address = version == 1 ? in.number<uint8_t>() : in.uleb();
  if (!letters.empty()) {
    entry.has_augmentation = true;
    const uint64_t size = in.uleb();
    const uint64_t data_address = in.address();
    const Cursor data(in.block(size), data_address);
    if (letters[0] != 'z' || !read_augmentation(letters.substr(1), data, entry)) return false;
  }
  entry.common_program = in.rest();
  return in.ok();
}

/// Finds the entry for `code` in the sorted table of .eh_frame_hdr. Returns 0 if there is none, or
/// if it cannot be read.
uint64_t find_entry(WordReader& memory, uint64_t tables, uint64_t code) {
  struct Header {
    uint32_t version_and_encodings;
    uint32_t frames;
    uint32_t count;
  };
  struct Item {
    int32_t begin;  // Both are relative to the header.
    int32_t entry;
  };
  // Every linker writes version 1, DW_EH_PE_pcrel|sdata4, udata4, datarel|sdata4.
  constexpr uint32_t kKnown = 0x3b031b01;
  const auto header = memory.word<Header>(tables);
  if (!header || header->version_and_encodings != kKnown || header->count == 0) return 0;
  const auto item_at = [&](uint64_t number) {
    return memory.word<Item>(tables + sizeof(Header) + number * sizeof(Item));
  };
  uint32_t low = 0;
  for (uint32_t high = header->count; high - low > 1;) {
    const uint32_t middle = low + (high - low) / 2;
    const auto item = item_at(middle);
    if (!item) return 0;
    (tables + static_cast<uint64_t>(item->begin) <= code ? low : high) = middle;
  }
  const auto item = item_at(low);
  return item ? tables + static_cast<uint64_t>(item->entry) : 0;
}

/// Sets the rule of a register. Returns false if `op` is another instruction.
bool set_rule(uint64_t op, Cursor& program, const Entry& entry, Row& row) {
  const auto* found = std::find_if(std::begin(kRuleInstructions), std::end(kRuleInstructions),
                                   [&](const RuleInstruction& known) { return known.op == op; });
  if (found == std::end(kRuleInstructions)) return false;
  Rule& rule = row.rules[Row::index(program.uleb())];
  rule = {found->kind, 0, {}};
  if (found->operand == Operand::kNumber) rule.value = program.uleb();
  if (found->operand == Operand::kFactored) rule.value = program.uleb() * entry.data_factor;
  if (found->operand == Operand::kSignedFactored) rule.value = program.sleb() * entry.data_factor;
  if (found->operand == Operand::kBlock) rule.expression = program.block(program.uleb());
  return true;
}

/// Fills in the row for `code`. The program begins at `location`. Returns false if it is damaged.
bool execute(Cursor program, const Entry& entry, uint64_t location, uint64_t code, Row& row) {
  const Row initial = row;
  std::vector<Row> remembered;
  while (program.more() && location <= code) {
    const uint64_t op = program.number<uint8_t>();
    // In three frequent instructions, the lower bits are an operand.
    const uint64_t low = op & 0x3fU;
    switch (op < 0x40 ? op : op - low) {
      case 0x00:  // DW_CFA_nop
      case 0x2c:  // DW_CFA_AARCH64_negate_ra_state_with_pc
      case 0x2d:  // DW_CFA_AARCH64_negate_ra_state: unwind() takes off every signature.
        break;
      case 0x01:  // DW_CFA_set_loc
        location = program.pointer(entry.encoding);
        break;
      case 0x02:  // DW_CFA_advance_loc1
        location += program.number<uint8_t>() * entry.code_factor;
        break;
      case 0x03:  // DW_CFA_advance_loc2
        location += program.number<uint16_t>() * entry.code_factor;
        break;
      case 0x04:  // DW_CFA_advance_loc4
        location += program.number<uint32_t>() * entry.code_factor;
        break;
      case 0x40:  // DW_CFA_advance_loc
        location += low * entry.code_factor;
        break;
      case 0x06:    // DW_CFA_restore_extended
      case 0xc0: {  // DW_CFA_restore
        const size_t number = Row::index(op == 0x06 ? program.uleb() : low);
        row.rules[number] = initial.rules[number];
        break;
      }
      case 0x80:  // DW_CFA_offset
        row.rules[Row::index(low)] = {Rule::Kind::kSavedAt, program.uleb() * entry.data_factor, {}};
        break;
      case 0x0a:  // DW_CFA_remember_state
        if (remembered.size() == kMostRemembered) return false;
        remembered.push_back(row);
        break;
      case 0x0b:  // DW_CFA_restore_state
        if (remembered.empty()) return false;
        row = remembered.back();
        remembered.pop_back();
        break;
      case 0x0c:  // DW_CFA_def_cfa
      case 0x0d:  // DW_CFA_def_cfa_register
      case 0x12:  // DW_CFA_def_cfa_sf
        row.frame_register = program.uleb();
        row.frame_expression = {};
        if (op == 0x0c) row.frame_offset = program.uleb();
        if (op == 0x12) row.frame_offset = program.sleb() * entry.data_factor;
        break;
      case 0x0e:  // DW_CFA_def_cfa_offset
        row.frame_offset = program.uleb();
        break;
      case 0x13:  // DW_CFA_def_cfa_offset_sf
        row.frame_offset = program.sleb() * entry.data_factor;
        break;
      case 0x0f:  // DW_CFA_def_cfa_expression
        row.frame_expression = program.block(program.uleb());
        break;
      case 0x2e:  // DW_CFA_GNU_args_size
        program.uleb();
        break;
      default:
        if (!set_rule(op, program, entry, row)) return false;
    }
  }
  return program.ok();
}

/// The caller's value of register `number`. None if it is unknown, or if its memory is unreadable.
std::optional<uint64_t> apply(const Rule& rule, uint64_t number, uint64_t frame,
                              const Registers& registers, WordReader& memory) {
  if (rule.kind == Rule::Kind::kUndefined) return std::nullopt;
  if (rule.kind == Rule::Kind::kSame) return registers.get(number);
  if (rule.kind == Rule::Kind::kRegister) return registers.get(rule.value);
  std::optional<uint64_t> value = frame + rule.value;
  const bool is_computed = rule.expression.data() != nullptr;
  if (is_computed) value = evaluate(rule.expression, frame, registers, memory);
  return value && rule.kind == Rule::Kind::kSavedAt ? memory.word(*value) : value;
}

}  // namespace

Step step(const Processor& processor, WordReader& memory, uint64_t tables, uint64_t code,
          Registers& registers) {
  Entry entry;
  const uint64_t address = find_entry(memory, tables, code);
  if (address == 0 || !read_entry(memory, address, entry.bytes)) return Step::kNoTable;
  Cursor in(entry.bytes, address + sizeof(uint32_t));
  const uint64_t common = in.address();
  if (!read_common(memory, common - in.number<uint32_t>(), entry)) return Step::kNoTable;
  const uint64_t begin = in.pointer(entry.encoding);
  const uint64_t size = in.pointer(entry.encoding & 0x0fU);
  if (entry.has_augmentation) in.block(in.uleb());
  Row row;
  const Cursor common_program(entry.common_program, 0);
  if (!in.ok() || code - begin >= size || !execute(common_program, entry, 0, UINT64_MAX, row) ||
      !execute(in, entry, begin, code, row)) {
    return Step::kNoTable;
  }
  const uint64_t return_address = entry.return_address;
  if (return_address != processor.return_address) return Step::kNoTable;
  if (row.rules[return_address].kind == Rule::Kind::kUndefined) return Step::kOutermost;

  auto frame = registers.get(row.frame_register);
  if (frame) *frame += row.frame_offset;
  if (row.frame_expression.data() != nullptr) {
    frame = evaluate(row.frame_expression, std::nullopt, registers, memory);
  }
  if (!frame) return Step::kUnreadable;
  Registers caller;
  for (uint64_t number = 0; number < Registers::kCount; ++number) {
    caller.set(number, apply(row.rules[number], number, *frame, registers, memory));
  }
  if (row.rules[processor.stack_pointer].kind == Rule::Kind::kSame) {
    caller.set(processor.stack_pointer, frame);
  }
  if (!caller.get(return_address)) return Step::kUnreadable;
  caller.set(processor.program_counter, caller.get(return_address));
  registers = caller;
  return entry.is_signal ? Step::kSignal : Step::kCaller;
}

}  // namespace cudaguard::launcher
