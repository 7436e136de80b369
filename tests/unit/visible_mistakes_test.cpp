// SPDX-License-Identifier: Apache-2.0
// Tests how many devices a CUDA_VISIBLE_DEVICES with a mistake shows.
#include <gtest/gtest.h>

#include "device_list_fixtures.h"

namespace cudaguard {
namespace {

using testing::eight_gpus;
using testing::Exact;

View all_gpus() {
  View view;
  for (uint16_t i = 0; i < 8; ++i) view.devices[view.count++] = i;
  return view;
}

struct Expected {
  const char* text;
  size_t shown;
};

void check(const Expected& expected, const View* view, const Machine* machine) {
  SCOPED_TRACE(expected.text);
  const Exact text(expected.text);
  EXPECT_EQ(select(text.c_str(), view, machine).count, expected.shown);
}

TEST(MistakenVisibleDevices, ShowTheDevicesBeforeTheMistake) {
  const auto machine = eight_gpus();
  const View view = all_gpus();
  for (const Expected& expected : std::initializer_list<Expected>{
           {"", 0},
           {"-1", 0},
           {"none", 0},
           {"NoDevFiles", 0},
           {"0", 1},
           {"7,0", 2},
           {"0,1,-1", 2},
           {"0,1,", 2},
           {"0,-1,1", 1},
           {"-1,0", 0},
           {"0,0", 0},
           {"1,0,+01", 0},
           {"0,-1,0", 1},
           {"0,8", 1},
           {"8", 0},
           {"99999999999999999999", 0},
           {",0", 0},
           {"0,,1", 1},
           {" ", 0},
           {",", 0},
           {"all", 0},
           {"cuda:0", 0},
           {"0,none", 1},
           {"0, 1", 2},
           {"0 ,1", 2},
           {"0;1", 1},
           {"0 1", 1},
           {"0, 1,9", 2},
           {"0, 0", 0},
           {"0,GPU-00", 1},
           {" GPU-00", 0},
           {"GPU-00", 1},
           {"GPU-00,GPU-11", 2},
           {"GPU-00,1", 1},
           {"GPU-00,x", 1},
           {"GPU-00,MIG-cc", 1},
           {"GPU-00, GPU-11", 1},
           {"GPU-00 ,GPU-11", 0},
           {"GPU-zz", 0},
           {"GPU-aabb", 0},
           {"GPU-00,GPU-00a1", 0},
       }) {
    check(expected, &view, machine.get());
  }
}

TEST(MistakenVisibleDevices, ShowTheDevicesOnAnUnknownMachine) {
  for (const Expected& expected : std::initializer_list<Expected>{
           {"0,8", 2},
           {"99999999999999999999", 1},
           {"0,0", 0},
           {"0,-1,1", 1},
           {"GPU-zz", 1},
           {"GPU-zz,GPU-zz", 0},
           {"GPU-zz, GPU-yy", 1},
       }) {
    check(expected, nullptr, nullptr);
  }
}

TEST(MistakenVisibleDevices, LongListShowsAtMostTheLimit) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.append(std::to_string(i)).append(",");
  const Selection found = select(text.c_str(), nullptr, nullptr);
  EXPECT_EQ(found.count, kMostGpus);
}

}  // namespace
}  // namespace cudaguard
