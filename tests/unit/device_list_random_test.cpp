// SPDX-License-Identifier: Apache-2.0
// Compares random allow-lists and random program values with a plain model (strings, vectors,
// strtol), and passes random bytes (for the sanitizers). The seeds are fixed, so a failure is
// reproducible.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>

#include "device_list_fixtures.h"

namespace cudaguard {
namespace {

using testing::devices_of;
using testing::driver_list;
using testing::eight_gpus;
using testing::Exact;
using testing::indices_of;
using testing::kGpuUuids;
using testing::kMigUuids;
using Indices = std::vector<int>;
using Strings = std::vector<std::string>;

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  size_t below(size_t end) { return engine_() % end; }
  bool one_in(size_t n) { return below(n) == 0; }
  template <typename List>
  auto& one_of(List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::mt19937 engine_;
};

std::string joined(const Strings& entries) {
  std::string text;
  for (size_t i = 0; i < entries.size(); ++i) text.append(i == 0 ? "" : ",").append(entries[i]);
  return text;
}

std::string random_entry(Dice& dice, bool with_nonsense) {
  static constexpr const char* kNonsense[] = {"-1",      "",       "1gpu2",   "all",  "9",
                                              "0x1",     "GPU-zz", "GPU-",    "GPU0", "+1",
                                              "MIG-cc0", "-0",     "GPU-aabb"};
  if (with_nonsense && dice.one_in(8)) return dice.one_of(kNonsense);
  std::string text;
  switch (dice.below(4)) {
    case 0:
      text = dice.one_of(kGpuUuids);
      break;
    case 1:
      text = dice.one_of(kMigUuids);
      break;
    default:
      text.append(dice.one_in(8) ? "0" : "").append(std::to_string(dice.below(8)));
  }
  if (text.size() > 12 && dice.one_in(2)) text.resize(6 + dice.below(8));
  if (dice.one_in(10)) text.insert(0, 1, ' ').append(" ");
  return text;
}

/// Makes mostly entries of one kind, because a mixed list ends at once.
std::string random_list(Dice& dice, bool with_nonsense) {
  Strings entries(dice.below(6));
  const std::string model = random_entry(dice, false);
  const auto kind = [](const std::string& entry) { return entry.find_first_of("GM"); };
  for (std::string& entry : entries) {
    do {
      entry = random_entry(dice, with_nonsense);
    } while (kind(entry) != kind(model) && !dice.one_in(6));
  }
  return joined(entries);
}

Strings split(const std::string& text) {
  Strings entries(1);
  for (const char c : text) {
    if (c == ',') {
      entries.emplace_back();
    } else {
      entries.back() += c;
    }
  }
  return entries;
}

/// Returns the positions (in `uuids`) of the devices whose UUID begins with `start`.
Indices beginning_with(const Strings& uuids, const std::string& start) {
  Indices found;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (uuids[i].rfind(start, 0) == 0) found.push_back(static_cast<int>(i));
  }
  return found;
}

Strings all_uuids() {
  Strings uuids(std::begin(kGpuUuids), std::end(kGpuUuids));
  uuids.insert(uuids.end(), std::begin(kMigUuids), std::end(kMigUuids));
  return uuids;
}

/// Returns the devices that an allow-list allows, or nothing if the list has a mistake.
std::optional<Indices> model_of_list(const std::string& text) {
  const auto trimmed = [](std::string entry) {
    while (!entry.empty() && entry.back() == ' ') entry.pop_back();
    return entry.substr(std::min(entry.find_first_not_of(' '), entry.size()));
  };
  if (trimmed(text).empty() || trimmed(text) == "-1") return Indices{};
  Indices allowed;
  for (const std::string& written : split(text)) {
    const std::string entry = trimmed(written);
    const bool digits =
        !entry.empty() && entry.find_first_not_of("0123456789") == std::string::npos;
    int device = -1;
    if (digits && std::strtol(entry.c_str(), nullptr, 10) < 8) {
      device = static_cast<int>(std::strtol(entry.c_str(), nullptr, 10));
    }
    if (entry.size() > 4 && !digits) {
      const Indices found = beginning_with(all_uuids(), entry);
      if (found.size() == 1) device = found[0];
    }
    if (device < 0) return std::nullopt;
    const auto parent = [](int position) {
      return position < 8 ? position : position < 10 ? 6 : 7;
    };
    for (const int other : allowed) {
      const bool one_is_mig = (other < 8) != (device < 8);
      if (other == device || (one_is_mig && parent(other) == parent(device))) return std::nullopt;
    }
    allowed.push_back(device);
  }
  return allowed;
}

/// Returns the devices that CUDA shows for `value` on a machine that has only the allowed ones.
Indices model_of_program(const std::string& value, const Indices& allowed) {
  Strings uuids;
  for (const int device : allowed) uuids.push_back(all_uuids()[static_cast<size_t>(device)]);
  const std::string kind = value.substr(0, 4);
  const bool by_uuid = kind == "GPU-" || kind == "MIG-";
  Indices shown;
  for (const std::string& entry : split(value)) {
    int position = -1;
    if (by_uuid && entry.rfind(kind, 0) == 0) {
      const Indices found = beginning_with(uuids, entry);
      if (found.size() == 1) position = found[0];
    } else if (!by_uuid) {
      char* end = nullptr;
      const long number = std::strtol(entry.c_str(), &end, 10);
      if (end != entry.c_str() && number >= 0 && number < static_cast<long>(allowed.size())) {
        position = static_cast<int>(number);
      }
    }
    if (position < 0) break;
    if (std::find(shown.begin(), shown.end(), position) != shown.end()) return {};
    shown.push_back(position);
  }
  return shown;
}

TEST(DeviceListRandom, AnyListAndProgramValue_MatchTheModel) {
  const auto machine = eight_gpus();
  Dice dice(20240607);
  size_t mistakes = 0;
  size_t shown = 0;
  size_t narrowed = 0;
  for (int round = 0; round < 4'000; ++round) {
    const std::string list = random_list(dice, dice.one_in(4));
    const std::string value = random_list(dice, dice.one_in(2));
    SCOPED_TRACE(::testing::Message() << "allow-list '" << list << "', program '" << value << "'");
    const View view = resolve(parse_allow_list(list), *machine);
    const std::optional<Indices> allowed = model_of_list(list);
    ASSERT_EQ(view.error.why == ListError::Why::kNone, allowed.has_value());
    const Selection selection = select(value.c_str(), &view, machine.get());
    if (!allowed) {
      ++mistakes;
      ASSERT_EQ(view.count, 0U);
      ASSERT_EQ(selection.count, 0U);
      continue;
    }
    ASSERT_EQ(devices_of(view), *allowed);
    const Indices expected = model_of_program(value, *allowed);
    ASSERT_EQ(indices_of(selection), expected);
    shown += expected.empty() ? 0 : 1;
    narrowed += !expected.empty() && expected.size() < allowed->size() ? 1 : 0;

    // The driver gets only allowed devices, each once, by their full UUIDs.
    const std::string of_driver = driver_list(selection, view, *machine);
    Strings uuids;
    for (const int position : expected) {
      uuids.push_back(all_uuids()[static_cast<size_t>((*allowed)[static_cast<size_t>(position)])]);
    }
    ASSERT_EQ(of_driver, uuids.empty() ? "-1" : joined(uuids));
    VisibleDevice devices[kMostGpus];
    for (size_t i = 0; i < selection.count; ++i) {
      devices[i] = visible_device(i, selection, view, *machine);
    }
    for (int asked = -2; asked < 70; ++asked) {
      const int meant = did_you_mean(asked, devices, selection.count);
      ASSERT_GE(meant, -1);
      ASSERT_LT(meant, static_cast<int>(selection.count));
    }
  }
  // Each kind of round occurred, so the random choices are useful.
  EXPECT_GT(mistakes, 200U);
  EXPECT_GT(shown, 200U);
  EXPECT_GT(narrowed, 100U);
}

/// If the program has no value of its own, the driver reads our list as our selection.
TEST(DeviceListRandom, DriverReadsTheListAsOurSelection) {
  const auto machine = eight_gpus();
  const View whole = resolve(parse_allow_list("0,1,2,3,4,5,6,7"), *machine);
  Dice dice(7);
  for (int round = 0; round < 1'000; ++round) {
    const std::string list = random_list(dice, false);
    const View view = resolve(parse_allow_list(list), *machine);
    const Indices devices = devices_of(view);
    if (std::any_of(devices.begin(), devices.end(), [](int device) { return device >= 8; })) {
      continue;
    }
    const Selection selection = select(nullptr, &view, machine.get());
    const std::string of_driver = driver_list(selection, view, *machine);
    ASSERT_EQ(indices_of(select(of_driver.c_str(), &whole, machine.get())), devices) << list;
  }
}

std::string random_bytes(Dice& dice) {
  static constexpr const char* kPieces[] = {"GPU-", "MIG-", ",",  ",,", "-1", " ", "0",
                                            "7",    "-",    "\t", "a",  "+",  "b", "GPU-aabb"};
  std::string text;
  const size_t pieces = dice.below(40);
  for (size_t i = 0; i < pieces; ++i) {
    if (dice.one_in(3)) {
      text += static_cast<char>(dice.below(256));
    } else {
      text += dice.one_of(kPieces);
    }
  }
  if (dice.one_in(50)) text += std::string(dice.below(300), "9a,"[dice.below(3)]);
  return text;
}

TEST(DeviceListRandom, AnyBytes_StayInsideTheText) {
  const auto machine = eight_gpus();
  auto from_list = std::make_unique<Machine>();
  Dice dice(99);
  for (int round = 0; round < 8'000; ++round) {
    const Exact list_text(random_bytes(dice));
    const Exact value(random_bytes(dice));
    const AllowList list = parse_allow_list(list_text.view());
    ASSERT_LE(list.count, kMostGpus);
    const char* begin = list_text.view().data();
    const char* end = begin + list_text.view().size();
    if (list.error.why != ListError::Why::kNone) {
      ASSERT_GE(list.error.entry.data(), begin);
      ASSERT_LE(list.error.entry.data() + list.error.entry.size(), end);
      ASSERT_EQ(list.error.position, list.count + 1);
    }
    const ListError error = machine_from_list(list, *from_list);
    ASSERT_EQ(from_list->count, error.why == ListError::Why::kNone ? list.count : 0);
    for (const Machine* known : {machine.get(), from_list.get()}) {
      const View view = resolve(list, *known);
      const Selection selection = select(value.c_str(), &view, known);
      ASSERT_LE(selection.count, view.count);
      for (size_t i = 0; i < selection.count; ++i) ASSERT_LT(selection.view[i], view.count);
      driver_list(selection, view, *known);
    }
    // Most of those lists are mistakes, so the value is used again in a view that has every device.
    const View whole = resolve(parse_allow_list("0,1,2,3,4,5,MIG-cc000000,MIG-dd"), *machine);
    ASSERT_LE(select(value.c_str(), &whole, machine.get()).count, 8U);
  }
}

}  // namespace
}  // namespace cudaguard
