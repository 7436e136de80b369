// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/guard_file.h"

#include <gtest/gtest.h>
#include <linux/magic.h>

namespace cudaguard::launcher {
namespace {

TEST(GuardFile, NetworkFileSystemsAreKnown) {
  constexpr int64_t kNetwork[] = {NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, AFS_SUPER_MAGIC,
                                  CODA_SUPER_MAGIC, V9FS_MAGIC,      FUSE_SUPER_MAGIC,
                                  0xFF534D42};
  for (const int64_t type : kNetwork) {
    EXPECT_TRUE(is_network_file_system(type)) << std::hex << type;
    // A 32-bit statfs may give the number with a sign.
    EXPECT_TRUE(is_network_file_system(static_cast<int32_t>(type))) << std::hex << type;
  }
  constexpr int64_t kLocal[] = {EXT4_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC,
                                XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC};
  for (const int64_t type : kLocal) {
    EXPECT_FALSE(is_network_file_system(type)) << std::hex << type;
  }
}

TEST(GuardFile, EntryMeansTheFileOfTheSameDirectory) {
  const std::string guard = "/usr/lib/none/libcudaguard.so";
  for (const char* entry : {"libcudaguard.so", "/usr/lib/none/libcudaguard.so"}) {
    EXPECT_TRUE(means_file(entry, guard)) << entry;
  }
  for (const char* entry : {"/usr/lib/libcudaguard.so", "/usr/lib/none/libcudaguard.so.1",
                            "/usr/lib/none/libother.so", "none/libcudaguard.so"}) {
    EXPECT_FALSE(means_file(entry, guard)) << entry;
  }
  // $LIB gives the same directory also if it does not exist.
  EXPECT_TRUE(means_file("/none/$LIB/libcudaguard.so", "/none/lib64/libcudaguard.so"));
  EXPECT_TRUE(
      means_file("/none/${LIB}/libcudaguard.so", "/none/lib/x86_64-linux-gnu/libcudaguard.so"));
  EXPECT_FALSE(means_file("/none/$LIB/libcudaguard.so", "/none/lib32/libcudaguard.so"));
}

}  // namespace
}  // namespace cudaguard::launcher
