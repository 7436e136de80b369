// SPDX-License-Identifier: Apache-2.0
// Checks the table of variables.
#include "policy/variables.h"

#include <gtest/gtest.h>

namespace cudaguard {
namespace {

TEST(Variables, EachVariableHasItsOwnPlace) {
  const Environment environment = read_environment([](const char* name) { return name; });
  for (const VariableRow& row : kVariables) EXPECT_EQ(environment.*row.place, row.name);
}

}  // namespace
}  // namespace cudaguard
