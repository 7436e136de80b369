// SPDX-License-Identifier: Apache-2.0
#include "policy/config.h"

#include <gtest/gtest.h>

#include <string>

namespace cudaguard {
namespace {

Config parsed_policy(const char* value) { return parse_config({.policy = value}); }

TEST(Config, NothingSet_ForcesCpuAndSaysItOnce) {
  const Config config = parse_config({});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_EQ(config.log, Log::kDeny);
  EXPECT_TRUE(config.report.empty());
  EXPECT_EQ(config.complaint_count, 0U);
}

TEST(Config, Policy_AnyCaseAndDash) {
  for (const char* value : {"FORCE_CPU", "force_cpu", "Force-Cpu", "force-CPU"}) {
    EXPECT_EQ(parsed_policy(value).policy, Policy::kForceCpu) << value;
    EXPECT_EQ(parsed_policy(value).complaint_count, 0U) << value;
  }
  for (const char* value : {"OFF", "off", "Off"}) {
    EXPECT_EQ(parsed_policy(value).policy, Policy::kOff) << value;
  }
}

TEST(Config, UnknownPolicy_IsForceCpuWithOneComplaint) {
  // VALIDATE and CLAMP are policies of a later version.
  for (const char* value : {"VALIDATE", "CLAMP", "ON", "0", " OFF", "OFF ", "OFFF", "\xff"}) {
    const Config config = parsed_policy(value);
    EXPECT_EQ(config.policy, Policy::kForceCpu) << value;
    ASSERT_EQ(config.complaint_count, 1U) << value;
    EXPECT_EQ(config.complaints[0].variable, "CUDAGUARD_POLICY");
    EXPECT_EQ(config.complaints[0].value, value);
    EXPECT_EQ(config.complaints[0].accepted, "FORCE_CPU, OFF");
  }
}

TEST(Config, EmptyVariable_IsUnset) {
  const Config config = parse_config({.policy = "", .log = "", .report = ""});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_EQ(config.log, Log::kDeny);
  EXPECT_TRUE(config.report.empty());
  EXPECT_EQ(config.complaint_count, 0U);
}

TEST(Config, Log) {
  EXPECT_EQ(parse_config({.log = "off"}).log, Log::kOff);
  EXPECT_EQ(parse_config({.log = "ALL"}).log, Log::kAll);
  const Config bad = parse_config({.log = "verbose"});
  EXPECT_EQ(bad.log, Log::kDeny);
  ASSERT_EQ(bad.complaint_count, 1U);
  EXPECT_EQ(bad.complaints[0].accepted, "off, deny, all");
}

TEST(Config, Report_LongestPathAndOneMore) {
  const std::string longest(kMaxReportPath, 'x');
  EXPECT_EQ(parse_config({.report = longest.c_str()}).report, longest);
  const std::string more(kMaxReportPath + 1, 'x');
  const Config config = parse_config({.report = more.c_str()});
  EXPECT_TRUE(config.report.empty());
  ASSERT_EQ(config.complaint_count, 1U);
  EXPECT_EQ(config.complaints[0].variable, "CUDAGUARD_REPORT");
}

TEST(Config, AllBad_ThreeComplaints) {
  const std::string more(kMaxReportPath + 1, 'x');
  EXPECT_EQ(parse_config({.policy = "a", .log = "b", .report = more.c_str()}).complaint_count, 3U);
}

TEST(Config, Privileged_IgnoresTheEnvironment) {
  const Config config =
      parse_config({.policy = "OFF", .log = "bad", .report = "/tmp/x", .privileged = true});
  EXPECT_EQ(config.policy, Policy::kForceCpu);
  EXPECT_TRUE(config.report.empty());
  EXPECT_EQ(config.complaint_count, 0U);
}

TEST(Config, ForkedChild_KeepsItsParentsPolicyAndCanOnlyNarrowIt) {
  const Policy off = Policy::kOff;
  const Policy cpu = Policy::kForceCpu;
  const auto child = [](const Policy& parent, const char* value) {
    return parse_config({.policy = value, .inherited = &parent}).policy;
  };
  EXPECT_EQ(child(off, nullptr), off);
  EXPECT_EQ(child(off, ""), off);
  EXPECT_EQ(child(off, "OFF"), off);
  EXPECT_EQ(child(off, "FORCE_CPU"), cpu);
  EXPECT_EQ(child(off, "nonsense"), cpu);
  EXPECT_EQ(child(cpu, nullptr), cpu);
  EXPECT_EQ(child(cpu, "OFF"), cpu);
  EXPECT_EQ(child(cpu, "nonsense"), cpu);
}

TEST(Config, WantsLine) {
  EXPECT_TRUE(wants_line(Log::kDeny, true));
  EXPECT_FALSE(wants_line(Log::kDeny, false));
  EXPECT_TRUE(wants_line(Log::kAll, false));
  EXPECT_FALSE(wants_line(Log::kOff, true));
}

}  // namespace
}  // namespace cudaguard
