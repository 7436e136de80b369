// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/text/message.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "policy/device_list.h"
#include "policy/driver_api.h"
#include "policy/variables.h"
#include "shim/guard/text/record.h"

namespace cudaguard {
namespace {

std::unique_ptr<Stack> python_stack(unsigned rows) {
  auto stack = std::make_unique<Stack>();
  for (unsigned i = 0; i < rows; ++i) stack->python[i] = {"/opt/lib/a.py", "f", i + 1};
  stack->python_count = rows;
  return stack;
}

class Message : public testing::Test {
 protected:
  /// Writes a message like the guard's, with a sentence that the test gives.
  Text& line(uint32_t pid) {
    in_line_ = true;
    return begin_line(out_, pid);
  }
  std::string take() {
    if (in_line_) out_.put("\n");
    in_line_ = false;
    std::string result(out_.view());
    out_ = Text(buffer_.get(), kMaxRecord);
    return result;
  }

  /// What write_denied() says of the caller.
  std::string asked_by(const Attempt& attempt) {
    write_denied(line(7), {.pid = 7, .attempt = attempt});
    const std::string printed = take();
    const size_t start = printed.find("asked by ");
    return printed.substr(start, printed.find(");") - start);
  }
  std::string record(const Attempt& attempt) {
    write_record(out_, {}, attempt, kMaxRecord);
    return take();
  }

  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kMaxRecord);
  Text out_{buffer_.get(), kMaxRecord};
  bool in_line_ = false;
};

TEST_F(Message, Denied_HidesWhatATerminalObeysInTheCause) {
  // The name of a file in /etc/cudaguard.conf.d.
  write_denied(line(1), {.pid = 1,
                         .because = "/etc/\n\x1b[31m.conf:1",
                         .attempt = {.api = "cuInit", .caller = {"/lib/libfoo.so", 16}}});
  EXPECT_EQ(take(), "cudaguard[1]: no CUDA here (/etc/??[31m.conf:1; asked by libfoo.so)\n");
}

TEST_F(Message, Denied_NamesTheFirstProcessIfItIsAnother) {
  DeniedFacts facts = {.pid = 9,
                       .because = "CUDAGUARD_CHILDREN=FORCE_CPU",
                       .attempt = {.api = "cuInit", .caller = {"/lib/libfoo.so", 16}},
                       .is_child = true,
                       .in_run = true};
  for (const uint32_t first : {0U, 9U, UINT32_MAX, 1U}) {
    facts.first_process = first;
    write_denied(line(9), facts);
    EXPECT_EQ(take().find("only process") != std::string::npos, first == 1) << first;
  }
}

TEST_F(Message, Denied_NamesTheScript) {
  const auto by = [&](std::string_view arguments) {
    return asked_by({.api = "cuInit", .program = arguments, .caller = {"/x/libc10_cuda.so", 16}});
  };
  using namespace std::string_view_literals;
  for (const auto& [arguments, words] :
       {std::pair{"/usr/bin/python3\0/home/me/ppo.py\0--cuda\0"sv, " in python3 ppo.py"},
        std::pair{"python3\0-u\0-m\0pkg.train\0--cuda\0"sv, " in python3 -m pkg.train"},
        std::pair{"perlx\0s3cret\0"sv, ""}, std::pair{"python3"sv, " in python3"},
        std::pair{"python3\0-m"sv, " in python3 -m"},
        std::pair{"php\0-n\0-f\0/x/a.php\0"sv, " in php a.php"},
        std::pair{"python3\0-d\0ppo\0"sv, " in python3"},
        std::pair{"perl5.36\0a\"\nb.pl\0"sv, " in perl5.36 a\"?b.pl"},
        std::pair{"./train\0--cuda\0"sv, ""}, std::pair{""sv, ""}, std::pair{"\0\0"sv, ""}}) {
    EXPECT_EQ(by(arguments), "asked by libc10_cuda.so" + std::string(words)) << arguments;
  }
  const std::string huge = "python3" + std::string(1, '\0') + std::string(5000, 'x');
  EXPECT_LE(by(huge).size(), 109U);
}

TEST_F(Message, Denied_NamesTheKindOfTheFile) {
  const auto line_of = [&](std::string_view file, std::string_view arguments) {
    write_denied(
        line(1),
        {.pid = 1, .attempt = {.api = "cuInit", .program = arguments, .caller = {file, 16}}});
    return take();
  };
  using namespace std::string_view_literals;
  for (const std::string file :
       {"libffi.so.8.1.2", "libffi-a2e8f3d1.so.8.1.2", "_ctypes.cpython-311-x86_64-linux-gnu.so",
        "_cffi_backend.cpython-311-x86_64-linux-gnu.so"}) {
    EXPECT_NE(line_of("/usr/lib/" + file, "python3\0ppo.py\0"sv)
                  .find("(FORCE_CPU; asked by ctypes/cffi (" + file + ") in python3 ppo.py); "),
              std::string::npos);
  }
  EXPECT_NE(line_of("/usr/lib/libffi.so.8", "ruby\0a.rb\0"sv)
                .find("asked by libffi.so.8 in ruby a.rb); "),
            std::string::npos);
  EXPECT_NE(line_of("/usr/lib/libOpenCL.so.1.0.0", "./hashcat\0-b\0"sv)
                .find("asked by libOpenCL.so.1.0.0, the OpenCL loader in hashcat); "),
            std::string::npos);
}

TEST_F(Message, Denied_NamesTheRefusedApi) {
  Attempt attempt{.api = "dlopen",
                  .object = "/x/libnvidia-opencl.so.1",
                  .asked = DriverApi::kOpenCl,
                  .caller = {"/usr/lib/libOpenCL.so.1", 16}};
  write_denied(line(1), {.pid = 1, .attempt = attempt});
  EXPECT_EQ(take(),
            "cudaguard[1]: no OpenCL from NVIDIA here (FORCE_CPU; asked by libOpenCL.so.1); "
            "to allow OpenCL: CUDAGUARD_POLICY=OFF\n");
  for (const auto& [object, words] :
       {std::pair{"libnvidia-cfg.so.1", "no GPU to see ("},
        std::pair{"libonnxruntime_providers_cuda.so", "no CUDA here ("}}) {
    attempt.object = object;
    attempt.asked = driver_api_of(attempt.api, object);
    write_denied(line(1), {.pid = 1, .attempt = attempt});
    EXPECT_NE(take().find(words), std::string::npos) << object;
  }
}

TEST_F(Message, Denied_NamesTheProgramOfGeneratedCode) {
  using namespace std::string_view_literals;
  for (const auto& [program, words] :
       {std::pair{"/usr/bin/mono\0a.exe\0"sv, "asked by generated code in mono);"},
        std::pair{"python3\0ppo.py\0"sv, "asked by generated code in python3 ppo.py);"},
        std::pair{""sv, "asked by code outside any file);"}}) {
    write_denied(line(1), {.pid = 1, .attempt = {.api = "cuInit", .program = program}});
    EXPECT_NE(take().find(words), std::string::npos) << words;
  }
}

TEST_F(Message, Denied_AdvisesAKernelItsOwnRemedy) {
  using namespace std::string_view_literals;
  const auto stack = python_stack(1);
  stack->python[0] = {"/tmp/ipykernel_7/2815143473.py", "<module>", 3};
  Attempt attempt{.api = "cuInit",
                  .program = "python3\0x.py\0"sv,
                  .caller = {"/lib/x.so", 1},
                  .stack = stack.get()};
  DeniedFacts facts = {.pid = 1, .attempt = attempt};
  const auto advice = [&] {
    write_denied(line(1), facts);
    return take();
  };
  EXPECT_EQ(
      advice(),
      "cudaguard[1]: no CUDA here (FORCE_CPU; asked by notebook cell, line 3 through x.so); "
      "to allow CUDA: CUDAGUARD_POLICY=OFF in the env of kernel.json, then restart the kernel\n");
  // The file is the user's own, in a kernel.
  stack->python[0].file = "/home/u/device.py";
  EXPECT_NE(advice().find("; to allow CUDA: CUDAGUARD_POLICY=OFF\n"), std::string::npos);
  attempt.program = "python3\0-m\0ipykernel_launcher\0-f\0k.json\0"sv;
  EXPECT_NE(advice().find("; to allow CUDA: CUDAGUARD_POLICY=OFF in the env of kernel.json, then "),
            std::string::npos);
  facts.in_run = true;
  EXPECT_NE(advice().find(
                "; to allow CUDA: cudaguard run --policy OFF in the argv of kernel.json, then "),
            std::string::npos);
  facts.fenced = true;
  EXPECT_NE(advice().find("; to allow CUDA: run it without --fence"), std::string::npos);
}

TEST_F(Message, ListOfTheMachinesFile_NamesItsLine) {
  const char* place = "/etc/cudaguard.conf:7";
  write_list_in_vain(line(1), {"0", "x", ListBy::kRule, 0, place});
  EXPECT_TRUE(take().starts_with("cudaguard[1]: /etc/cudaguard.conf:7: gpus=\"0\": x; "));
  write_not_enforced(line(1), {": out of memory", ListBy::kRule, place});
  EXPECT_EQ(take(),
            "cudaguard[1]: /etc/cudaguard.conf:7: gpus=: out of memory; FORCE_CPU applies\n");
  write_list_error(line(1),
                   {"0,1", {ListError::Why::kNoSuchIndex, 2, "1"}, 1, ListBy::kRule, place});
  EXPECT_EQ(take(),
            "cudaguard[1]: /etc/cudaguard.conf:7: gpus=\"0,1\": entry 2 \"1\" does not exist (this "
            "machine has 1 GPU); FORCE_CPU applies\n");
}

TEST_F(Message, Denied_ByALineThatVariablesMayLift_SaysSo) {
  const Attempt attempt{.api = "cuInit", .object = {}, .caller = {"/lib/libfoo.so", 16}};
  for (const bool may : {false, true}) {
    write_denied(line(1),
                 {.because = "/etc/cudaguard.conf:7", .attempt = attempt, .may_lift = may});
    EXPECT_EQ(take().ends_with("; to allow CUDA: CUDAGUARD_POLICY=OFF\n"), may);
  }
}

TEST_F(Message, ListError_HasItsOwnWordsForEachReason) {
  for (int why = 1; why <= static_cast<int>(ListError::Why::kNeedsNvml); ++why) {
    write_list_error(line(1), {"x", {static_cast<ListError::Why>(why), 1, "x"}, 0});
    EXPECT_EQ(take().find("\"x\" ;"), std::string::npos) << why;
  }
}

TEST_F(Message, LateWrite_InsideAListNamesTheDevicesThatAreThere) {
  LateWriteFacts facts{.is_set = true, .allow_list = "2,4,5"};
  for (const char* other : {"7", "", "-1", "2x", ",2", "02"}) {
    facts.is = other;
    write_late_write(line(1), facts);
    EXPECT_TRUE(
        take().ends_with(". Inside CUDAGUARD_VISIBLE_DEVICES=2,4,5, devices are numbered from 0\n"))
        << other;
  }
  std::string many = "5";
  for (int i = 0; i < 500; ++i) many += ",2";
  facts.is = many;
  write_late_write(line(1), facts);
  EXPECT_TRUE(take().ends_with(", GPU 2 is device 0\n"));
}

TEST_F(Message, NullDriverThatCannotBeOpenedNow_NeedsNoInstallation) {
  write_missing(line(7), {"/x/libcuda.so.1", Unusable::kPassing, "CUDA is refused"});
  EXPECT_EQ(take(), "cudaguard[7]: /x/libcuda.so.1 cannot be opened now; CUDA is refused\n");
}

TEST_F(Message, EveryReasonHasItsOwnRow) {
  for (size_t i = 0; i < std::size(kUnusableRows); ++i) {
    EXPECT_EQ(static_cast<size_t>(kUnusableRows[i].why), i);
    EXPECT_EQ(*kUnusableRows[i].text == '\0', kUnusableRows[i].why == Unusable::kNo) << i;
  }
}

TEST_F(Message, ReportFailed_NamesTheReason) {
  write_report_failed(line(7), "/x/y", EACCES);
  EXPECT_EQ(take(),
            "cudaguard[7]: report \"/x/y\": Permission denied; name a file or directory that "
            "can be written; nothing is recorded\n");
  const auto shows = [&](int error, const char* remedy) {
    write_report_failed(line(7), "/x/y", error);
    const std::string words = strerror(error);
    EXPECT_NE(take().find("\"/x/y\": " + words + remedy), std::string::npos) << words;
  };
  for (const int error : {ENOSPC, EDQUOT, EROFS, EPERM}) shows(error, "; name a file");
  for (const int error :
       {EMFILE,     ENFILE,       ENOMEM, EFBIG,     EIO,        EINTR,      EPIPE,
        ETXTBSY,    ENODEV,       EBADF,  ENOSYS,    EOPNOTSUPP, EPROTOTYPE, EAFNOSUPPORT,
        ECONNRESET, ECONNREFUSED, ESTALE, ETIMEDOUT, ENOTCONN,   ENOKEY,     EUCLEAN}) {
    shows(error, "; nothing is recorded");
  }
  write_report_failed(line(7), "/x/y", EISDIR);
  EXPECT_NE(take().find("\"/x/y\": Is a directory (accepted: "), std::string::npos);
  write_report_failed(line(7), "/x/y", 999);
  EXPECT_NE(take().find("errno 999"), std::string::npos);
}

TEST_F(Message, ReportName_ReplacesProcessUserAndHost) {
  const ReportName name{.pid = 41, .uid = 1000, .host = "node7"};
  for (const auto& [path, expanded] :
       {std::pair{"/r/%h-%u-%p.jsonl", "/r/node7-1000-41.jsonl"}, std::pair{"%p%p", "4141"},
        std::pair{"/r/%", "/r/%"}, std::pair{"/r/%x%%p", "/r/%x%41"}, std::pair{"", ""},
        std::pair{"/r/plain", "/r/plain"}}) {
    put_report_name(out_, path, name);
    EXPECT_EQ(take(), expanded);
  }
  // A host name must not choose a directory.
  put_report_name(out_, "/r/%h", {.host = "../x"});
  EXPECT_EQ(take(), "/r/.._x");
}

TEST_F(Message, SpoolAndSyslog_UseTheDayInUtc) {
  for (const auto& [seconds, day, start] :
       {std::tuple{uint64_t{0}, "1970-01-01", "Jan  1 00:00:00"},
        std::tuple{uint64_t{951868799}, "2000-02-29", "Feb 29 23:59:59"},
        std::tuple{uint64_t{1795256748}, "2026-11-21", "Nov 21 10:25:48"},
        std::tuple{uint64_t{4107542399}, "2100-02-28", "Feb 28 23:59:59"},
        std::tuple{uint64_t{4107542400}, "2100-03-01", "Mar  1 00:00:00"},
        std::tuple{uint64_t{253402300799}, "9999-12-31", "Dec 31 23:59:59"}}) {
    put_spool_name(out_, 1000, seconds);
    EXPECT_EQ(take(), std::string("1000-") + day + ".jsonl");
    put_syslog_start(out_, 7, seconds);
    EXPECT_EQ(take(), std::string("<14>") + start + " cudaguard[7]: ");
  }
  put_spool_name(out_, UINT32_MAX, UINT64_MAX);
  EXPECT_EQ(take(), "4294967295-9999-12-31.jsonl");  // and not an endless loop
}

TEST_F(Message, Record_IsOneLineOfJson) {
  const ProcessFacts facts{.v = {1},
                           .ts = {1700000000, 42},
                           .pid = {2},
                           .ppid = {1},
                           .tid = {3},
                           .uid = {1000},
                           .host = {"node7"},
                           .exe = {"/usr/bin/app"},
                           .argv = {std::string_view("app\0a b\0", 8)},
                           .cgroup = {"/system.slice/x.service"},
                           .slurm = {"1234"}};
  const Attempt attempt{.api = "dlopen",
                        .object = "libnvidia-opencl.so",
                        .asked = DriverApi::kOpenCl,
                        .rule = "/etc/cudaguard.conf:7",
                        .caller = {"/lib/x.so", 31}};
  write_record(out_, facts, attempt, kMaxRecord);
  EXPECT_EQ(take(),
            R"({"v":1,"ts":1700000000.000042,"pid":2,"ppid":1,"tid":3,"uid":1000,"host":"node7",)"
            R"("exe":"/usr/bin/app","argv":["app","a b"],"cgroup":"/system.slice/x.service",)"
            R"("slurm":"1234","api":"dlopen","object":"libnvidia-opencl.so","asked":"opencl",)"
            R"("decision":"deny","rule":"/etc/cudaguard.conf:7",)"
            R"("caller":"/lib/x.so+0x1f","library":"x.so"})"
            "\n");
}

TEST_F(Message, Record_HasWhatTheAttemptIs) {
  using namespace std::string_view_literals;
  const std::pair<Attempt, const char*> cases[] = {
      {{.api = "cuInit", .event = EventKind::kInit, .result = 0},
       R"("api":"cuInit","asked":"cuda","event":"init","decision":"allow","result":0,"caller":"?",)"
       R"("library":"code outside any file"})"},
      {{.api = "cuCtxCreate_v2", .event = EventKind::kContext, .device = 3},
       R"("event":"context","decision":"allow","device":3,"caller":"?",)"},
      {{.api = "dlopen", .object = "libcuda.so.1", .event = EventKind::kRefused},
       R"("object":"libcuda.so.1","asked":"cuda","decision":"refuse","caller")"},
      {{.api = "cuInit", .last_place = true},
       R"("decision":"deny","last_place":true,"caller":"?")"},
      {{.api = "dlsym",
        .object = "/x/libnvidia-ml.so.1",
        .event = EventKind::kExposed,
        .asked = DriverApi::kNvml},
       R"("api":"dlsym","object":"/x/libnvidia-ml.so.1","asked":"nvml",)"
       R"("event":"exposed","decision":"allow","caller":"?")"},
      {{.api = "nvmlInit_v2", .asked = DriverApi::kNvml, .caller = {"/lib/libcudart.so.12", 1}},
       R"("asked":"nvml","decision":"deny","caller":"/lib/libcudart.so.12+0x1",)"
       R"("library":"libcudart.so.12","passes_on":true})"},
      // The user's line calls ctypes, which does not pass the call on.
      {{.api = "nvmlInit_v2",
        .program = "python3\0"sv,
        .asked = DriverApi::kNvml,
        .caller = {"/lib/libffi.so.8", 1}},
       R"("library":"ctypes/cffi"})"},
      {{.api = "cuInit",
        .event = EventKind::kStart,
        .policy = Policy::kClamp,
        .caller = {"/lib/x.so", 31}},
       R"("argv":[],"cgroup":"","event":"start","policy":"CLAMP"})"}};
  for (const auto& [attempt, part] : cases) {
    const std::string written = record(attempt);
    EXPECT_NE(written.find(part), std::string::npos) << written;
  }
}

TEST(Cgroup, IsTheLongestPath) {
  for (const auto& [lines, path] :
       {std::pair{"0::/system.slice/x.service\n", "/system.slice/x.service"},
        std::pair{"0::/a:b/c\n", "/a:b/c"}, std::pair{"0::/\n", "/"},
        std::pair{"9:name=systemd:/s\n4:cpu,cpuacct:/slurm/uid_7/job_9\n0::/s/d\n",
                  "/slurm/uid_7/job_9"},
        std::pair{"1:cpu:/a\n0::/b", "/a"}, std::pair{"", ""}, std::pair{"0::", ""},
        std::pair{"0", ""}, std::pair{"no colon\none:", ""}, std::pair{"\n\n::\n", ""},
        std::pair{"::/b", "/b"}}) {
    EXPECT_EQ(cgroup_of(lines), path) << lines;
  }
}

TEST_F(Message, Denied_NamesTheUsersLine) {
  using namespace std::string_view_literals;
  const auto stack = python_stack(3);
  stack->python[1] = {"/home/me/ppo.py", "make", 159};
  stack->shown = 1;
  Attempt attempt{.api = "cuInit",
                  .program = "python3\0ppo.py\0"sv,
                  .caller = {"/opt/torch/lib/libc10_cuda.so", 16},
                  .stack = stack.get()};
  const auto by = [&] { return asked_by(attempt); };
  EXPECT_EQ(by(), "asked by ppo.py:159 through libc10_cuda.so");
  attempt.caller.module = "/usr/lib/libffi.so.8";
  EXPECT_EQ(by(), "asked by ppo.py:159 through ctypes/cffi");
  attempt.is_deleted = true;
  EXPECT_EQ(by(), "asked by ppo.py:159 (deleted) through ctypes/cffi");
  attempt.is_deleted = false;
  attempt.started_by = "bash t.sh";
  EXPECT_EQ(by(), "asked by ppo.py:159 through ctypes/cffi, started by bash t.sh");
  attempt.started_by = {};
  attempt.caller = {};
  EXPECT_EQ(by(), "asked by ppo.py:159");
  stack->python[1].file = "<string>";
  EXPECT_EQ(by(), "asked by <string>:159");
  attempt.caller.module = "/usr/lib/libffi.so.8";
  attempt.program = "uwsgi\0--wsgi-file\0app.py\0"sv;
  stack->shown = Stack::kMostPython;  // there are frames, but none of the user's code
  EXPECT_EQ(by(), "asked by ctypes/cffi (libffi.so.8) in uwsgi");
  attempt.program = "ruby\0a.rb\0"sv;
  stack->python_missing = "no CPython";
  EXPECT_EQ(by(), "asked by libffi.so.8 in ruby a.rb");
  attempt.program = "uwsgi\0"sv;
  stack->python_missing = "sub-interpreters";
  EXPECT_EQ(by(), "asked by ctypes/cffi (libffi.so.8) in uwsgi");
  attempt.caller.module = "/opt/libcudart.so.12";
  stack->python_missing = nullptr;
  stack->shown = 1;
  stack->python[1].file = "/tmp/\x1b[31m\"\n.py";
  EXPECT_EQ(by(), "asked by ?[31m\"?.py:159 through libcudart.so.12");
}

TEST_F(Message, Record_NamesTheLibraryAndTheLineAsTheMessageDoes) {
  using namespace std::string_view_literals;
  const auto stack = python_stack(3);
  stack->python[1] = {"/home/me/ppo.py", "make", 159};
  stack->shown = 1;
  Attempt attempt{.api = "cuInit",
                  .program = "python3\0ppo.py\0"sv,
                  .caller = {"/opt/torch/lib/libc10_cuda.so", 16},
                  .stack = stack.get()};
  const auto fields = [&] {
    const std::string written = record(attempt);
    const size_t start = written.find(R"(,"library")");
    return written.substr(start, written.find(R"(,"python)") - start);
  };
  EXPECT_EQ(fields(), R"(,"library":"libc10_cuda.so","code":"ppo.py:159","line_frame":1)");
  attempt.caller.module = {};
  EXPECT_EQ(fields(), R"(,"library":"generated code","code":"ppo.py:159","line_frame":1)");
  stack->python[1].file = "<ipython-input-12-0a1b>";
  EXPECT_EQ(fields(), R"(,"library":"generated code","code":"notebook cell 12, line 159")");
  // Unlike in the message, the name is not cut.
  const std::string file = "/x/\x1b\"" + std::string(200, 'a') + ".py";
  stack->python[1].file = file;
  EXPECT_EQ(fields(), R"(,"library":"generated code","code":"\u001b\")" + std::string(200, 'a') +
                          R"(.py:159","line_frame":1)");
  stack->shown = Stack::kMostPython;  // there are frames, but none of the user's code
  attempt.caller.module = "/usr/lib/libffi.so.8";
  attempt.program = "ruby\0a.rb\0"sv;
  stack->python_missing = "no CPython";
  EXPECT_EQ(fields(), R"(,"library":"libffi.so.8","passes_on":true,"code":"a.rb")");
  attempt.program = "nvidia-smi\0-L\0"sv;
  attempt.started_by = "python3 app.py";
  EXPECT_EQ(fields(), R"(,"library":"libffi.so.8","passes_on":true,"started_by":"python3 app.py")");
  attempt.api = kRequestApi;  // this caller bypassed the guard
  EXPECT_EQ(record(attempt).find("library"), std::string::npos);
}

TEST_F(Message, Record_ReportsThatTheFramesAreCut) {
  const auto stack = python_stack(Stack::kMostPython);
  stack->python_cut = true;
  Attempt attempt{.api = "cuInit", .stack = stack.get()};
  std::string written = record(attempt);
  EXPECT_TRUE(written.ends_with(R"("cut":["python"]})"
                                "\n"))
      << written;
  EXPECT_NE(written.find(R"("line":48,)"), std::string::npos);
  // A short record has fewer frames. Names stay in full.
  stack->shown = Stack::kMostPython;
  const std::string path(4095, '\x01');
  for (const std::string_view file :
       {std::string_view("/opt/a/b/c/d/e/f/g.py"), std::string_view(path)}) {
    for (PythonFrame& frame : stack->python) frame.file = file;
    write_record(out_, {}, attempt, kMaxLine);
    written = take();
    EXPECT_LE(written.size(), kMaxLine);
    EXPECT_TRUE(written.ends_with(R"(],"cut":["python"]})"
                                  "\n"))
        << written;
  }
}

TEST_F(Message, Record_IsWithinItsLimitAndAlwaysClosed) {
  std::string arguments;
  for (int i = 0; i < 5000; ++i) arguments += std::string("\xff\"x\n") + '\0';
  const std::string path(4095, '\x01');
  ProcessFacts facts;
  facts.exe.value = facts.host.value = facts.cgroup.value = facts.slurm.value = path;
  facts.argv.value = arguments;
  const auto stack = python_stack(Stack::kMostPython);
  for (PythonFrame& frame : stack->python) frame = {path, path, ~0U};
  const Attempt attempt{
      .api = "cuInit", .object = path, .caller = {path, ~0ULL}, .stack = stack.get()};
  for (const size_t limit : {kMaxLine, kMaxRecord}) {
    write_record(out_, facts, attempt, limit);
    const std::string record = take();
    EXPECT_LE(record.size(), limit);
    EXPECT_TRUE(record.ends_with("]}\n")) << record.substr(record.size() - 60);
    EXPECT_NE(record.find(R"("cut":["host","exe","argv","cgroup","slurm","object","caller",)"
                          R"("library","code","python"])"),
              std::string::npos);
    EXPECT_EQ(record.find('\n'), record.size() - 1);
  }
}

}  // namespace
}  // namespace cudaguard
