// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/child.h"

#include <gtest/gtest.h>

namespace cudaguard::launcher {
namespace {

using std::chrono::milliseconds;

/// A shell script that uses a processor for `ticks` hundredths of a second, however fast it is.
std::string busy(int ticks) {
  return "now() { read -r t rest </proc/uptime; t=${t%.*}${t#*.}; }; now; end=$((t + " +
         std::to_string(ticks) + ")); while [ $t -lt $end ]; do now; done; ";
}

TEST(Child, BusyChildHasMoreTimeIfItsCallerAllowsThat) {
  const char* const no_variables[] = {nullptr};
  const Variables none(no_variables);
  const std::vector<std::string> endless = {"/bin/sh", "-c", "while :; do :; done"};
  EXPECT_FALSE(run_child(endless, none, milliseconds{100}).in_time);
  EXPECT_TRUE(
      run_child({"/bin/sh", "-c", busy(25)}, none, {milliseconds{100}, milliseconds{60'000}})
          .in_time);
}

/// A sleep may take far longer than 0.1 s on a busy machine, because it is a process of its own.
TEST(Child, BusyChildMaySleepBetween) {
  const char* const variables[] = {"PATH=/usr/bin:/bin", nullptr};
  const std::vector<std::string> sleeps_between = {
      "/bin/sh", "-c",
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do " + busy(3) + "sleep 0.1; done"};
  EXPECT_TRUE(
      run_child(sleeps_between, Variables(variables), {milliseconds{1500}, milliseconds{60'000}})
          .in_time);
}

/// /usr/bin/ffprobe has 214 libraries, 14 KB of ld.so's output.
TEST(Child, AllOutputOfAChildThatHasEndedIsRead) {
  const char* const no_variables[] = {nullptr};
  for (int round = 0; round < 20; ++round) {
    const ChildEnd end = run_child({"/bin/sh", "-c", "printf '%60000d' 1; printf '%60000d' 1 >&2"},
                                   Variables(no_variables), milliseconds{10'000});
    ASSERT_TRUE(end.in_time);
    ASSERT_EQ(end.out.size(), 60000U);
    ASSERT_EQ(end.err.size(), 60000U);
  }
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
