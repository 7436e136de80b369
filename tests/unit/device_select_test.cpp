// SPDX-License-Identifier: Apache-2.0
// Tests which devices a program's CUDA_VISIBLE_DEVICES selects inside a view, and the list that the
// driver gets.
#include <gtest/gtest.h>

#include "device_list_fixtures.h"

namespace cudaguard {
namespace {

using testing::driver_list;
using testing::eight_gpus;
using testing::Exact;
using testing::indices_of;
using testing::kGpuUuids;
using testing::kMigUuids;
using Indices = std::vector<int>;
using Why = ListError::Why;

/// A machine and the view that an allow-list gives on it.
struct Viewed {
  std::unique_ptr<Machine> machine = eight_gpus();
  std::string list;
  View view;

  explicit Viewed(std::string text) : list(std::move(text)) {
    view = resolve(parse_allow_list(list), *machine);
    EXPECT_EQ(view.error.why, Why::kNone) << list;
  }
  Indices select(const char* value) const {
    return indices_of(cudaguard::select(value, &view, machine.get()));
  }
  std::string list_for(const char* value) const {
    return driver_list(cudaguard::select(value, &view, machine.get()), view, *machine);
  }
  int meant(int asked, const char* value = nullptr) const {
    const Selection selection = cudaguard::select(value, &view, machine.get());
    VisibleDevice devices[kMostGpus];
    for (size_t i = 0; i < selection.count; ++i) {
      devices[i] = visible_device(i, selection, view, *machine);
    }
    return did_you_mean(asked, devices, selection.count);
  }
};

/// Does the same without NVML.
Viewed unknown(std::string text) {
  Viewed viewed("-1");
  viewed.list = std::move(text);
  const AllowList list = parse_allow_list(viewed.list);
  EXPECT_EQ(machine_from_list(list, *viewed.machine).why, Why::kNone) << viewed.list;
  viewed.view = resolve(list, *viewed.machine);
  EXPECT_EQ(viewed.view.error.why, Why::kNone) << viewed.list;
  return viewed;
}

constexpr const char* kAll = "0,1,2,3,4,5,6,7";
const Indices nothing;

TEST(Select, ValueThatNamesNoDevice_SelectsNothing) {
  const Viewed viewed(kAll);
  for (const char* value :
       {"", " ", ",", ",0", "-1", "none", "all", "void", "NoDevFiles", "abc", "+", "-", "- 0",
        "+ 1", "--0", "cuda:0", "8", "-1,0", "gpu-00a1", "GPU0", " GPU-00", "GPU-00 ,GPU-11",
        "GPU-zz",
        // This is ten, not octal eight.
        "010",
        // These do not wrap around.
        "65536", "4294967296", "4294967297", "18446744073709551616", "99999999999999999999999999",
        "-4294967296",
        // A repeated device empties the list.
        "0,0", "0, 0", "1,0,+01", "0,1,2,3,0", "1,01", "0,0,-1", "GPU-00,GPU-00a1",
        // The beginning of more than one UUID, and other text than a UUID's.
        "GPU-aabb", "GPU-aabb000", "GPU-", "GPU-00A1", "GPU-cc000001"}) {
    EXPECT_EQ(viewed.select(Exact(value).c_str()), nothing) << value;
  }
}

TEST(Select, EntriesSelectPositionsOfTheView) {
  const char* const mixed = "0,1,MIG-dd,MIG-cc000001";
  const struct {
    const char* list;
    const char* value;
    Indices shown;
  } cases[] = {
      // The program's order counts.
      {"5,3,1", "2,0", {2, 0}},
      {"5,3,1", "0,1,2", {0, 1, 2}},
      {"5,3,1", "5", {}},  // GPU 5 is position 0
      {kAll, "7,0", {7, 0}},
      // Numbers are read as strtol does.
      {kAll, "1gpu2,2ampere", {1, 2}},
      {kAll, "+1, +2,\t3 ,4x", {1, 2, 3, 4}},
      {kAll, "007", {7}},
      {kAll, "0x1", {0}},
      {kAll, "-0", {0}},
      {kAll, "1;2", {1}},
      {kAll, "0 1", {0}},
      {kAll, "0 ,1", {0, 1}},
      // The first invalid entry ends the list, so what follows does not matter.
      {kAll, "0,2,-1,1", {0, 2}},
      {kAll, "0,8,1", {0}},
      {kAll, "0,,1", {0}},
      {kAll, "0,1,", {0, 1}},
      {kAll, "0,x,1", {0}},
      {kAll, "0,1,2,3,-1,0,6,7", {0, 1, 2, 3}},
      {kAll, "0,9,0", {0}},
      {kAll, "GPU-00,GPU-zz,GPU-00", {0}},
      {kAll, "GPU-00,GPU-aabb,GPU-11", {0}},
      {"4,5", "0,1,2,3", {0, 1}},
      // The beginning of a UUID is looked up in the view alone.
      {"3,5,0", kGpuUuids[0], {2}},
      {"3,5,0", "GPU-55,GPU-aabb", {1, 0}},  // GPU 2 is not in the view
      {"3,5,0", "GPU-11", {}},
      {"3,5,0", "GPU-55,GPU-11,GPU-00", {1}},
      {"3,5,0", "GPU-00a1c2d3-0000-0000-0000-0000000000000", {}},
      {"4", "GPU-", {0}},
      // The first entry decides the kind.
      {mixed, "GPU-00,1", {0}},
      {mixed, "0,GPU-11", {0}},
      {mixed, "GPU-00,MIG-dd", {0}},
      {mixed, "MIG-dd,GPU-00", {2}},
      {mixed, "MIG-cc,MIG-dd", {3, 2}},
      {mixed, "3,2", {3, 2}},
      {mixed, "GPU-cc000001", {}},
      {mixed, "GPU-00, GPU-11", {0}},  // as PyTorch reads it
  };
  for (const auto& one : cases) {
    EXPECT_EQ(Viewed(one.list).select(Exact(one.value).c_str()), one.shown)
        << one.list << ' ' << one.value;
  }
  EXPECT_EQ(Viewed("5,3,1").select(nullptr), (Indices{0, 1, 2}));
  EXPECT_EQ(Viewed("").select(nullptr), nothing);
}

TEST(Select, TenThousandEntries_AreRead) {
  const Viewed viewed(kAll);
  std::string value = "0";
  for (int i = 1; i < 10'000; ++i) value.append(",").append(std::to_string(i));
  EXPECT_EQ(viewed.select(value.c_str()), (Indices{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SelectWithoutNvml, NumbersAndUuidPrefixes_SelectListedDevices) {
  EXPECT_EQ(unknown("5,3").select("1,0"), (Indices{1, 0}));
  EXPECT_EQ(unknown("5").select("GPU-00"), nothing);
  const Viewed viewed = unknown("GPU-aabb0001,GPU-00,GPU-11b2");
  EXPECT_EQ(viewed.select("GPU-00a1c2d3,GPU-a"), (Indices{1, 0}));
  EXPECT_EQ(viewed.select("GPU-11b3"), nothing);
  EXPECT_EQ(viewed.select("GPU-"), nothing);
  EXPECT_EQ(viewed.select("GPU-00a1,GPU-00a2"), nothing);  // one entry twice
  EXPECT_EQ(unknown("MIG-aa").select("MIG-aabb"), (Indices{0}));
  EXPECT_EQ(unknown("MIG-aa").select("GPU-aa"), nothing);
}

TEST(MistakenVisibleDevices, ShowTheDevicesOnAnUnknownMachine) {
  for (const auto& [text, shown] :
       {std::pair{"0,0", 0U}, std::pair{"GPU-zz,GPU-zz", 0U}, std::pair{"99999999999999999999", 1U},
        std::pair{"0,-1,1", 1U}, std::pair{"GPU-zz", 1U}, std::pair{"GPU-zz, GPU-yy", 1U},
        std::pair{"0,8", 2U}}) {
    EXPECT_EQ(select(Exact(text).c_str(), nullptr, nullptr).count, shown) << text;
  }
}

TEST(MistakenVisibleDevices, LongListShowsAtMostTheLimit) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.append(std::to_string(i)).append(",");
  EXPECT_EQ(select(text.c_str(), nullptr, nullptr).count, kMostGpus);
}

// --- write_driver_list ---------------------------------------------------------------------------

TEST(DriverList, HasTheFullUuidsOfTheSelection) {
  const Viewed viewed("5,GPU-00,MIG-dd");
  EXPECT_EQ(viewed.list_for("1"), kGpuUuids[0]);
  EXPECT_EQ(viewed.list_for("GPU-00,GPU-55"), std::string(kGpuUuids[0]) + "," + kGpuUuids[5]);
  EXPECT_EQ(viewed.list_for("2"), kMigUuids[2]);
}

TEST(DriverList, None_IsMinusOne) {
  EXPECT_EQ(Viewed("0").list_for(""), "-1");
  EXPECT_EQ(Viewed("-1").list_for(nullptr), "-1");
  EXPECT_EQ(Viewed("0").list_for("0,0"), "-1");
}

TEST(DriverList, WithoutNvml_HasTheListsOwnEntries) {
  EXPECT_EQ(unknown("5, 03,0").list_for(nullptr), "5,3,0");
  EXPECT_EQ(unknown("5,3,0").list_for("2,0"), "0,5");
  EXPECT_EQ(unknown("GPU-bb,GPU-aa").list_for("1,0"), "GPU-aa,GPU-bb");
  EXPECT_EQ(unknown("GPU-aa").list_for("GPU-aabb"), "GPU-aa");
}

TEST(DriverList, OneUuidMissing_MeansIndicesForAll) {
  Viewed viewed("5,3,MIG-cc000001");
  viewed.machine->devices[3].uuid[0] = '\0';
  EXPECT_EQ(viewed.list_for("0"), kGpuUuids[5]);
  EXPECT_EQ(viewed.list_for("0,1"), "5,3");
  EXPECT_EQ(viewed.list_for(nullptr), "(false)");  // a MIG device has no index
}

TEST(DriverList, TooSmallBuffer_ReturnsFalse) {
  const Viewed viewed("0,1");
  const Selection selection = select(nullptr, &viewed.view, viewed.machine.get());
  const std::string whole = viewed.list_for(nullptr);
  for (size_t size = 0; size <= whole.size(); ++size) {
    std::vector<char> buffer(size);
    Text out(buffer.data(), size);
    EXPECT_EQ(write_driver_list(out, selection, viewed.view, *viewed.machine),
              size == whole.size());
  }
}

// --- did_you_mean --------------------------------------------------------------------------------

TEST(DidYouMean, PhysicalIndexOfAVisibleGpu_SuggestsItsPosition) {
  const Viewed viewed("5,3");
  EXPECT_EQ(viewed.meant(5), 0);
  EXPECT_EQ(viewed.meant(3), 1);
  EXPECT_EQ(viewed.meant(5, "1,0"), 1);  // the position where the program finds it now
  EXPECT_EQ(viewed.meant(5, "1"), -1);
  EXPECT_EQ(viewed.meant(4), -1);
  EXPECT_EQ(unknown("5,3").meant(3), 1);
}

TEST(DidYouMean, ViewIndexThatTheProgramChose_SuggestsItsPosition) {
  const Viewed viewed("4,5,6,7");
  EXPECT_EQ(viewed.meant(2, "2"), 0);
  EXPECT_EQ(viewed.meant(3, "2,3"), 1);
  EXPECT_EQ(viewed.meant(1, "2"), -1);
}

TEST(DidYouMean, TwoMeaningsOrNone_SuggestNothing) {
  EXPECT_EQ(Viewed("1,0,3,2").meant(2, "2,3"), -1);  // GPU 2, or view index 2, which is GPU 3
  EXPECT_EQ(Viewed("0,1,2").meant(2, "2"), 0);       // both are the same device
  EXPECT_EQ(Viewed("MIG-dd").meant(7), 0);
  EXPECT_EQ(Viewed("MIG-cc000000,MIG-cc000001").meant(6), -1);
  EXPECT_EQ(unknown("GPU-aa").meant(65535), -1);
  const Viewed viewed = unknown("GPU-aa");
  EXPECT_EQ(visible_device(0, select("0", &viewed.view, viewed.machine.get()), viewed.view,
                           *viewed.machine)
                .physical,
            -1);
  for (const int asked : {-1, -2147483647 - 1, 2147483647, 65536, 65541}) {
    EXPECT_EQ(Viewed("5").meant(asked), -1) << asked;
  }
}

}  // namespace
}  // namespace cudaguard
