// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "shim/record/state.h"
#include "shim/stack/hash.h"

namespace cudaguard {
namespace {

using Added = Places::Added;

TEST(Places, PlaceIsNewOnce) {
  const auto places = std::make_unique<Places>();
  EXPECT_EQ(places->add(7), Added::kNew);
  EXPECT_EQ(places->add(7), Added::kKnown);
  EXPECT_EQ(places->add(7 + 4096), Added::kNew);  // the same slot
  EXPECT_EQ(places->add(7), Added::kKnown);
  EXPECT_EQ(places->add(7 + 4096), Added::kKnown);
}

TEST(Places, FirstPlaceWithoutRoomIsReported) {
  const auto places = std::make_unique<Places>();
  for (uint64_t i = 1; i <= Places::kMost; ++i) ASSERT_EQ(places->add(i * 977), Added::kNew);
  EXPECT_FALSE(places->is_full());
  EXPECT_EQ(places->add(977), Added::kKnown);
  EXPECT_EQ(places->add(1), Added::kOneTooMany);
  EXPECT_TRUE(places->is_full());
  EXPECT_EQ(places->add(2), Added::kTooMany);
  EXPECT_EQ(places->add(977), Added::kKnown);
}

TEST(Places, ForgottenPlacesAreNew) {
  const auto places = std::make_unique<Places>();
  for (uint64_t i = 1; i <= Places::kMost + 1; ++i) places->add(i);
  places->note_call(5);
  places->forget();
  EXPECT_FALSE(places->is_full());
  EXPECT_FALSE(places->was_called(5));
  EXPECT_EQ(places->add(1), Added::kNew);
}

TEST(Places, CallIsKnownUntilAnotherTakesItsSlot) {
  const auto places = std::make_unique<Places>();
  places->note_call(5);
  EXPECT_TRUE(places->was_called(5));
  EXPECT_FALSE(places->was_called(5 + 1024));
  places->note_call(5 + 1024);
  EXPECT_FALSE(places->was_called(5));
  places->note_call(0);  // there was no hash
  EXPECT_TRUE(places->was_called(5 + 1024));
}

TEST(Cases, CaseIsNewOnce) {
  const auto cases = std::make_unique<Cases>();
  for (uint64_t i = 0; i < 256; ++i) EXPECT_TRUE(cases->add(i * 977));
  for (uint64_t i = 0; i < 256; ++i) EXPECT_FALSE(cases->add(i * 977));
  EXPECT_TRUE(cases->has(977));
  cases->forget();
  EXPECT_FALSE(cases->has(977));
  EXPECT_TRUE(cases->add(977));
}

TEST(Cases, FullTableForgetsAnOldCaseAndLosesNoNewOne) {
  const auto cases = std::make_unique<Cases>();
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_TRUE(cases->add(i)) << i;
    EXPECT_TRUE(cases->has(i));
    EXPECT_FALSE(cases->add(i));
  }
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
