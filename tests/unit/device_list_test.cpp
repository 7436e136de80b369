// SPDX-License-Identifier: Apache-2.0
#include "policy/device_list.h"

#include <gtest/gtest.h>

#include "device_list_fixtures.h"

namespace cudaguard {

void PrintTo(ListError::Why why, std::ostream* out) { *out << "Why " << static_cast<int>(why); }

namespace {

using testing::devices_of;
using testing::driver_list;
using testing::eight_gpus;
using testing::kGpuUuids;
using Why = ListError::Why;
using Kind = AllowEntry::Kind;
using Indices = std::vector<int>;

struct Mistake {
  std::string_view list;
  Why why;
  size_t position;
  std::string_view entry;
};

void expect_error(const ListError& error, const Mistake& mistake) {
  EXPECT_EQ(error.why, mistake.why) << mistake.list;
  EXPECT_EQ(error.position, mistake.position) << mistake.list;
  EXPECT_EQ(error.entry, mistake.entry) << mistake.list;
}

std::string numbers_up_to(size_t end) {
  std::string text;
  for (size_t i = 0; i < end; ++i) text.append(i == 0 ? "" : ",").append(std::to_string(i));
  return text;
}

// --- parse_allow_list ----------------------------------------------------------------------------

TEST(AllowListSyntax, IndicesAndUuids_AreAccepted) {
  const AllowList list = parse_allow_list("3,GPU-00a1,MIG-cc00,MIG-GPU-00a1/7/0");
  EXPECT_EQ(list.error.why, Why::kNone);
  EXPECT_FALSE(list.none);
  ASSERT_EQ(list.count, 4U);
  EXPECT_EQ(list.entries[0].kind, Kind::kIndex);
  EXPECT_EQ(list.entries[0].index, 3U);
  EXPECT_EQ(list.entries[1].kind, Kind::kGpu);
  EXPECT_EQ(list.entries[1].text, "GPU-00a1");
  EXPECT_EQ(list.entries[2].kind, Kind::kMig);
  EXPECT_EQ(list.entries[3].kind, Kind::kMig);
  EXPECT_EQ(list.entries[3].text, "MIG-GPU-00a1/7/0");
}

TEST(AllowListSyntax, OuterBlanksAndLeadingZeros_AreAccepted) {
  const AllowList list = parse_allow_list(" 07 ,\t000 , GPU-00a1 \n");
  EXPECT_EQ(list.error.why, Why::kNone);
  ASSERT_EQ(list.count, 3U);
  EXPECT_EQ(list.entries[0].index, 7U);
  EXPECT_EQ(list.entries[0].text, "07");
  EXPECT_EQ(list.entries[1].index, 0U);
  EXPECT_EQ(list.entries[2].text, "GPU-00a1");
}

TEST(AllowListSyntax, EmptyBlankOrMinusOne_MeansNoneWithoutAMistake) {
  for (const char* text : {"", " ", " \t\n", "-1", " -1 "}) {
    const AllowList list = parse_allow_list(text);
    EXPECT_TRUE(list.none) << text;
    EXPECT_EQ(list.error.why, Why::kNone) << text;
    EXPECT_EQ(list.count, 0U) << text;
  }
}

TEST(AllowListSyntax, Mistakes_HaveReasonPlaceAndEntry) {
  const std::string long_uuid = "GPU-" + std::string(kMostUuid - 4, 'a');
  for (const Mistake& mistake : std::initializer_list<Mistake>{
           {"0,,1", Why::kEmptyEntry, 2, ""},
           {"0,", Why::kEmptyEntry, 2, ""},
           {",", Why::kEmptyEntry, 1, ""},
           {"0, ,1", Why::kEmptyEntry, 2, ""},
           {"0, 1gpu2 ,3", Why::kNotUnderstood, 2, "1gpu2"},
           {"-1,0", Why::kNegative, 1, "-1"},
           {"0,-1", Why::kNegative, 2, "-1"},
           {"-2", Why::kNegative, 1, "-2"},
           {"-99999999999999999999", Why::kNegative, 1, "-99999999999999999999"},
           {"0,MIG-", Why::kAmbiguousUuid, 2, "MIG-"},
           {"1000001", Why::kNoSuchIndex, 1, "1000001"},
           {"0,4294967296", Why::kNoSuchIndex, 2, "4294967296"},
           {"18446744073709551616", Why::kNoSuchIndex, 1, "18446744073709551616"},
           {long_uuid, Why::kUnknownUuid, 1, long_uuid},
           {"1,01", Why::kDuplicate, 2, "01"},
           {"0,GPU-aa,0", Why::kDuplicate, 3, "0"},
           {"GPU-aabb,GPU-cc,GPU-aa", Why::kDuplicate, 3, "GPU-aa"},
       }) {
    const AllowList list = parse_allow_list(mistake.list);
    expect_error(list.error, mistake);
    EXPECT_EQ(list.count, mistake.position - 1) << mistake.list;
    EXPECT_FALSE(list.none) << mistake.list;
  }
}

TEST(AllowListSyntax, OtherWords_AreNotUnderstood) {
  for (const char* word : {"1gpu2", "all", "0x1", "+1", "0 1", "-", "--1", "-1x", "GPU0",
                           "gpu-00a1", "GPU-00 a1", "GPU-\xc3\xa9"}) {
    expect_error(parse_allow_list(word).error, {word, Why::kNotUnderstood, 1, word});
  }
}

TEST(AllowListSyntax, LargestIndexAndLongestUuid_AreAccepted) {
  const AllowList list = parse_allow_list("1000000,GPU-" + std::string(kMostUuid - 5, 'a'));
  EXPECT_EQ(list.error.why, Why::kNone);
  ASSERT_EQ(list.count, 2U);
  EXPECT_EQ(list.entries[0].index, 1'000'000U);
}

TEST(AllowListSyntax, SixtyFourEntriesFit_OneMoreIsAMistake) {
  const std::string most = numbers_up_to(kMostGpus);
  EXPECT_EQ(parse_allow_list(most).error.why, Why::kNone);
  EXPECT_EQ(parse_allow_list(most).count, kMostGpus);
  for (const std::string& text : {numbers_up_to(kMostGpus + 1), numbers_up_to(10'000)}) {
    const AllowList list = parse_allow_list(text);
    expect_error(list.error, {"65 or more", Why::kTooMany, 65, "64"});
    EXPECT_EQ(list.count, kMostGpus);
  }
  // The text of the 65th entry does not matter.
  expect_error(parse_allow_list(most + ",all").error, {"all", Why::kTooMany, 65, "all"});
}

// --- resolve -------------------------------------------------------------------------------------

View resolved(std::string_view text, const Machine& machine) {
  return resolve(parse_allow_list(text), machine);
}

TEST(Resolve, KeepsTheOrderOfTheList) {
  const auto machine = eight_gpus();
  EXPECT_EQ(devices_of(resolved("5,0,3", *machine)), (Indices{5, 0, 3}));
  EXPECT_EQ(devices_of(resolved("07, 01", *machine)), (Indices{7, 1}));
  EXPECT_EQ(devices_of(resolved("GPU-7,GPU-0,GPU-aabb0001", *machine)), (Indices{7, 0, 3}));
  EXPECT_EQ(devices_of(resolved("MIG-dd,MIG-cc000001,0", *machine)), (Indices{10, 9, 0}));
  EXPECT_EQ(devices_of(resolved("MIG-cc000000,MIG-cc000001", *machine)), (Indices{8, 9}));
  EXPECT_EQ(devices_of(resolved(kGpuUuids[4], *machine)), (Indices{4}));
  EXPECT_EQ(devices_of(resolved("0,1,2,3,4,5,6,7", *machine)), (Indices{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Resolve, Mistakes_LeaveNoDevice) {
  const auto machine = eight_gpus();
  for (const Mistake& mistake : std::initializer_list<Mistake>{
           {"8", Why::kNoSuchIndex, 1, "8"},
           {"65535", Why::kNoSuchIndex, 1, "65535"},
           {"65536", Why::kNoSuchIndex, 1, "65536"},  // would be 0 in 16 bits
           {"1,01", Why::kDuplicate, 2, "01"},
           {"0,GPU-00a1", Why::kDuplicate, 2, "GPU-00a1"},
           {"GPU-00a1,0", Why::kDuplicate, 2, "0"},
           {"GPU-00a1,GPU-00", Why::kDuplicate, 2, "GPU-00"},
           {"MIG-dd,MIG-dd0", Why::kDuplicate, 2, "MIG-dd0"},
           {"6,MIG-cc000001", Why::kDuplicate, 2, "MIG-cc000001"},
           {"MIG-dd,0,GPU-77", Why::kDuplicate, 3, "GPU-77"},
           {"GPU-a", Why::kAmbiguousUuid, 1, "GPU-a"},
           {"0,GPU-aabb000", Why::kAmbiguousUuid, 2, "GPU-aabb000"},
           {"MIG-cc", Why::kAmbiguousUuid, 1, "MIG-cc"},
           {"GPU-", Why::kAmbiguousUuid, 1, "GPU-"},
           {"GPU-zz", Why::kUnknownUuid, 1, "GPU-zz"},
           {"GPU-00A1", Why::kUnknownUuid, 1, "GPU-00A1"},
           {"GPU-cc000001", Why::kUnknownUuid, 1, "GPU-cc000001"},
           {"MIG-00a1c2d3", Why::kUnknownUuid, 1, "MIG-00a1c2d3"},
           {"GPU-00a1c2d3-0000-0000-0000-0000000000000", Why::kUnknownUuid, 1,
            "GPU-00a1c2d3-0000-0000-0000-0000000000000"},
           {"0,all", Why::kNotUnderstood, 2, "all"},  // syntax error, passed on
       }) {
    const View view = resolved(mistake.list, *machine);
    expect_error(view.error, mistake);
    EXPECT_EQ(view.count, 0U) << mistake.list;
  }
}

TEST(Resolve, MachineWithoutGpus_HasNone) {
  Machine machine;
  EXPECT_EQ(resolved("0", machine).error.why, Why::kNoSuchIndex);
  EXPECT_EQ(resolved("GPU-00a1", machine).error.why, Why::kUnknownUuid);
  EXPECT_EQ(resolved("", machine).error.why, Why::kNone);
}

TEST(Resolve, DeviceWithoutUuid_IsFoundByIndexOnly) {
  auto machine = eight_gpus();
  machine->devices[0].uuid[0] = '\0';
  EXPECT_EQ(devices_of(resolved("0", *machine)), (Indices{0}));
  EXPECT_EQ(resolved("GPU-00a1", *machine).error.why, Why::kUnknownUuid);
}

TEST(Resolve, UuidThatFillsItsField_IsReadToItsEnd) {
  auto machine = std::make_unique<Machine>();
  const std::string uuid = "GPU-" + std::string(kMostUuid - 4, 'b');
  testing::add_device(*machine, uuid, 0x6262, false);  // "bb" follows the field
  const View view = resolved("GPU-b", *machine);
  EXPECT_EQ(driver_list(select(nullptr, &view, machine.get()), view, *machine), uuid);
}

TEST(Resolve, GpuOfUnknownIndex_IsFoundByUuidOnly) {
  auto machine = std::make_unique<Machine>();
  testing::add_device(*machine, kGpuUuids[0], Machine::kUnknownGpu, false);
  EXPECT_EQ(resolved("65535", *machine).error.why, Why::kNoSuchIndex);
  EXPECT_EQ(devices_of(resolved("GPU-00", *machine)), (Indices{0}));
}

// --- machine_from_list ---------------------------------------------------------------------------

TEST(MachineFromList, EachEntry_IsOneDevice) {
  auto machine = std::make_unique<Machine>();
  const AllowList list = parse_allow_list("5, 03");
  EXPECT_EQ(machine_from_list(list, *machine).why, Why::kNone);
  EXPECT_FALSE(machine->known);
  ASSERT_EQ(machine->count, 2U);
  EXPECT_EQ(machine->devices[0].gpu, 5);
  EXPECT_EQ(machine->devices[1].gpu, 3);
  EXPECT_STREQ(machine->devices[0].uuid, "");
  EXPECT_EQ(devices_of(resolve(list, *machine)), (Indices{0, 1}));

  const AllowList uuids = parse_allow_list("GPU-bb,GPU-aa");
  EXPECT_EQ(machine_from_list(uuids, *machine).why, Why::kNone);
  ASSERT_EQ(machine->count, 2U);
  EXPECT_STREQ(machine->devices[0].uuid, "GPU-bb");
  EXPECT_FALSE(machine->devices[0].mig);
  EXPECT_EQ(machine->devices[0].gpu, Machine::kUnknownGpu);
  EXPECT_EQ(devices_of(resolve(uuids, *machine)), (Indices{0, 1}));

  const AllowList migs = parse_allow_list("MIG-bb,MIG-aa");
  EXPECT_EQ(machine_from_list(migs, *machine).why, Why::kNone);
  EXPECT_TRUE(machine->devices[1].mig);
  EXPECT_EQ(devices_of(resolve(migs, *machine)), (Indices{0, 1}));
}

TEST(MachineFromList, EntryThatCannotBeChecked_IsAnError) {
  auto machine = eight_gpus();
  for (const Mistake& mistake : std::initializer_list<Mistake>{
           {"0,GPU-aa", Why::kNeedsNvml, 2, "GPU-aa"},
           {"GPU-aa,GPU-bb,0", Why::kNeedsNvml, 3, "0"},
           {"GPU-aa,MIG-bb", Why::kNeedsNvml, 2, "MIG-bb"},
           {"MIG-aa,0", Why::kNeedsNvml, 2, "0"},
           {"1,01", Why::kDuplicate, 2, "01"},
           {"GPU-aa,GPU-aabb", Why::kDuplicate, 2, "GPU-aabb"},
           {"GPU-aabb,GPU-cc,GPU-aa", Why::kDuplicate, 3, "GPU-aa"},
           {"MIG-aa,MIG-aa", Why::kDuplicate, 2, "MIG-aa"},
           {"65535", Why::kNoSuchIndex, 1, "65535"},
           {"0,all", Why::kNotUnderstood, 2, "all"},
       }) {
    expect_error(machine_from_list(parse_allow_list(mistake.list), *machine), mistake);
    EXPECT_EQ(machine->count, 0U) << mistake.list;
    EXPECT_FALSE(machine->known) << mistake.list;
  }
}

TEST(MachineFromList, LongestUuid_KeepsItsEnd) {
  auto machine = std::make_unique<Machine>();
  const std::string uuid = "GPU-" + std::string(kMostUuid - 5, 'a');
  EXPECT_EQ(machine_from_list(parse_allow_list(uuid), *machine).why, Why::kNone);
  EXPECT_EQ(machine->devices[0].uuid, uuid);
}

}  // namespace
}  // namespace cudaguard
