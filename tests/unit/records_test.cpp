// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/records.h"

#include <gtest/gtest.h>

namespace cudaguard::launcher {
namespace {

constexpr const char* kHead =
    R"({"v":1,"ts":5.5,"pid":7,"ppid":1,"tid":7,"uid":0,"host":"h","exe":"/usr/bin/python3",)"
    R"("argv":["python3","a.py"],"cgroup":"/",)";
constexpr const char* kDenied =
    R"("api":"cuInit","decision":"deny","library":"libx.so","code":"a.py:3",)"
    R"("caller":"/lib/libx.so+0x10"})";

std::string record(const std::string& head = kHead, const std::string& rest = kDenied) {
  return head + rest;
}

TEST(Records, OneOfADeniedAttempt) {
  Records records;
  records.add(record());
  const Findings& findings = records.findings();
  ASSERT_EQ(findings.touchers.size(), 1u);
  const Toucher& one = findings.touchers[0];
  EXPECT_EQ(one.api, "cuInit");
  EXPECT_EQ(one.asked, Asked::kCuda);
  EXPECT_TRUE(one.denied);
  EXPECT_EQ(one.library, "libx.so");
  EXPECT_EQ(one.line, "a.py:3");
  EXPECT_EQ(one.first, 5.5);
  ASSERT_EQ(findings.processes.size(), 1u);
  EXPECT_EQ(findings.processes[0].pid, 7u);
  EXPECT_EQ(findings.processes[0].command, "python3 a.py");
  EXPECT_EQ(findings.records, 1u);
}

TEST(Records, TheSameCallOfManyProcessesIsOneToucher) {
  Records records;
  std::string other = record();
  other.replace(other.find("\"pid\":7"), 7, "\"pid\":8");
  records.add(record());
  records.add(other);
  records.add(record());
  EXPECT_EQ(records.findings().touchers.size(), 1u);
  EXPECT_EQ(records.findings().touchers[0].processes, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(records.findings().records, 3u);
}

TEST(Records, AnotherLibraryIsAnotherToucher) {
  Records records;
  std::string other = record();
  other.replace(other.find("\"libx.so\""), 9, "\"liby.so\"");
  records.add(record());
  records.add(other);
  EXPECT_EQ(records.findings().touchers.size(), 2u);
}

TEST(Records, AnOlderRecordHasTheCallersFileAndNoLine) {
  Records records;
  records.add(record(kHead, R"("api":"cuInit","decision":"deny","caller":"/lib/liby.so+0x10"})"));
  ASSERT_EQ(records.findings().touchers.size(), 1u);
  EXPECT_EQ(records.findings().touchers[0].library, "liby.so");
  EXPECT_EQ(records.findings().touchers[0].line, "");
}

TEST(Records, ARecordThatIsCutShortIsCountedAndTheNextOneRead) {
  const std::string whole = record();
  for (size_t size = 2; size < whole.size(); ++size) {
    Records records;
    records.add(whole.substr(0, size) + whole);
    EXPECT_EQ(records.findings().torn, 1u) << size;
    EXPECT_EQ(records.findings().records, 1u) << size;
    EXPECT_EQ(records.findings().touchers.size(), 1u) << size;
  }
}

TEST(Records, WhatNoGuardHasWrittenIsCounted) {
  Records records;
  for (const char* line : {"hello", "{}", "[]", R"({"v":2,"pid":7})", R"({"v":1,"pid":-7})", ""}) {
    records.add(line);
  }
  EXPECT_EQ(records.findings().records, 0u);
  EXPECT_EQ(records.findings().not_understood, 6u);
}

TEST(Records, AnAllowedAttemptSaysWhatTheProcessDid) {
  Records records;
  records.add(record(kHead, R"("api":"cuInit","object":"GPU-1","event":"init","decision":"allow",)"
                            R"("result":0,"library":"libx.so","caller":"/lib/libx.so+0x10"})"));
  records.add(record(kHead, R"("api":"cuCtxCreate_v2","event":"context","decision":"allow",)"
                            R"("device":2,"library":"libx.so","caller":"/lib/libx.so+0x10"})"));
  ASSERT_EQ(records.findings().processes.size(), 1u);
  const ObservedProcess& process = records.findings().processes[0];
  EXPECT_TRUE(process.initialised);
  EXPECT_EQ(process.by, "libx.so");
  EXPECT_EQ(process.told, "GPU-1");
  EXPECT_EQ(process.contexts, std::set<int>{2});
}

TEST(Records, AnErrorOfTheDriverIsNoInitialisation) {
  for (const auto& [result, none] : {std::pair("100", true), std::pair("999", false)}) {
    Records records;
    records.add(record(kHead, std::string(R"("api":"cuInit","event":"init","decision":"allow",)") +
                                  R"("result":)" + result +
                                  R"(,"library":"libx.so","caller":"/lib/libx.so+0x10"})"));
    const ObservedProcess& process = records.findings().processes.at(0);
    EXPECT_FALSE(process.initialised);
    EXPECT_EQ(process.found_none, none);
    EXPECT_EQ(process.failed, !none);
  }
}

TEST(Records, AStartRecordAloneIsNoAttempt) {
  Records records;
  records.add(record(kHead, R"("event":"start","policy":"FORCE_CPU"})"));
  ASSERT_EQ(records.findings().processes.size(), 1u);
  EXPECT_FALSE(records.findings().processes[0].asked());
  EXPECT_EQ(records.findings().processes[0].policy, "FORCE_CPU");
  EXPECT_TRUE(records.findings().touchers.empty());
  records.add(record());
  EXPECT_EQ(records.findings().processes.size(), 1u);
  EXPECT_TRUE(records.findings().processes[0].asked());
}

}  // namespace
}  // namespace cudaguard::launcher
