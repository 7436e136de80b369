// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/child.h"

#include <gtest/gtest.h>

namespace cudaguard::launcher {
namespace {

using std::chrono::milliseconds;

/// Uses a processor for about 300 ms or more.
const std::vector<std::string> busy_loop = {"/bin/sh", "-c",
                                            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"};

TEST(Child, BusyChildHasMoreTimeIfItsCallerAllowsThat) {
  const char* const no_variables[] = {nullptr};
  const Variables none(no_variables);
  EXPECT_FALSE(run_child(busy_loop, none, milliseconds{1}).in_time);
  EXPECT_TRUE(run_child(busy_loop, none, {milliseconds{1}, milliseconds{60'000}}).in_time);
}

TEST(Child, SleepingChildHasNoMoreTime) {
  const char* const no_variables[] = {nullptr};
  const ChildEnd end = run_child({"/bin/sleep", "600"}, Variables(no_variables),
                                 {milliseconds{10}, milliseconds{600'000}});
  EXPECT_FALSE(end.in_time);
  EXPECT_EQ(end.stuck, 0);
}

}  // namespace
}  // namespace cudaguard::launcher
