// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/elf/elf_symbols.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/unit/memory_bytes.h"

namespace cudaguard::launcher {
namespace {

std::string libc() {
  const link_map* map = nullptr;
  dlinfo(dlopen("libc.so.6", RTLD_NOW), RTLD_DI_LINKMAP, static_cast<void*>(&map));
  return map->l_name;
}

std::string copy_of(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

bool has_any(const Bytes& file, const std::set<std::string>& names) {
  return may_export(file, read_elf(file), gnu_hashes(names));
}

TEST(MayExport, FindsEveryExport) {
  const Memory file(copy_of(libc()));
  const std::set<std::string> names = read_exports(file).names;
  ASSERT_TRUE(names.contains("printf"));
  for (const std::string& name : names) {
    ASSERT_TRUE(has_any(file, {"cg_nobody_has_this", name})) << name;
  }
}

TEST(MayExport, FindsNothingElse) {
  const FileBytes file(libc());
  EXPECT_NE(read_elf(file).gnu_hash, 0U);
  EXPECT_FALSE(has_any(file, {}));
  EXPECT_FALSE(has_any(file, {"cuInit", "cudaSetDevice", "nvmlInit_v2"}));
}

TEST(MayExport, DoubtsAFileWithoutATable) {
  EXPECT_TRUE(has_any(FileBytes("/dev/null"), {"cuInit"}));
}

TEST(MayExport, DoubtsADamagedTable) {
  const uint64_t table = read_elf(FileBytes(libc())).gnu_hash;
  for (const auto& [field, value] : {std::pair(0, 0), {8, 0}, {12, 64}}) {
    std::string bytes = copy_of(libc());
    memcpy(&bytes[table + static_cast<uint64_t>(field)], &value, sizeof value);
    const Memory file(bytes);
    EXPECT_TRUE(has_any(file, {"cuInit"})) << field;
  }
}

}  // namespace
}  // namespace cudaguard::launcher
