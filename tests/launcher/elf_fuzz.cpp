// SPDX-License-Identifier: Apache-2.0
// The ELF reader against files that are cut short anywhere and files with flipped bytes. Built with
// sanitizers; exits 1 where a file that lacks loaded bytes is called sound.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "shim/launcher/elf/elf_symbols.h"
#include "tests/launcher/random.h"
#include "tests/unit/memory_bytes.h"

namespace {

using namespace cudaguard::launcher;  // NOLINT(google-build-using-namespace)

/// Reads all that the launcher reads. True if the file is sound.
bool is_sound(const std::string& text) {
  const Memory memory(text);
  const ElfFacts facts = read_elf(memory);
  read_exports(memory);
  may_export(memory, facts, gnu_hashes({"cuInit", "printf"}));
  read_references(memory);
  const ElfFunctions functions(memory);
  for (uint64_t at = 0; at <= text.size(); at += text.size() / 16 + 1) {
    functions.name_at(memory, at);
  }
  return facts.is_elf && facts.damage.empty();
}

/// The first length that holds all that is loaded.
size_t loaded_size(const std::string& text) {
  Elf64_Ehdr elf;
  memcpy(&elf, text.data(), sizeof elf);
  size_t end = 0;
  for (size_t i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr header;
    memcpy(&header, text.data() + elf.e_phoff + i * sizeof header, sizeof header);
    if (header.p_type == PT_LOAD) end = std::max(end, header.p_offset + header.p_filesz);
  }
  return end;
}

bool fuzz(const char* path, int rounds) {
  std::ifstream stream(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  if (!is_sound(whole)) return false;
  const size_t loaded = loaded_size(whole);
  size_t step = 1;
  for (size_t size = 0; size < whole.size(); size += step) {
    if (size == 8192) step = whole.size() / 500 + 1;
    if (is_sound(whole.substr(0, size)) && size < loaded) {
      printf("%s: cut to %zu of %zu loaded bytes, and called sound\n", path, size, loaded);
      return false;
    }
  }
  // Only what the reader looks at is worth flipping: headers, and any place now and then.
  const std::string head = whole.substr(0, std::min<size_t>(whole.size(), 65536));
  Random random;
  for (int round = 0; round < rounds; ++round) {
    std::string changed = head;
    for (uint64_t i = 1 + random.below(6); i > 0; --i) {
      const uint64_t limit = random.below(4) == 0 ? changed.size() : 1024;
      const std::string values = {0,      1,      '\x7f',
                                  '\x80', '\xff', static_cast<char>(random.below(256))};
      changed[random.below(std::min<uint64_t>(limit, changed.size()))] = values[random.below(6)];
    }
    if (random.below(8) == 0) changed.resize(random.below(changed.size()));
    is_sound(changed);
  }
  return true;
}

}  // namespace

// elf_fuzz ROUNDS FILE...
int main(int argc, char** argv) {
  return argc > 2 && std::all_of(argv + 2, argv + argc,
                                 [&](const char* path) { return fuzz(path, std::stoi(argv[1])); })
             ? 0
             : 1;
}
