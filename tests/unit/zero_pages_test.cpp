// SPDX-License-Identifier: Apache-2.0
// What the guard puts into fresh pages without running a constructor must be all zero by default.
#include <gtest/gtest.h>

#include "shim/state/process.h"

namespace {

using cudaguard::InheritedState;
using cudaguard::Process;

/// Of an object of static storage: its padding is zero, too.
template <typename T>
bool is_zero(const T& object) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&object);
  for (size_t i = 0; i < sizeof object; ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

struct OneMember {
  char before[64] = {};
  int none = -1;
};

constinit Process process;
constinit InheritedState inherited;
constinit OneMember one_member;

TEST(ZeroPages, AProcessInWhichNothingHasHappened) { EXPECT_TRUE(is_zero(process)); }
TEST(ZeroPages, WhatLastsBeforeAnythingHasHappened) { EXPECT_TRUE(is_zero(inherited)); }
TEST(ZeroPages, SeesAMemberWithAnotherDefault) { EXPECT_FALSE(is_zero(one_member)); }

}  // namespace
