// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/records.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "shim/guard/text/record.h"

namespace cudaguard::launcher {
namespace {

constexpr const char* kHead =
    R"({"v":1,"ts":5.5,"pid":7,"ppid":1,"tid":7,"uid":0,"host":"h","exe":"/usr/bin/python3",)"
    R"("argv":["python3","a.py"],"cgroup":"/",)";
constexpr const char* kDenied =
    R"("api":"cuInit","decision":"deny","library":"libx.so","code":"a.py:3",)"
    R"("caller":"/lib/libx.so+0x10"})";

std::string record() { return std::string(kHead) + kDenied; }

/// The facts in a record about the process that wrote it.
struct Writer {
  int64_t pid = 7;
  double ts = 5;
  std::string host = "h";
  std::string more = R"("exe":"/usr/bin/python3",)";
};

std::string record_of(const Writer& writer, const std::string& rest = kDenied) {
  return R"({"v":1,"ts":)" + std::to_string(writer.ts) + R"(,"pid":)" + std::to_string(writer.pid) +
         R"(,"host":")" + writer.host + R"(",)" + writer.more + rest;
}

constexpr const char* kStart = R"("event":"start","policy":"FORCE_CPU"})";
const std::string allowed = R"("decision":"allow","library":"libx.so",)";

const std::string allowed_end = R"("decision":"allow","library":"libx.so"})";

/// Formats the facts as "nvml context 2 refused cuInit by libx.so ".
std::string text_of(const ObservedProcess& process) {
  std::string text;
  if (process.initialised) text += "init by " + process.by + " ";
  if (process.worked) text += "worked ";
  if (process.nvml) text += "nvml ";
  if (process.found_none) text += "none ";
  if (process.failed) text += "failed ";
  for (const int device : process.contexts) text += "context " + std::to_string(device) + " ";
  for (const SharedText& one : process.tried) text += "tried " + *one + " ";
  for (const SharedText& one : process.refused) text += "refused " + *one + " ";
  return text;
}

TEST(Records, DeniedAttemptHasItsCallSite) {
  Records records;
  records.add(record());
  const Findings& findings = records.findings();
  ASSERT_EQ(findings.sites.size(), 1u);
  const CallSite& one = findings.sites[0];
  EXPECT_EQ(one.api, "cuInit");
  EXPECT_EQ(one.asked, DriverApi::kCuda);
  EXPECT_TRUE(one.denied);
  EXPECT_EQ(one.library, "libx.so");
  EXPECT_EQ(one.line, "a.py:3");
  EXPECT_EQ(one.first, 5.5);
  ASSERT_EQ(findings.processes.size(), 1u);
  EXPECT_EQ(findings.processes[0].pid, 7u);
  EXPECT_EQ(findings.processes[0].command.shown(), "python3 a.py");
  EXPECT_EQ(findings.records, 1u);
}

TEST(Records, TableBeforeCuInitIsNoAttemptOfItsOwn) {
  const auto call = [](int64_t pid, double ts, const std::string& api) {
    return record_of({.pid = pid, .ts = ts},
                     R"("api":")" + api + R"(","decision":"deny","library":"libx.so"})");
  };
  Records records;
  records.add(call(7, 1, "cuGetExportTable"));
  records.add(call(8, 1, "cuGetExportTable"));
  records.add(call(7, 2, "cuInit"));
  records.add(call(8, 3, "nvmlInit"));
  records.add(call(9, 3, "cuInit"));
  records.add(call(9, 4, "cuGetExportTable"));
  for (int looks = 0; looks < 2; ++looks) {  // The numbers of the sites stay right.
    const Findings& findings = records.findings();
    std::map<std::string, std::vector<size_t>> processes;
    for (const CallSite& site : findings.sites) processes[site.api] = site.processes;
    EXPECT_EQ(processes["cuGetExportTable"], (std::vector<size_t>{1, 2}));
    EXPECT_EQ(processes["cuInit"], (std::vector<size_t>{0, 2}));
    EXPECT_EQ(processes["nvmlInit"], (std::vector<size_t>{1}));
    EXPECT_EQ(text_of(findings.processes[0]), "refused cuInit by libx.so ");
    records.add(call(9, 5, "cuInit"));
    records.add(call(9, 6, "cuGetExportTable"));
  }
}

TEST(Records, TimeAfterTheYear9999IsUnknown) {
  for (const auto& [ts, first] :
       {std::pair("253402300799", 253402300799.), std::pair("253402300800", 0.)}) {
    Records records;
    records.add(std::string(R"({"v":1,"pid":7,"ts":)") + ts + R"(,"decision":"deny"})");
    EXPECT_EQ(records.findings().processes.at(0).first, first) << ts;
  }
}

/// The guard has decided these. Their values do not follow from the other fields here.
TEST(Records, RecordSaysWhatTheGuardHasDecided) {
  Records records;
  records.add(record_of({},
                        R"("api":"cuInit","asked":"opencl","decision":"deny",)"
                        R"("library":"libx.so","passes_on":true,"caller":"/lib/liby.so+0x1"})"));
  records.add(record_of({}, R"("api":"dlopen","object":"libcuda.so.1","asked":"nvml",)"
                            R"("decision":"refuse","library":"libcudart.so.12"})"));
  const Findings& findings = records.findings();
  ASSERT_EQ(findings.sites.size(), 1u);
  EXPECT_EQ(findings.sites[0].asked, DriverApi::kOpenCl);
  EXPECT_EQ(findings.sites[0].library, "libx.so");
  EXPECT_TRUE(findings.sites[0].passes_on);
  EXPECT_EQ(findings.processes.at(0).not_loaded, std::set<DriverApi>{DriverApi::kNvml});
  records.add(record_of({}, R"("api":"cuInit","decision":"deny","library":"libcudart.so.12"})"));
  EXPECT_FALSE(records.findings().sites.at(1).passes_on);
}

TEST(Records, ExposedLibraryIsNoCall) {
  Records records;
  for (const char* asked : {"cuda", "nvml"}) {
    records.add(record_of({}, R"("api":"dlsym","object":"/x/y.so","asked":")" + std::string(asked) +
                                  R"(","event":"exposed","decision":"allow"})"));
  }
  ASSERT_EQ(records.findings().processes.size(), 1u);
  const ObservedProcess& process = records.findings().processes[0];
  EXPECT_EQ(process.exposed, (std::set<DriverApi>{DriverApi::kCuda, DriverApi::kNvml}));
  EXPECT_FALSE(process.asked());
  EXPECT_TRUE(records.findings().sites.empty());
}

TEST(Records, EachEventSetsTheFactOfItsProcess) {
  const struct {
    std::string rest;
    const char* text;
    size_t sites;
  } cases[] = {
      {kDenied, "refused cuInit by libx.so ", 1},
      {kStart, "", 0},
      {R"("api":"cuInit","event":"start","decision":"deny","library":"libx.so"})",
       "refused cuInit by libx.so ", 1},
      {R"("api":"dlopen","object":"/x/libcuda.so.1","decision":"deny","library":"a"})",
       "refused dlopen libcuda.so.1 by a ", 1},
      {R"("api":"ioctl","object":"/dev/nvidia0 open","decision":"deny"})",
       "refused open bypassing the guard ", 1},
      {R"("api":"cuInit","event":"init","result":100,)" + allowed_end,
       "none tried found no GPU by libx.so ", 1},
      {R"("api":"dlopen","event":"init","result":100,)" + allowed_end,
       "none tried found no driver by libx.so ", 1},
      {R"("api":"cuInit","event":"init","result":3,)" + allowed_end,
       "failed tried forked after init ", 1},
      {R"("api":"cuInit","event":"init","result":1,)" + allowed_end,
       "failed tried error 1 by libx.so ", 1},
      {R"("api":"nvmlInit","event":"nvml","result":100,)" + allowed_end,
       "failed tried NVML error 100 by libx.so ", 1},
      {R"("api":"cuInit","event":"init",)" + allowed_end, "init by libx.so ", 1},
      {R"("api":"nvmlInit","event":"nvml","result":0,)" + allowed_end, "nvml ", 1},
      {R"("api":"c","event":"context","device":0,)" + allowed_end, "context 0 ", 1},
      {R"("api":"c","event":"context","device":4095,)" + allowed_end, "context 4095 ", 1},
      {R"("api":"c","event":"context","device":4096,)" + allowed_end, "", 1},
      {R"("api":"c","event":"context",)" + allowed_end, "", 1},
      {R"("api":"c","event":"context","device":1,"result":1,)" + allowed_end, "", 1},
      {R"("api":"c","event":"work",)" + allowed_end, "worked ", 0},
      {R"("api":"c","event":"work","result":1,)" + allowed_end, "", 0},
      {R"("api":"c","event":"later",)" + allowed_end, "", 0},
  };
  for (const auto& one : cases) {
    Records records;
    records.add(record_of({}, one.rest));
    ASSERT_EQ(records.findings().processes.size(), 1u) << one.rest;
    const ObservedProcess& process = records.findings().processes[0];
    EXPECT_EQ(text_of(process), one.text) << one.rest;
    EXPECT_EQ(process.asked(), one.rest != kStart) << one.rest;
    const bool by_guard = one.rest != kStart && one.rest.find("ioctl") == std::string::npos;
    EXPECT_EQ(process.by_guard, by_guard) << one.rest;
    EXPECT_EQ(records.findings().sites.size(), one.sites) << one.rest;
  }
}

TEST(Records, ListHasEachTextOnceAndIsCut) {
  Records records;
  for (int i = 0; i < 40; ++i) {
    const std::string api(i < 2 ? 300 : 1, static_cast<char>('a' + i / 2));
    records.add(record_of({}, R"("decision":"deny","library":"b","api":")" + api + "\"}"));
  }
  const std::vector<SharedText>& refused = records.findings().processes[0].refused;
  ASSERT_EQ(refused.size(), 16u);
  EXPECT_EQ(*refused[0], std::string(256, 'a'));
  EXPECT_EQ(*refused[15], "p by b");
}

TEST(Records, ObjectThatIsAListOfDevicesIsNoFactOfTheCall) {
  for (const auto& [rest, object] :
       {std::pair(R"("api":"cuInit","object":"GPU-1","event":"init","result":0,)", ""),
        std::pair(R"("api":"dlopen","object":"libcuda.so.1","event":"init","result":100,)",
                  "libcuda.so.1")}) {
    Records records;
    records.add(record_of({}, rest + allowed_end));
    EXPECT_EQ(records.findings().sites.at(0).object, object);
    EXPECT_FALSE(records.findings().sites.at(0).denied);
    const bool is_list = *object == '\0';
    EXPECT_EQ(records.findings().processes.at(0).visible_devices, is_list ? "GPU-1" : "");
  }
}

TEST(Records, CallSiteListsEachProcessOnceWithItsFirstTime) {
  Records records;
  for (const double ts : {9.0, 1.0, 0.0, 5.0}) records.add(record_of({.ts = ts}));
  records.add(record_of({.pid = 8, .ts = 4}));
  // The record's text differs, but the call site is the same.
  records.add(
      record_of({.pid = 9, .ts = 2}, std::string(R"("api":"cuInit","device":1,)") + kDenied));
  records.add(record_of({.ts = 3}, R"("api":"nvmlInit","decision":"deny"})"));
  for (int twice = 0; twice < 2; ++twice) {
    const Findings& findings = records.findings();
    ASSERT_EQ(findings.sites.size(), 2u);
    const CallSite& one = findings.sites[0];
    EXPECT_EQ(one.processes, (std::vector<size_t>{0, 1, 2}));
    EXPECT_EQ(one.at, (std::vector<double>{0, 4, 2}));
    EXPECT_EQ(one.first, 1);
    EXPECT_EQ(one.last, 9);
    EXPECT_EQ(findings.sites[1].processes, std::vector<size_t>{0});
    EXPECT_EQ(findings.processes[0].first, 1);
    EXPECT_EQ(findings.processes[0].last, 9);
  }
}

TEST(Records, NativeStackBelongsToTheNextRecordOfTheSameTime) {
  const std::string native =
      R"({"v":1,"ts":5.5,"pid":7,"event":"native","native":["/lib/libx.so+0x10","/bin/a+0x2"]})";
  const std::vector<NativeFrame> frames = {{"/lib/libx.so", 0x10}, {"/bin/a", 2}};
  const std::vector<NativeFrame> caller = {{"/lib/libx.so", 0x10}};
  Records records;
  const auto& sites = records.findings().sites;
  records.add(native);
  records.add(record());
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].stack.native, frames);
  EXPECT_EQ(records.findings().records, 1u);
  records.add(record());  // it has none
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[1].stack.native, caller);
  records.add(native);
  records.add(record_of({.ts = 6}));  // the stack is another record's
  EXPECT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[1].processes, (std::vector<size_t>{0, 0}));
  // A launcher passes the stack beside the record.
  const Records::Sender sender = {.pid = 7, .ppid = 1, .since = 0, .native = {{}, "no registers"}};
  records.add(record(), {}, &sender);
  ASSERT_EQ(sites.size(), 3u);
  EXPECT_EQ(sites[2].stack.native, caller);
  EXPECT_EQ(sites[2].stack.native_missing, "no registers");
}

TEST(Records, PiecesOfALineAreCountedOneByOne) {
  const std::string foreign = R"({"v":1,"pid":-7})";
  const std::string cut = record().substr(0, 50);
  const struct {
    std::string line;
    size_t records, torn, not_understood;
  } cases[] = {{record(), 1, 0, 0},
               {"x" + record(), 1, 0, 1},
               {"x" + foreign + record() + record(), 2, 0, 2},
               {cut + cut + foreign + foreign + cut + record(), 1, 3, 2},
               {cut, 0, 1, 0},
               {cut + foreign, 0, 1, 1},
               {foreign, 0, 0, 1},
               {"{", 0, 0, 1},
               {"{\"", 0, 1, 0},
               {record() + "x", 0, 0, 1}};
  for (const auto& one : cases) {
    Records records;
    records.add(one.line);
    records.add(one.line);
    EXPECT_EQ(records.findings().records, 2 * one.records) << one.line;
    EXPECT_EQ(records.findings().torn, 2 * one.torn) << one.line;
    EXPECT_EQ(records.findings().not_understood, 2 * one.not_understood) << one.line;
  }
}

TEST(Records, LineLongerThanTheGuardsLimitIsNoRecord) {
  for (const size_t more : {0, 1}) {
    Records records;
    const std::string begin = R"({"v":1,"pid":7,"decision":"deny","pad":")";
    records.add(begin + std::string(kMaxRecord + more - begin.size() - 2, 'x') + "\"}");
    EXPECT_EQ(records.findings().records, 1 - more);
    EXPECT_EQ(records.findings().not_understood, more);
  }
}

TEST(Records, LongestRecordMayComeInTwoParts) {
  std::vector<std::string> lines;
  Lines reader([&](std::string_view line) { lines.emplace_back(line); });
  const std::string longest(kMaxRecord, 'x');
  for (const std::string& part : {longest, std::string("\n"), longest + "x", std::string("\n")}) {
    reader.feed(part);
  }
  EXPECT_EQ(lines, (std::vector<std::string>{longest, ""}));
}

TEST(Records, RecordFollowsTooLongRestOfALine) {
  const std::string hole(kMaxRecord + 1, '\0');
  const std::string good = record();
  for (size_t cut = 0; cut <= good.size(); ++cut) {
    std::vector<std::string> lines;
    Lines reader([&](std::string_view line) { lines.emplace_back(line); });
    for (const std::string& part :
         {hole, hole + good.substr(0, cut), good.substr(cut) + hole + good, std::string("\n")}) {
      reader.feed(part);
    }
    EXPECT_EQ(lines, (std::vector<std::string>{"", good + hole, good})) << cut;
  }
}

TEST(Records, LineThatNoGuardCanHaveWrittenIsNoRecord) {
  for (const auto& [good, fields] : {
           std::pair(true, R"("v":1,"pid":1,"decision":"allow")"),
           std::pair(true, R"("v":1,"pid":2147483647,"decision":"deny")"),
           std::pair(true, R"("v":1,"pid":1,"event":"start")"),
           std::pair(false, R"("v":2,"pid":1,"decision":"deny")"),
           std::pair(false, R"("v":1,"pid":0,"decision":"deny")"),
           std::pair(false, R"("v":1,"pid":2147483648,"decision":"deny")"),
           std::pair(false, R"("v":1,"pid":1,"decision":"maybe")"),
           std::pair(false, R"("v":1,"pid":1,"event":"init")"),
           std::pair(false, R"("v":1,"pid":1,"event":"start","decision":"maybe")"),
       }) {
    Records records;
    records.add(std::string("{") + fields + "}");
    EXPECT_EQ(records.findings().records, good ? 1u : 0u) << fields;
    EXPECT_EQ(records.findings().not_understood, good ? 0u : 1u) << fields;
  }
}

TEST(Records, RecordHasNoFactsOfThePreviousOne) {
  Records records;
  records.add(record_of({.more = R"("ppid":2,"uid":5,"exe":"/x/e","slurm":"12",)"}));
  records.add(R"({"v":1,"pid":8,"ppid":-1,)" + std::string(kDenied));
  const auto& processes = records.findings().processes;
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].ppid, 2u);
  EXPECT_EQ(processes[0].uid, 5u);
  EXPECT_EQ(processes[0].command.shown(), "e");
  EXPECT_EQ(processes[0].job, "slurm:12");
  EXPECT_EQ(processes[1].ppid, 0u);
  EXPECT_EQ(processes[1].uid, kNoUid);
  EXPECT_EQ(processes[1].command.shown(), "?");
  EXPECT_EQ(processes[1].host + processes[1].job, "");
  records.add(record_of({.pid = 9, .more = R"("ppid":0,"uid":0,)"}));
  EXPECT_EQ(processes[2].ppid, 0u);
  EXPECT_EQ(processes[2].uid, 0u);
}

TEST(Records, HostNumberProgramAndJobIdentifyAProcess) {
  Records records;
  for (const Writer& writer :
       {Writer{}, Writer{.pid = 8}, Writer{.host = "i"}, Writer{.more = R"("exe":"/e",)"},
        Writer{.more = R"("exe":"/usr/bin/python3","slurm":"1",)"}, Writer{.ts = 9}}) {
    records.add(record_of(writer));
  }
  EXPECT_EQ(records.findings().processes.size(), 5u);
}

TEST(Records, StartRecordBeginsAnotherProcessUnlessItIsLate) {
  for (const auto& [started, processes] : {std::pair(9, 2u), std::pair(5, 1u), std::pair(3, 1u)}) {
    Records records;
    records.add(record_of({}));
    records.add(record_of({.ts = static_cast<double>(started)}, kStart));
    records.add(record_of({.ts = 10}, allowed + R"("event":"work"})"));
    ASSERT_EQ(records.findings().processes.size(), processes) << started;
    const ObservedProcess& last = records.findings().processes.back();
    EXPECT_EQ(last.started, started);
    EXPECT_EQ(last.policy, "FORCE_CPU");
    EXPECT_TRUE(last.worked);
  }
  Records records;
  records.add(record_of({}, kStart));
  records.add(record_of({}, kStart));  // the process id was used again
  EXPECT_EQ(records.findings().processes.size(), 2u);
}

/// A start record has neither the host nor a job that depends on the cgroup.
TEST(Records, StartRecordBelongsToTheNextProcessWithAHost) {
  const std::string exe = R"("exe":"/usr/bin/python3",)";
  const std::string cgroup = exe + R"("cgroup":"/x.service",)";
  Records records;
  const auto& processes = records.findings().processes;
  records.add(record_of({.host = "", .more = exe}, kStart));
  records.add(record_of({.pid = 8, .host = "", .more = exe}));
  records.add(record_of({.pid = 9, .more = exe}));
  records.add(record_of({.more = cgroup}));
  records.add(record_of({.more = cgroup}));
  ASSERT_EQ(processes.size(), 3u);
  EXPECT_EQ(processes[0].host, "h");
  EXPECT_EQ(processes[0].job, "systemd:x.service");
  EXPECT_TRUE(processes[0].asked());
  // A process without a host and without a start record is another process.
  records.add(record_of({.pid = 8, .more = exe}));
  EXPECT_EQ(processes.size(), 4u);
  // The process id was used again, so each attempt belongs to the latest start.
  records.add(record_of({.ts = 6, .host = "", .more = exe}, kStart));
  for (int twice = 0; twice < 2; ++twice) {
    records.add(record_of({.ts = 7, .more = cgroup}, allowed + R"("event":"work"})"));
  }
  ASSERT_EQ(processes.size(), 5u);
  EXPECT_TRUE(processes[4].worked);
  EXPECT_FALSE(processes[0].worked);
  EXPECT_EQ(processes[0].last, 5);
}

TEST(Records, StacksBeyondTheLimitAreNotKept) {
  Records records;
  for (int i = 0; i < 10001; ++i) {
    records.add(record_of({}, R"("api":"cuInit","decision":"deny","code":"f:)" + std::to_string(i) +
                                  R"(","python":[{"file":"/f","line":1,"function":"f"}]})"));
  }
  const std::vector<CallSite>& sites = records.findings().sites;
  ASSERT_EQ(sites.size(), 10001u);
  EXPECT_EQ(sites[9999].stack.python.size(), 1u);
  EXPECT_TRUE(sites[10000].stack.python.empty());
  EXPECT_EQ(sites[10000].stack.python_missing, "too many that differ");
  EXPECT_EQ(sites[10000].stack.native_missing, "too many that differ");
}

TEST(Records, HostsWithASickDriverAreCounted) {
  const auto health = [](const std::string& decision, const std::string& reason) {
    return R"("event":"health","decision":")" + decision + R"(","reason":)" + reason + "}";
  };
  Records records;
  records.add(record_of({.ts = 7}, health("deny", R"("late")")));
  records.add(record_of({.pid = 8, .ts = 6}, health("deny", R"("early")")));
  records.add(record_of({.host = "well"}, health("allow", "null")));
  const Findings& findings = records.findings();
  EXPECT_EQ(findings.records, 3u);
  EXPECT_TRUE(findings.processes.empty());
  ASSERT_EQ(findings.sick_drivers.size(), 1u);
  EXPECT_EQ(findings.sick_drivers[0].host, "h");
  EXPECT_EQ(findings.sick_drivers[0].programs, 2u);
  EXPECT_EQ(findings.sick_drivers[0].reason, "late");
}

}  // namespace
}  // namespace cudaguard::launcher
