// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/preload_file.h"

#include <gtest/gtest.h>

namespace cudaguard::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr char kOurs[] = "/usr/lib/libcudaguard.so";

bool is_ours(const std::string& entry) { return entry.ends_with("libcudaguard.so"); }

std::string removed(const std::string& text) { return without_entries(text, is_ours); }

TEST(PreloadFile, EntriesAreReadLikeLdSo) {
  EXPECT_EQ(preloads_of(""), Words{});
  EXPECT_EQ(preloads_of(" a.so:b.so\tc.so\n\nd.so"), (Words{"a.so", "b.so", "c.so", "d.so"}));
  EXPECT_EQ(preloads_of("a.so # b.so\nc.so\n"), (Words{"a.so", "c.so"}));
  EXPECT_EQ(preloads_of("a.so\r\n"), Words{"a.so\r"});
  EXPECT_EQ(preloads_of("# a\n# b\n/usr/lib/c.so\n"), Words{"/usr/lib/c.so"});
}

/// A Debian 12 prints "object '#' from /etc/ld.so.preload cannot be preloaded" for this file.
TEST(PreloadFile, CommentAfterALongOneIsReadAsEntriesLikeInGlibc) {
  EXPECT_EQ(preloads_of("# first comment is quite long\n/lib/m.so # second\n"),
            (Words{"/lib/m.so", "#", "second"}));
}

TEST(PreloadFile, LineIsAddedBeforeTheFirstEntry) {
  const std::string line = std::string(kOurs) + "\n";
  EXPECT_EQ(with_entry("", kOurs), line);
  EXPECT_EQ(with_entry("a.so\nb.so\n", kOurs), line + "a.so\nb.so\n");
  EXPECT_EQ(with_entry("a.so", kOurs), line + "a.so");
  EXPECT_EQ(with_entry("# a\n\n # b\na.so # c\n", kOurs), "# a\n\n # b\n" + line + "a.so # c\n");
  EXPECT_EQ(with_entry("# a", kOurs), "# a\n" + line);
  EXPECT_EQ(with_entry(" \n", kOurs), " \n" + line);
}

TEST(PreloadFile, OnlyOurEntriesAreRemoved) {
  const std::string line = std::string(kOurs) + "\n";
  EXPECT_EQ(removed(line), "");
  EXPECT_EQ(removed(kOurs), "");
  EXPECT_EQ(removed("a.so\n" + line + "b.so"), "a.so\nb.so");
  EXPECT_EQ(removed(" \n\na.so \t:b.so # x\n#libcudaguard.so\n"),
            " \n\na.so \t:b.so # x\n#libcudaguard.so\n");
  EXPECT_EQ(removed("a.so:libcudaguard.so\n"), "a.so\n");
  EXPECT_EQ(removed("libcudaguard.so:a.so\n"), "a.so\n");
  EXPECT_EQ(removed("a.so libcudaguard.so:b.so\n"), "a.so:b.so\n");
  EXPECT_EQ(removed(" libcudaguard.so\tlibcudaguard.so: \n"), "");
  EXPECT_EQ(removed("libcudaguard.so # why\n"), "# why\n");
}

}  // namespace
}  // namespace cudaguard::launcher
