// SPDX-License-Identifier: Apache-2.0
// The guard puts these objects into fresh pages without a constructor, so their defaults must be
// zero.
#include <gtest/gtest.h>

#include "shim/state/process.h"

namespace {

using cudaguard::InheritedState;
using cudaguard::Process;

/// The object must have static storage, which makes its padding zero, too.
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

TEST(ZeroPages, FreshProcessIsZero) { EXPECT_TRUE(is_zero(process)); }
TEST(ZeroPages, FreshInheritedStateIsZero) { EXPECT_TRUE(is_zero(inherited)); }
TEST(ZeroPages, ControlMemberWithAnotherDefaultIsFound) { EXPECT_FALSE(is_zero(one_member)); }

}  // namespace
