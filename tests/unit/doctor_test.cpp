// SPDX-License-Identifier: Apache-2.0
// Tests doctor's findings: the verdict, the text, and its reading of a driver's answer and of the
// environment. tests/launcher/test_doctor_*.py has the tests that need real files and processes, of
// drivers that hang and crash, and of the JSON.
#include "shim/launcher/doctor/doctor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cudaguard::launcher {
namespace {

constexpr Question kAboutProgram = Question::kProgram;

Finding reason(State state, const std::string& text) {
  return {"static", kAboutProgram, state, text, ""};
}

TEST(DoctorVerdict, IsTheWeightiestReason) {
  FindingList findings = {{"program", kAboutProgram, State::kFact, "./a", ""}};
  EXPECT_EQ(guarded_line(findings), "guarded: yes");
  EXPECT_EQ(exit_code(findings), 0);
  findings.push_back(reason(State::kInPart, "one"));
  findings.push_back(reason(State::kInPart, "two"));
  EXPECT_EQ(guarded_line(findings), "guarded: in part, because one");
  EXPECT_EQ(exit_code(findings), 1);
  findings.push_back(reason(State::kNo, "three"));
  EXPECT_EQ(guarded_line(findings), "guarded: no, because three");
  EXPECT_STREQ(verdict(findings), "no");
  EXPECT_EQ(exit_code(findings), 2);
}

TEST(DoctorText, BeginsWithTheAnswer) {
  const Document document = {
      "guarded: no, because three",
      true,
      {{"program", kAboutProgram, State::kFact, "./a", ""},
       {"program", kAboutProgram, State::kFact, "a script", ""},
       {"executable", kAboutProgram, State::kFact, "one", ""},
       {"executable", kAboutProgram, State::kFact, "two", ""},
       reason(State::kInPart, "else"),
       reason(State::kNo, "three"),
       reason(State::kNo, std::string(60, 'x') + " " + std::string(60, 'y')),
       {"guard", Question::kInstalled, State::kFact, "/lib/guard", ""},
       {"driver", Question::kDriver, State::kProblem, "it \"hangs\"", "leave it"}}};
  EXPECT_EQ(as_text(document),
            "guarded: no, because three\n"
            "\n"
            "program            ./a\n"
            "                   a script\n"
            "executable         one\n"
            "executable         two\n"
            "also               else\n"
            "                   " +
                std::string(60, 'x') + "\n                   " + std::string(60, 'y') +
                "\n\n"
                "guard              /lib/guard\n"
                "\n"
                "\n"
                "problems:\n"
                "  - it \"hangs\"; leave it\n");
}

/// Returns doctor's finding for the end of the process that asked the driver.
struct Judged {
  std::string answer;
  std::vector<std::string> problems;
};

Judged judge_end(const ChildEnd& end) {
  FindingList findings;
  Judged judged;
  judged.answer = judge_answer(read_answer(end, "/probe"), std::chrono::seconds{2}, findings);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.question, Question::kDriver);
    const std::string remedy = finding.remedy.empty() ? "" : "; " + finding.remedy;
    if (finding.state == State::kProblem) judged.problems.push_back(finding.text + remedy);
  }
  return judged;
}

ChildEnd ended(const std::string& out, const std::string& err = "") {
  ChildEnd end;
  end.in_time = true;
  end.out = out;
  end.err = err;
  return end;
}

ChildEnd answered(int code) {
  return ended("\ncudaguard-probe asks 0 0\n\ncudaguard-probe init " + std::to_string(code) +
               " 7654\n" + (code == 0 ? "\ncudaguard-probe done 0 0\n" : ""));
}

using Problems = std::vector<std::string>;

TEST(DoctorAnswer, EachErrorHasItsAdvice) {
  const std::pair<int, const char*> rows[] = {
      {3, "3 CUDA_ERROR_NOT_INITIALIZED"},
      {34,
       "34 CUDA_ERROR_STUB_LIBRARY: libcuda.so.1 is a stub to link against; the driver's must be "
       "found first"},
      {304,
       "304 CUDA_ERROR_OPERATING_SYSTEM: a system call of the driver's failed; dmesg may say more "
       "(NVRM)"},
      {802,
       "802 CUDA_ERROR_SYSTEM_NOT_READY: the fabric manager is not ready; systemctl status "
       "nvidia-fabricmanager"},
      {803,
       "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: libcuda and the kernel module do not fit; reboot, "
       "or "
       "load the module again"},
      {804,
       "804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: this GPU cannot use a libcuda that is newer "
       "than the kernel module (cuda-compat)"},
      {999,
       "999 CUDA_ERROR_UNKNOWN: dmesg may say more (NVRM, Xid); after a suspend: rmmod nvidia_uvm; "
       "modprobe nvidia_uvm"},
      {12345, "12345"},
      {-7, "-7"}};
  for (const auto& [code, sentence] : rows) {
    const Judged judged = judge_end(answered(code));
    EXPECT_EQ(judged.problems, Problems({"cuInit fails with " + std::string(sentence)}));
    EXPECT_EQ(judged.answer, "driver: fails with " + std::to_string(code));
  }
}

TEST(DoctorAnswer, MissingAnswerQuotesLdSo) {
  EXPECT_EQ(judge_end(ended("", "/probe: \"libx.so\": \x1b no\nmore")).problems,
            Problems({"libcuda.so.1 does not work: 'libx.so': ? no"}));
}

TEST(DoctorAnswer, DriversOwnOutputIsNotTheProbes) {
  const Judged judged =
      judge_end(ended("WARNING: cudaguard-probe init 5 0\ncudaguard-probe" + answered(999).out));
  EXPECT_EQ(judged.answer, "driver: fails with 999");
}

std::vector<std::string> problems_of(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  FindingList findings;
  judge_variables(Variables(environment.data()), findings);
  std::vector<std::string> problems;
  for (const Finding& finding : findings) problems.push_back(finding.text);
  return problems;
}

TEST(DoctorVariables, CorrectVariablesHaveNoProblem) {
  const std::vector<const char*> rows[] = {
      {},
      {"CUDAGUARD_POLICY=clamp"},
      {"CUDAGUARD_VISIBLE_DEVICES=2,5"},
      {"CUDAGUARD_VISIBLE_DEVICES="},
      {"CUDAGUARD_POLICY=VALIDATE", "CUDAGUARD_CHILDREN=FORCE_CPU", "CUDAGUARD_ROOT=1"},
      {"CUDAGUARD_LOG=all"},
      {"CUDAGUARD_REPORT=/tmp/none.%p"},
      {"CUDAGUARD_DOCTOR_TIMEOUT=3", "CUDAGUARD_HELLO=1"},
      {"CUDA_VISIBLE_DEVICES=all"}};
  for (const std::vector<const char*>& row : rows) EXPECT_EQ(problems_of(row), Problems());
}

TEST(DoctorVariables, EachMistakeIsOneSentence) {
  const std::pair<std::vector<const char*>, const char*> rows[] = {
      {{"CUDAGUARD_POLICY=gpu"}, "CUDAGUARD_POLICY=\"gpu\" is not accepted (accepted: FORCE_CPU,"},
      {{"CUDAGUARD_RULES=OFF user="}, "CUDAGUARD_RULES: user= needs a value; FORCE_CPU applies"},
      {{"CUDAGUARD_LOG=x"}, "CUDAGUARD_LOG=\"x\" is not accepted"},
      {{"CUDAGUARD_CHILDREN=ONLY", "CUDAGUARD_POLICY=CLAMP", "CUDAGUARD_ROOT=1:x"},
       "CUDAGUARD_ROOT=\"1:x\" is not accepted"},
      {{"CUDAGUARD_CHILDREN=x", "CUDAGUARD_POLICY=CLAMP", "CUDAGUARD_ROOT=1"},
       "CUDAGUARD_CHILDREN=\"x\" is not accepted"},
      {{"CUDAGUARD_CHILDREN=FORCE_CPU", "CUDAGUARD_POLICY=CLAMP"},
       "CUDAGUARD_CHILDREN needs CUDAGUARD_ROOT: sh -c 'CUDAGUARD_ROOT=$$ exec APP'; FORCE_CPU "
       "applies"},
      {{"CUDAGUARD_VISIBLE_DEVICES=1,,2"}, "CUDAGUARD_VISIBLE_DEVICES=\"1,,2\": entry 2"},
      {{"CUDAGUARD_VISIBLE_DEVICES=all"},
       "CUDAGUARD_VISIBLE_DEVICES=\"all\": entry 1 \"all\" is not accepted"},
      {{"CUDAGUARD_POLICY=FORCE_CPU", "CUDAGUARD_VISIBLE_DEVICES=1"},
       "CUDAGUARD_VISIBLE_DEVICES=\"1\" has no effect under FORCE_CPU"},
      {{"CUDAGUARD_POLICY=OFF", "CUDAGUARD_VISIBLE_DEVICES=1"},
       "CUDAGUARD_VISIBLE_DEVICES=\"1\" has no effect under CUDAGUARD_POLICY=OFF"},
      {{"CUDAGUARD_POLICY=OFF", "CUDAGUARD_CHILDREN=FORCE_CPU"},
       "CUDAGUARD_CHILDREN=\"FORCE_CPU\" has no effect under CUDAGUARD_POLICY=OFF"},
      {{"CUDAGUARD_POLICIY=OFF"},
       "CUDAGUARD_POLICIY is not a variable of cudaguard; did you mean CUDAGUARD_POLICY?"},
      {{"CUDAGUARD_REPORT=/no/such/r"}, "CUDAGUARD_REPORT=\"/no/such/r\": No such"}};
  for (const auto& [environment, sentence] : rows) {
    const std::vector<std::string> problems = problems_of(environment);
    ASSERT_EQ(problems.size(), 1U) << sentence;
    EXPECT_TRUE(problems[0].starts_with(sentence)) << problems[0];
  }
}

}  // namespace
}  // namespace cudaguard::launcher
