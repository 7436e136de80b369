// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_symbols.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace cudaguard::launcher {
namespace {

std::string libc() {
  const link_map* map = nullptr;
  dlinfo(dlopen("libc.so.6", RTLD_NOW), RTLD_DI_LINKMAP, static_cast<void*>(&map));
  return map->l_name;
}

/// A copy of a file.
class Copy : public Bytes {
 public:
  explicit Copy(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream all;
    all << stream.rdbuf();
    bytes_ = all.str();
  }
  /// Changes one 32-bit word of the copy.
  Copy(const std::string& path, uint64_t at, uint32_t word) : Copy(path) {
    memcpy(&bytes_[at], &word, sizeof word);
  }
  uint64_t size() const override { return bytes_.size(); }
  bool read(uint64_t at, void* to, size_t count) const override {
    if (at > bytes_.size() || count > bytes_.size() - at) return false;
    memcpy(to, bytes_.data() + at, count);
    return true;
  }

 private:
  std::string bytes_;
};

TEST(MayExport, FindsEveryExport) {
  const Copy file(libc());
  const std::set<std::string> names = read_exports(file).names;
  ASSERT_TRUE(names.contains("printf"));
  for (const std::string& name : names) {
    ASSERT_TRUE(may_export(file, {"cg_nobody_has_this", name})) << name;
  }
}

TEST(MayExport, FindsNothingElse) {
  const FileBytes file(libc());
  EXPECT_NE(read_elf(file).gnu_hash, 0U);
  EXPECT_FALSE(may_export(file, {}));
  EXPECT_FALSE(may_export(file, {"cuInit", "cudaSetDevice", "nvmlInit_v2"}));
}

TEST(MayExport, DoubtsAFileWithoutATable) {
  EXPECT_TRUE(may_export(FileBytes("/dev/null"), {"cuInit"}));
}

TEST(MayExport, DoubtsADamagedTable) {
  const uint64_t table = read_elf(FileBytes(libc())).gnu_hash;
  for (const auto& [field, value] : {std::pair(0, 0), {8, 0}, {12, 64}}) {
    const Copy file(libc(), table + static_cast<uint64_t>(field), static_cast<uint32_t>(value));
    EXPECT_TRUE(may_export(file, {"cuInit"})) << field;
  }
}

}  // namespace
}  // namespace cudaguard::launcher
