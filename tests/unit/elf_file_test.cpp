// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/memory_bytes.h"

namespace cudaguard::launcher {
namespace {

/// Builds an executable with two adjacent segments. Its string table of `strings_size` bytes begins
/// 4 bytes before the end of the first segment and has "libx.so.1" in it.
std::string executable(uint64_t strings_size) {
  constexpr uint64_t kSegment = 0x400;
  constexpr uint64_t kAddress = 0x10000;
  constexpr uint64_t kStrings = kSegment - 4;
  std::string bytes(2 * kSegment, '\0');
  const auto put = [&](uint64_t at, const auto& value) {
    memcpy(&bytes[at], &value, sizeof value);
  };
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = kMachine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 3;
  put(0, header);
  const uint64_t dynamic_at = sizeof header + 3 * sizeof(Elf64_Phdr);
  const Elf64_Dyn dynamic[] = {{DT_NEEDED, {1}},
                               {DT_STRTAB, {kAddress + kStrings}},
                               {DT_STRSZ, {strings_size}},
                               {DT_NULL, {0}}};
  put(dynamic_at, dynamic);
  const auto segment = [&](uint32_t type, uint64_t at, uint64_t size) {
    Elf64_Phdr result = {};
    result.p_type = type;
    result.p_offset = at;
    result.p_vaddr = kAddress + at;
    result.p_filesz = size;
    return result;
  };
  const Elf64_Phdr segments[] = {segment(PT_LOAD, 0, kSegment),
                                 segment(PT_LOAD, kSegment, kSegment),
                                 segment(PT_DYNAMIC, dynamic_at, sizeof dynamic)};
  put(sizeof header, segments);
  memcpy(&bytes[kStrings + 1], "libx.so.1", 9);
  return bytes;
}

TEST(ElfFile, StringTableMayContinueInTheNextSegment) {
  const ElfFacts facts = read_elf(Memory(executable(11)));
  EXPECT_EQ(facts.damage, "");
  EXPECT_EQ(facts.needed, std::vector<std::string>{"libx.so.1"});
  // This one ends before the name, and that one with its segment, because the file is shorter.
  for (const uint64_t size : {5, 0x10000}) {
    EXPECT_EQ(read_elf(Memory(executable(size))).damage, "a name in its string table is damaged");
  }
}

TEST(ElfFile, TruncatedFileIsDamage) {
  const std::string whole = executable(11);
  EXPECT_EQ(read_elf(Memory(whole.substr(0, 100))).damage, "its program header is cut short");
  EXPECT_EQ(read_elf(Memory(whole.substr(0, 0x500))).damage, "it is cut short");
  EXPECT_EQ(read_elf(Memory(whole.substr(0, 30))).damage, "its ELF header is cut short");
  EXPECT_FALSE(read_elf(Memory("#!/bin/sh\n")).is_elf);
}

}  // namespace
}  // namespace cudaguard::launcher
