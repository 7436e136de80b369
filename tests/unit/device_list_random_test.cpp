// SPDX-License-Identifier: Apache-2.0
// Passes random bytes as allow-lists and as program values (for the sanitizers). The seed is fixed,
// so a failure is reproducible.
#include <gtest/gtest.h>

#include <random>

#include "device_list_fixtures.h"

namespace cudaguard {
namespace {

using testing::driver_list;
using testing::eight_gpus;
using testing::Exact;

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
