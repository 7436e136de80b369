// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "shim/guard/record/state.h"
#include "shim/guard/stack/hash.h"

namespace cudaguard {
namespace {

using Added = Reported::Added;

TEST(Reported, KeyIsNewOnce) {
  const auto reported = std::make_unique<Reported>();
  for (const uint64_t key : {uint64_t{0}, uint64_t{7}, uint64_t{7 + 4096}}) {  // two in one slot
    EXPECT_FALSE(reported->has(key));
    EXPECT_TRUE(reported->add(key));
    EXPECT_TRUE(reported->has(key));
    EXPECT_FALSE(reported->add(key));
    EXPECT_EQ(reported->add_place(key), Added::kKnown);
  }
  EXPECT_EQ(reported->add_place(8), Added::kNew);
  EXPECT_EQ(reported->add_place(8), Added::kKnown);
  EXPECT_FALSE(reported->add(8));
}

TEST(Reported, FirstPlaceWithoutRoomIsReported) {
  const auto reported = std::make_unique<Reported>();
  for (uint64_t i = 1; i <= Reported::kMost; ++i) {
    ASSERT_EQ(reported->add_place(i * 977), Added::kNew);
  }
  EXPECT_FALSE(reported->lacks_places());
  EXPECT_EQ(reported->add_place(977), Added::kKnown);
  EXPECT_EQ(reported->add_place(1), Added::kOneTooMany);
  EXPECT_TRUE(reported->lacks_places());
  EXPECT_EQ(reported->add_place(2), Added::kTooMany);
  EXPECT_EQ(reported->add_place(977), Added::kKnown);
}

TEST(Reported, FullTableForgetsAnOldKeyAndLosesNoNewOne) {
  const auto reported = std::make_unique<Reported>();
  for (uint64_t i = 1; i <= 4 * Reported::kMost; ++i) {
    EXPECT_TRUE(reported->add(i * 977)) << i;
    EXPECT_TRUE(reported->has(i * 977));
    EXPECT_FALSE(reported->add(i * 977));
  }
  EXPECT_FALSE(reported->lacks_places());
}

TEST(Reported, HalfOfTheRoomIsForPlacesAlone) {
  const auto reported = std::make_unique<Reported>();
  for (uint64_t i = 1; i <= Reported::kMost; ++i) EXPECT_TRUE(reported->add(2 * i));
  for (uint64_t i = 1; i <= Reported::kMost / 2; ++i) {
    ASSERT_EQ(reported->add_place(2 * i + 1), Added::kNew) << i;
  }
  EXPECT_EQ(reported->add_place(1), Added::kOneTooMany);
}

TEST(Reported, ForgottenKeysAreNew) {
  const auto reported = std::make_unique<Reported>();
  for (uint64_t i = 1; i <= Reported::kMost + 1; ++i) reported->add_place(i);
  reported->forget();
  EXPECT_FALSE(reported->lacks_places());
  EXPECT_FALSE(reported->has(1));
  EXPECT_EQ(reported->add_place(1), Added::kNew);
}

TEST(KnownCalls, CallIsKnownUntilAnotherTakesItsSlot) {
  const auto calls = std::make_unique<KnownCalls>();
  calls->add(5);
  EXPECT_TRUE(calls->has(5));
  EXPECT_FALSE(calls->has(5 + 1024));
  calls->add(5 + 1024);
  EXPECT_FALSE(calls->has(5));
  calls->add(0);  // there was no hash
  EXPECT_TRUE(calls->has(5 + 1024));
  calls->forget();
  EXPECT_FALSE(calls->has(5 + 1024));
}

TEST(Hash, DependsOnEveryPartAndItsLength) {
  const auto of = [](std::string_view a, std::string_view b) {
    return Hash().add(a).add(b).result();
  };
  EXPECT_EQ(of("ab", "c"), of("ab", "c"));
  EXPECT_NE(of("ab", "c"), of("a", "bc"));
  EXPECT_NE(of("ab", "c"), of("ab", "d"));
  EXPECT_NE(Hash().add(uint64_t{1}).result(), Hash().add(uint64_t{2}).result());
}

}  // namespace
}  // namespace cudaguard
