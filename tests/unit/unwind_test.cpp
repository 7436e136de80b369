// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/unwind/unwind.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cudaguard::launcher {
namespace {

using Code = std::vector<uint8_t>;

constexpr uint64_t kFile = 0x10000;     // address of the mapped file
constexpr uint64_t kHeader = 0x11000;   // address of its .eh_frame_hdr
constexpr uint64_t kEntries = 0x12000;  // address of its .eh_frame
constexpr uint64_t kStack = 0x7fff00000000;

/// A process that has one file and one stack.
class MadeUpProcess : public ProcessView {
 public:
  explicit MadeUpProcess(const Processor& processor = kX86Processor) : machine_(processor) {
    Elf64_Ehdr elf = {};
    memcpy(elf.e_ident, ELFMAG, SELFMAG);
    elf.e_phoff = sizeof elf;
    elf.e_phnum = 2;
    Elf64_Phdr headers[2] = {};
    headers[0].p_type = PT_LOAD;
    headers[0].p_flags = PF_R | PF_X;
    headers[0].p_vaddr = 0x400000;
    headers[0].p_memsz = 0x10000;
    headers[1].p_type = PT_GNU_EH_FRAME;
    headers[1].p_vaddr = 0x400000 + kHeader - kFile;
    put(kFile, &elf, sizeof elf);
    put(kFile + sizeof elf, headers, sizeof headers);
    // This is the shared entry. The return address is next to the frame's address on x86-64, and in
    // x30 on AArch64. Offsets are multiples of -8.
    Code common = {0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78};
    const Code x86_64 = {16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1};
    const Code aarch64 = {30, 1, 0x1b, 0x0c, 31, 0};
    const Code& rest = processor.is_aarch64 ? aarch64 : x86_64;
    common.insert(common.end(), rest.begin(), rest.end());
    next_ = put_entry(kEntries, common);
  }

  /// Functions must be added in the order of their addresses.
  void add_function(uint64_t begin, uint64_t size, const Code& program) {
    Code entry;
    append(entry, static_cast<uint32_t>(next_ + 4 - kEntries));
    append(entry, static_cast<uint32_t>(begin - (next_ + 8)));
    append(entry, static_cast<uint32_t>(size));
    entry.push_back(0);
    entry.insert(entry.end(), program.begin(), program.end());
    append(table_, static_cast<uint32_t>(begin - kHeader));
    append(table_, static_cast<uint32_t>(next_ - kHeader));
    next_ = put_entry(next_, entry);
    Code header = {1, 0x1b, 3, 0x3b, 0, 0, 0, 0};
    append(header, static_cast<uint32_t>(table_.size() / 8));
    header.insert(header.end(), table_.begin(), table_.end());
    put(kHeader, header.data(), header.size());
  }
  void put(uint64_t address, const void* from, size_t size) {
    for (size_t i = 0; i < size; ++i) memory_[address + i] = static_cast<const uint8_t*>(from)[i];
  }
  void put_word(uint64_t address, uint64_t word) { put(address, &word, sizeof word); }

  bool read(uint64_t address, void* to, size_t size) override {
    for (size_t i = 0; i < size; ++i) {
      const auto found = memory_.find(address + i);
      if (found == memory_.end()) return false;
      static_cast<uint8_t*>(to)[i] = found->second;
    }
    return true;
  }
  std::string maps() override { return maps_text; }

  NativeStack stack(uint64_t pc, uint64_t sp, const UnwindLimits& limits = {}) {
    registers.set(machine_.program_counter, pc);
    registers.set(machine_.stack_pointer, sp);
    return unwind(*this, registers, is_left_out, limits, machine_);
  }

  Registers registers;
  std::function<bool(std::string_view)> is_left_out;
  std::string maps_text =
      "00010000-00011000 r-xp 00000000 08:01 7      /lib/a b.so\n"
      "00011000-00020000 r-xp 00001000 08:01 7      /lib/a b.so\n"
      "00030000-00031000 r-xp 00000000 00:00 0 \n"
      "00040000-00041000 rw-p 00000000 08:01 8      /lib/data\n"
      "7fff00000000-7fff00021000 rw-p 00000000 00:00 0      [stack]\n";

 private:
  static void append(Code& to, uint32_t number) {
    for (int i = 0; i < 4; ++i) to.push_back(static_cast<uint8_t>(number >> (8 * i)));
  }
  uint64_t put_entry(uint64_t address, const Code& entry) {
    const auto size = static_cast<uint32_t>(entry.size());
    put(address, &size, sizeof size);
    put(address + sizeof size, entry.data(), entry.size());
    return address + sizeof size + size;
  }

  const Processor& machine_;
  std::map<uint64_t, uint8_t> memory_;
  Code table_;
  uint64_t next_ = 0;
};

/// Formats a stack as "0x13005 0x13105; complete", with offsets converted back to addresses.
std::string text_of(const NativeStack& stack) {
  std::string text;
  for (const NativeFrame& frame : stack.frames) {
    EXPECT_EQ(frame.module, "/lib/a b.so");
    char place[32];
    snprintf(place, sizeof place, "0x%zx ", static_cast<size_t>(kFile + frame.offset));
    text += place;
  }
  return text + (stack.cut.empty() ? "complete" : stack.cut);
}

const Code outermost = {0x07, 16};  // DW_CFA_undefined: the return address

/// Makes a function that has pushed one word, and its caller, which is the outermost function.
struct TwoFunctions : MadeUpProcess {
  TwoFunctions() {
    add_function(0x13000, 0x100, {0x41, 0x0e, 16});
    add_function(0x13100, 0x100, outermost);
    put_word(kStack + 8, 0x13150);
  }
};

TEST(Unwind, FramesAreFilesAndOffsets) {
  TwoFunctions process;
  // The first frame is not a return address. For the other frames, a name is looked up for the byte
  // before the address.
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 0x13150 complete");
}

TEST(Unwind, InnermostFramesOfAFileAreLeftOut) {
  TwoFunctions process;
  process.is_left_out = [](std::string_view file) { return file == "/lib/a b.so"; };
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "complete");
  process.is_left_out = [](std::string_view file) { return file == "/lib/a"; };
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 0x13150 complete");
}

TEST(Unwind, OuterFramesOfThatFileStay) {
  MadeUpProcess process;
  process.add_function(0x13000, 0x100, {});
  process.put_word(kStack, 0x13020);
  process.put_word(kStack + 8, 0x13030);
  process.put_word(kStack + 16, 0);
  int asked = 0;
  process.is_left_out = [&](std::string_view /*file*/) { return asked++ != 1; };
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13020 0x13030 complete");
}

TEST(Unwind, TheRowOfTheInstructionCounts) {
  TwoFunctions process;
  process.put_word(kStack, 0x13160);
  EXPECT_EQ(text_of(process.stack(0x13000, kStack)), "0x13001 0x13160 complete");
  EXPECT_EQ(text_of(process.stack(0x13001, kStack)), "0x13002 0x13150 complete");
}

TEST(Unwind, ReturnAddressMayBeTheNextFunctions) {
  MadeUpProcess process;
  process.add_function(0x13000, 0x100, {});
  process.add_function(0x13100, 0x100, outermost);  // Its last instruction is a call.
  process.add_function(0x13200, 0x100, {});
  process.put_word(kStack, 0x13200);
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 0x13200 complete");
}

TEST(Unwind, EachKindOfRuleFindsTheCaller) {
  const std::pair<const char*, Code> cases[] = {
      {"offset_extended", {0x0e, 24, 0x05, 16, 2}},
      {"offset_extended_sf", {0x0e, 0, 0x11, 16, 0x7f}},
      {"def_cfa_sf", {0x12, 7, 0x7e}},                   // -2 * -8
      {"def_cfa_offset_sf", {0x13, 0x7e}},               //
      {"register", {0x09, 16, 3}},                       // rbx
      {"val_offset", {0x0c, 3, 16, 0x14, 16, 2}},        // rbx itself
      {"val_offset_sf", {0x0c, 3, 16, 0x15, 16, 2}},     //
      {"expression", {0x10, 16, 2, 0x77, 8}},            // breg7 8
      {"val_expression", {0x16, 16, 3, 0x77, 8, 0x06}},  // breg7 8, deref
      {"def_cfa_expression", {0x0f, 2, 0x77, 16}},       //
      {"first of expression", {0x10, 16, 1, 0x96}},      // unknown operation: not found
      {"restored", {0x07, 16, 0xd0, 0x0e, 16}},          // undefined, restore
      {"restored extended", {0x07, 16, 0x06, 16, 0x0e, 16}},
      {"remembered", {0x0e, 16, 0x0a, 0x0e, 64, 0x07, 16, 0x0b}},
      {"later", {0x0e, 16, 0x02, 0x20, 0x0e, 64}},
      {"later 2", {0x0e, 16, 0x03, 0x20, 0, 0x0e, 64}},
      {"later 4", {0x0e, 16, 0x04, 0x20, 0, 0, 0, 0x0e, 64}},
      {"size of arguments", {0x2e, 8, 0x0e, 16}},
      {"vector register", {0x0e, 16, 0x91, 9, 0x05, 40, 1}},
      {"same value", {0x08, 3, 0x0e, 16}},
  };
  for (const auto& [name, program] : cases) {
    MadeUpProcess process;
    process.add_function(0x13000, 0x100, program);
    process.add_function(0x13100, 0x100, outermost);
    process.put_word(kStack, 0x13ff0);
    process.put_word(kStack + 8, 0x13150);
    process.registers.set(3, 0x13150);
    const bool is_known = std::string_view(name) != "first of expression";
    EXPECT_EQ(text_of(process.stack(0x13010, kStack)),
              is_known ? "0x13011 0x13150 complete" : "0x13011 the stack cannot be read")
        << name;
  }
}

/// GNU ld writes this expression for a procedure linkage table: after the push in an entry of 16
/// bytes, the frame's address is 8 bytes further.
TEST(Unwind, ExpressionOfALinkageTableFindsTheCaller) {
  MadeUpProcess process;
  process.add_function(0x13000, 0x100,
                       {0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22});
  process.add_function(0x13100, 0x100, outermost);
  process.put_word(kStack, 0x13150);
  process.put_word(kStack + 8, 0x13160);
  EXPECT_EQ(text_of(process.stack(0x1300a, kStack)), "0x1300b 0x13150 complete");
  EXPECT_EQ(text_of(process.stack(0x1300b, kStack)), "0x1300c 0x13160 complete");
}

TEST(Unwind, DamagedTablesEndTheStack) {
  const std::pair<const char*, Code> cases[] = {
      {"unknown instruction", {0x3f}},
      {"restore without remember", {0x0b}},
      {"number cut short", {0x0e, 0x80}},
      {"endless number", {0x0e, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}},
      {"block cut short", {0x0f, 200, 1}},
      {"remembers without end", Code(200, 0x0a)},
  };
  for (const auto& [name, program] : cases) {
    MadeUpProcess process;
    process.add_function(0x13000, 0x100, program);
    EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 code without unwind tables")
        << name;
  }
  const Code expressions[] = {{},        {0x06},    {0x22},       {0x31, 0x22}, {0x31, 0x06},
                              {0x72, 0}, {0x0a, 1}, {0x2f, 0, 0}, {0xff}};
  for (const Code& expression : expressions) {
    Code program = {0x0f, static_cast<uint8_t>(expression.size())};
    program.insert(program.end(), expression.begin(), expression.end());
    MadeUpProcess process;
    process.add_function(0x13000, 0x100, program);
    EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 the stack cannot be read");
  }
}

TEST(Unwind, CodeOutsideAnyFileEndsTheStack) {
  for (const uint64_t place : {0x30010UL, 0x40010UL, 0x50000UL, kStack, ~0UL}) {
    TwoFunctions process;
    process.put_word(kStack + 8, place);
    EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 code outside any file");
  }
  TwoFunctions process;
  process.maps_text = "";
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "the mappings cannot be read");
}

TEST(Unwind, ZeroEndsTheStack) {
  TwoFunctions process;
  process.put_word(kStack + 8, 0);
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 complete");
}

TEST(Unwind, UnreadableStackEndsIt) {
  TwoFunctions process;
  EXPECT_EQ(text_of(process.stack(0x13010, kStack + 0x1000)), "0x13011 the stack cannot be read");
}

TEST(Unwind, CycleEndsTheStack) {
  MadeUpProcess process;
  process.add_function(0x13000, 0x100, {0x0e, 0, 0x90, 0});
  process.put_word(kStack, 0x13010);
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 0x13010 the stack goes in a circle");
}

TEST(Unwind, WorkIsLimited) {
  TwoFunctions process;
  UnwindLimits limits;
  limits.words = 30;
  EXPECT_NE(process.stack(0x13010, kStack, limits).cut, "");
}

TEST(UnwindAarch64, LeafFunctionHasNoFrame) {
  MadeUpProcess process(kArmProcessor);
  process.add_function(0x13000, 0x100, {});
  process.add_function(0x13100, 0x100,
                       {0x2d, 0x0e, 16, 0x9d, 2, 0x9e, 1});  // paciasp, stp x29, x30
  process.add_function(0x13200, 0x100, {0x07, 30});
  process.registers.set(30, 0x0035000000013150);  // signed
  process.put_word(kStack + 8, 0xff7f800000013250);
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 0x13150 0x13250 complete");
}

TEST(UnwindAarch64, KernelsSignalFrameIsFollowed) {
  MadeUpProcess process(kArmProcessor);
  process.add_function(0x13000, 0x100, {});
  process.add_function(0x13100, 0x100, {});
  process.add_function(0x13200, 0x100, {0x07, 30});
  process.put_word(0x30000, 0xd4000001d2801168);
  process.registers.set(30, 0x30000);
  for (uint64_t i = 0; i < 33; ++i) process.put_word(kStack + 312 + 8 * i, 0);
  process.put_word(kStack + 312 + 8UL * 30, 0x13250);
  process.put_word(kStack + 312 + 8UL * 31, kStack + 0x1000);
  process.put_word(kStack + 312 + 8UL * 32, 0x13100);
  EXPECT_EQ(text_of(process.stack(0x13010, kStack)), "0x13011 0x13101 0x13250 complete");
}

}  // namespace
}  // namespace cudaguard::launcher
