// SPDX-License-Identifier: Apache-2.0
// The ELF reader against files that are cut short anywhere and files with flipped bytes. Built with
// sanitizers; each input is memory of exactly its size. Says what it found; exits 1 where a file
// that lacks loaded bytes is called sound.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "tests/launcher/random.h"

namespace {

using cudaguard::launcher::Bytes;
using cudaguard::launcher::ElfFacts;

class Memory : public Bytes {
 public:
  explicit Memory(const std::string& text)
      : bytes_(std::make_unique<char[]>(text.size())), size_(text.size()) {
    memcpy(bytes_.get(), text.data(), size_);
  }
  uint64_t size() const override { return size_; }
  bool read(uint64_t at, void* to, size_t count) const override {
    if (at > size_ || count > size_ - at) return false;
    memcpy(to, bytes_.get() + at, count);
    return true;
  }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

struct Counts {
  unsigned long sound = 0;
  unsigned long damaged = 0;
  unsigned long other = 0;
  unsigned long exports = 0;  ///< names that were read
  unsigned long references = 0;
  unsigned long functions = 0;  ///< places in the file whose function has a name
};

ElfFacts examine(const std::string& text, Counts& counts) {
  const Memory memory(text);
  ElfFacts facts = cudaguard::launcher::read_elf(memory);
  ++(!facts.is_elf ? counts.other : facts.damage.empty() ? counts.sound : counts.damaged);
  counts.exports += cudaguard::launcher::read_exports(memory).names.size();
  cudaguard::launcher::may_export(memory, facts,
                                  cudaguard::launcher::gnu_hashes({"cuInit", "printf"}));
  counts.references += cudaguard::launcher::read_references(memory).names.size();
  const cudaguard::launcher::ElfFunctions functions(memory);
  for (uint64_t at = 0; at <= text.size(); at += text.size() / 16 + 1) {
    counts.functions += functions.name_at(memory, at).empty() ? 0 : 1;
  }
  return facts;
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
  Counts counts;
  const ElfFacts facts = examine(whole, counts);
  if (counts.sound != 1) {
    printf("%s: not read: %s\n", path, facts.damage.c_str());
    return false;
  }
  printf("%s: exports %lu names, looks up %lu, %lu of 16 places have one\n", path, counts.exports,
         counts.references, counts.functions);
  const size_t loaded = loaded_size(whole);
  Counts cuts;
  size_t step = 1;
  for (size_t size = 0; size < whole.size(); size += step) {
    if (size == 8192) step = whole.size() / 500 + 1;
    const unsigned long sound = cuts.sound;
    examine(whole.substr(0, size), cuts);
    if (size < loaded && cuts.sound != sound) {
      printf("%s: cut to %zu of %zu loaded bytes, and called sound\n", path, size, loaded);
      return false;
    }
  }
  // Only what the reader looks at is worth flipping: headers, and any place now and then.
  std::string head = whole.substr(0, std::min<size_t>(whole.size(), 65536));
  Random random;
  Counts flips;
  for (int round = 0; round < rounds; ++round) {
    std::string changed = head;
    const uint64_t count = 1 + random.below(6);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t limit = random.below(4) == 0 ? changed.size() : 1024;
      const char values[] = {0,
                             1,
                             0x7f,
                             static_cast<char>(0x80),
                             static_cast<char>(0xff),
                             static_cast<char>(random.below(256))};
      changed[random.below(std::min<uint64_t>(limit, changed.size()))] = values[random.below(6)];
    }
    if (random.below(8) == 0) changed.resize(random.below(changed.size()));
    examine(changed, flips);
  }
  printf("%s: needs %zu; cut: %lu damaged, %lu sound, %lu no ELF; flipped: %lu, %lu, %lu\n", path,
         facts.needed.size(), cuts.damaged, cuts.sound, cuts.other, flips.damaged, flips.sound,
         flips.other);
  return true;
}

}  // namespace

// elf_fuzz ROUNDS FILE...
int main(int argc, char** argv) {
  if (argc < 3) return 1;
  for (int i = 2; i < argc; ++i) {
    if (!fuzz(argv[i], std::stoi(argv[1]))) return 1;
  }
  return 0;
}
