// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/state/start_environment.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace cudaguard {
namespace {

std::unique_ptr<StartEnvironment> read(std::vector<std::string> entries) {
  auto result = std::make_unique<StartEnvironment>();
  std::vector<char*> variables;
  variables.reserve(entries.size() + 1);
  for (std::string& entry : entries) variables.push_back(entry.data());
  variables.push_back(nullptr);
  read_start_environment(*result, variables.data());
  // Setproctitle overwrites it so.
  for (std::string& entry : entries) entry.assign(entry.size(), 'x');
  return result;
}

TEST(StartEnvironment, KeepsCopiesOfTheGuardsVariables) {
  const auto environment =
      read({"PATH=/bin", "CUDAGUARD_POLICY=OFF", "CUDAGUARD_POLICY=CLAMP", "CUDAGUARD_POLICYX=1",
            "CUDAGUARD_LOG=", "CUDAGUARD_REPORT=/tmp/a=b"});
  EXPECT_STREQ(environment->variables.policy, "OFF") << "the first one counts, as for getenv()";
  EXPECT_STREQ(environment->variables.log, "");
  EXPECT_STREQ(environment->variables.report, "/tmp/a=b");
  EXPECT_EQ(environment->variables.visible_devices, nullptr);
  EXPECT_FALSE(environment->wants_start);
  EXPECT_TRUE(read({"CUDAGUARD_HELLO=1"})->wants_start);
  EXPECT_FALSE(read({"CUDAGUARD_HELLO=11"})->wants_start);
}

TEST(StartEnvironment, TooLongValuesStayTooLong) {
  const std::string junk(100000, 'a');
  std::vector<std::string> entries;
  for (const VariableRow& row : kVariables) entries.push_back(std::string(row.name) + "=" + junk);
  const auto environment = read(entries);
  EXPECT_GT(std::string(environment->variables.report).size(), kMaxReportPath);
  EXPECT_GT(std::string(environment->variables.visible_devices).size(), kMaxVisibleDevices);
  // No word of a list can be longer than the list.
  EXPECT_GT(std::string(environment->variables.policy).size(),
            std::string(row_of(Variable::kPolicy).accepted).size());
}

TEST(StartEnvironment, SecondReaderChangesNothing) {
  char policy[] = "CUDAGUARD_POLICY=FORCE_CPU";
  char log[] = "CUDAGUARD_LOG=off";
  char late[] = "CUDAGUARD_POLICY=OFF";
  char* at_start[] = {policy, log, nullptr};
  char* later[] = {late, nullptr};
  auto environment = std::make_unique<StartEnvironment>();
  read_start_environment(*environment, at_start);
  read_start_environment(*environment, later);
  EXPECT_STREQ(environment->variables.policy, "FORCE_CPU") << "it is read only once";
  environment->read.store(false);  // as a thread finds it while another one reads
  read_start_environment(*environment, at_start);
  EXPECT_STREQ(environment->variables.policy, "FORCE_CPU");
  EXPECT_STREQ(environment->variables.log, "off");
}

TEST(StartEnvironment, KeepsTheLocalesCharacterSet) {
  EXPECT_STREQ(read({"LANG=de_DE.UTF-8@euro"})->charset, ".UTF-8@euro");
  EXPECT_STREQ(read({"LANG=C.UTF-8", "LC_CTYPE=C", "LC_ALL="})->charset, "")
      << "LC_CTYPE decides, because LC_ALL is empty";
  EXPECT_STREQ(read({"LANG=C", "LC_ALL=en_US.utf8", "LC_ALL=C"})->charset, ".utf8");
  EXPECT_STREQ(read({"LANGUAGE=de.UTF-8", "LC_COLLATE=de.UTF-8", "L"})->charset, "");
  const std::string longest = "." + std::string(100000, 'a');
  EXPECT_EQ(read({"LANG=" + longest})->charset, longest.substr(0, 31));
}

}  // namespace
}  // namespace cudaguard
