// SPDX-License-Identifier: Apache-2.0
// Checks the table of variables.
#include "policy/variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace cudaguard {
namespace {

TEST(Variables, EachVariableHasItsOwnPlace) {
  const Environment environment = read_environment([](const char* name) { return name; });
  for (const VariableRow& row : kVariables) EXPECT_EQ(environment.*row.place, row.name);
}

TEST(Variables, EachVariableIsDescribedOnce) {
  for (const VariableRow& row : kVariables) {
    EXPECT_EQ(
        std::ranges::count(kVariableTexts, std::string_view(row.name),
                           [](const VariableText& text) { return std::string_view(text.name); }),
        1)
        << row.name;
  }
}

}  // namespace
}  // namespace cudaguard
