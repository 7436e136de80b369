// SPDX-License-Identifier: Apache-2.0
#include "policy/message.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

namespace cudaguard {
namespace {

class Message : public testing::Test {
 protected:
  std::string take() {
    std::string result(out_.view());
    out_ = Text(buffer_.get(), kMaxRecord);
    return result;
  }

  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kMaxRecord);
  Text out_{buffer_.get(), kMaxRecord};
};

TEST_F(Message, Denied_NamesPolicyCallerAndRemedy) {
  Touch touch{.api = "cuInit", .object = {}, .caller = {"/opt/torch/lib/libc10_cuda.so", 16}};
  write_denied(out_, 4711, {}, touch);
  EXPECT_EQ(take(),
            "cudaguard[4711]: no CUDA here (policy FORCE_CPU; asked by libc10_cuda.so); "
            "CUDAGUARD_POLICY=OFF lifts it\n");
  touch.api = "nvmlInit_v2";
  touch.caller = {};
  write_denied(out_, 1, {}, touch);
  EXPECT_EQ(take(),
            "cudaguard[1]: no GPU to see (policy FORCE_CPU; asked by code outside any file); "
            "CUDAGUARD_POLICY=OFF lifts it\n");
}

TEST_F(Message, Denied_NamesTheCallUnderAllAndAdvisesNothingWhenPrivileged) {
  const Touch touch{.api = "cuInit", .object = {}, .caller = {"/lib/libfoo.so", 16}};
  Config config;
  config.log = Log::kAll;
  config.privileged = true;
  write_denied(out_, 1, config, touch);
  EXPECT_EQ(take(), "cudaguard[1]: no CUDA here (policy FORCE_CPU; cuInit asked by libfoo.so)\n");
}

TEST_F(Message, Complaint_NamesVariableValueAndWhatIsAccepted) {
  write_complaint(out_, 7, {"CUDAGUARD_POLICY", "alow", "FORCE_CPU, OFF", "FORCE_CPU applies"});
  EXPECT_EQ(take(),
            "cudaguard[7]: CUDAGUARD_POLICY=\"alow\" is not accepted (accepted: FORCE_CPU, OFF); "
            "FORCE_CPU applies\n");
  const std::string huge(100000, 'x');
  write_complaint(out_, 7, {"CUDAGUARD_POLICY", huge, "FORCE_CPU, OFF", "FORCE_CPU applies"});
  EXPECT_LE(out_.view().size(), 300U);
  EXPECT_NE(out_.view().find("xxx...\""), std::string_view::npos);
}

TEST_F(Message, MissingStandin) {
  write_missing_standin(out_, 7, "/opt/lib/cudaguard/libcuda.so.1", "is cut short");
  EXPECT_EQ(take(),
            "cudaguard[7]: /opt/lib/cudaguard/libcuda.so.1 is cut short; answering as on a machine "
            "without a driver\n");
}

TEST_F(Message, ReportFailed_SaysWhy) {
  write_report_failed(out_, 7, "/x/y", EACCES);
  EXPECT_EQ(
      take(),
      "cudaguard[7]: CUDAGUARD_REPORT=\"/x/y\": permission denied (accepted: a file that can be "
      "appended to, or /dev/stderr); no report\n");
  write_report_failed(out_, 7, "/x/y", 999);
  EXPECT_NE(take().find("errno 999"), std::string::npos);
}

TEST_F(Message, Record_IsOneLineOfJson) {
  const ProcessFacts facts{.pid = 2,
                           .parent_pid = 1,
                           .thread_id = 3,
                           .seconds = 1700000000,
                           .microseconds = 42,
                           .executable = "/usr/bin/app",
                           .arguments = std::string_view("app\0a b\0", 8)};
  const Touch touch{.api = "dlopen", .object = "libnvidia-opencl.so", .caller = {"/lib/x.so", 31}};
  write_record(out_, facts, touch, "deny", kMaxRecord);
  EXPECT_EQ(
      take(),
      R"({"v":1,"ts":1700000000.000042,"pid":2,"ppid":1,"tid":3,"exe":"/usr/bin/app",)"
      R"("argv":["app","a b"],"api":"dlopen","object":"libnvidia-opencl.so","decision":"deny",)"
      R"("caller":"/lib/x.so+0x1f"})"
      "\n");
}

TEST_F(Message, Record_WithoutFactsIsStillJson) {
  write_record(out_, {}, {}, "deny", kMaxRecord);
  EXPECT_EQ(take(), R"({"v":1,"ts":0.000000,"pid":0,"ppid":0,"tid":0,"exe":"","argv":[],"api":"",)"
                    R"("decision":"deny","caller":"?"})"
                    "\n");
}

TEST_F(Message, Record_NeverLongerThanItsLimitAndAlwaysClosed) {
  std::string arguments;
  for (int i = 0; i < 5000; ++i) arguments += std::string("\xff\"x\n") + '\0';
  const std::string path(4095, '\x01');
  ProcessFacts facts;
  facts.executable = path;
  facts.arguments = arguments;
  const Touch touch{.api = "cuInit", .object = path, .caller = {path, ~0ULL}};
  for (const size_t limit : {kMaxLine, kMaxRecord}) {
    write_record(out_, facts, touch, "deny", limit);
    const std::string record = take();
    EXPECT_LE(record.size(), limit);
    EXPECT_TRUE(record.ends_with("]}\n")) << record.substr(record.size() - 60);
    EXPECT_NE(record.find("\"cut\":["), std::string::npos);
    EXPECT_NE(record.find("\"argv\""), std::string::npos);
    EXPECT_EQ(record.find('\n'), record.size() - 1);
  }
}

}  // namespace
}  // namespace cudaguard
