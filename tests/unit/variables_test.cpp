// SPDX-License-Identifier: Apache-2.0
// Compares the table of variables with the functions that use it.
#include "policy/variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "policy/config.h"

namespace cudaguard {
namespace {

std::vector<std::string> words_of(Variable variable) {
  std::vector<std::string> words;
  std::string_view rest = row_of(variable).accepted;
  while (!rest.empty()) {
    const std::string_view word = take_entry(rest);
    words.emplace_back(word.starts_with(' ') ? tail(word, 1) : word);
  }
  return words;
}

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

TEST(Variables, EachPolicyHasAWordAndARow) {
  const std::vector<std::string> words = words_of(Variable::kPolicy);
  ASSERT_EQ(words.size(), std::size(kRules));
  for (size_t i = 0; i < words.size(); ++i) {
    const auto policy = static_cast<Policy>(i);
    EXPECT_EQ(name_of(policy), words[i]);
    const Config config = parse_config({.policy = words[i].c_str()});
    EXPECT_EQ(config.policy, policy);
    EXPECT_EQ(config.complaint_count, 0U);
  }
}

TEST(Variables, WordsAreInTheOrderOfTheirEnumeration) {
  EXPECT_EQ(name_of(Policy::kForceCpu), "FORCE_CPU");
  EXPECT_EQ(name_of(Policy::kValidate), "VALIDATE");
  EXPECT_EQ(name_of(Policy::kClamp), "CLAMP");
  EXPECT_EQ(name_of(Policy::kOff), "OFF");
  const std::vector<std::string> logs = words_of(Variable::kLog);
  ASSERT_EQ(logs, (std::vector<std::string>{"off", "error", "deny", "all"}));
  EXPECT_EQ(parse_config({.log = "deny"}).log, Log::kDeny);
  for (size_t i = 0; i < logs.size(); ++i) {
    EXPECT_EQ(parse_config({.log = logs[i].c_str()}).log, static_cast<Log>(i));
  }
}

}  // namespace
}  // namespace cudaguard
