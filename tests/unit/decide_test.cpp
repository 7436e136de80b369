// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/decide.h"

#include <gtest/gtest.h>

#include "policy/user_code.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"
#include "tests/unit/command_of.h"

namespace cudaguard::launcher {
namespace {

TEST(Deny, DefaultsToInit) {
  EXPECT_EQ(denied_words({}), std::set<DriverApi>{DriverApi::kCuda});
  EXPECT_EQ(denied_words({"nvml"}), std::set<DriverApi>{DriverApi::kNvml});
  EXPECT_EQ(denied_words({"init,nvml", "opencl"}),
            (std::set<DriverApi>{DriverApi::kCuda, DriverApi::kNvml, DriverApi::kOpenCl}));
}

TEST(Deny, RefusalNamesTheWord) {
  for (const std::string word : {"cuda", "CUDA", "cudnn", "Init", ""}) {
    try {
      denied_words({"nvml," + word});
      ADD_FAILURE() << word;
    } catch (const Refusal& refusal) {
      EXPECT_EQ(refusal.what(),
                "--deny \"" + word + "\" is not accepted (accepted: init, nvml, opencl, context)" +
                    (word == "cuda" || word == "CUDA" ? "; did you mean init?" : ""));
    }
  }
}

ObservedProcess process(uint32_t pid, const std::string& command) {
  ObservedProcess one;
  one.pid = pid;
  one.command = command_of(command);
  return one;
}

CallSite site(DriverApi asked, std::vector<size_t> processes) {
  CallSite one;
  one.asked = asked;
  one.processes = std::move(processes);
  one.at.resize(one.processes.size());
  return one;
}

class Decision : public testing::Test {
 protected:
  Decision() {
    verdict_.deny = {DriverApi::kCuda};
    verdict_.findings.processes = {process(1, "sh run.sh"), process(2, "python3 train.py"),
                                   process(3, "python3 eval.py")};
  }
  CallSite& add(DriverApi asked, std::vector<size_t> processes) {
    return verdict_.findings.sites.emplace_back(site(asked, std::move(processes)));
  }
  int exit_code() {
    decide(verdict_);
    return verdict_.exit_code;
  }
  bool passes() {
    decide(verdict_);
    return verdict_.passed();
  }
  Verdict verdict_;
};

TEST_F(Decision, EachProcessWithAnAttemptIsForbidden) {
  const CallSite& one = add(DriverApi::kCuda, {1, 2});
  decide(verdict_);
  decide(verdict_);  // a new decision replaces the previous one
  EXPECT_FALSE(verdict_.passed());
  EXPECT_EQ(verdict_.exit_code, 1);
  EXPECT_EQ(one.forbidden, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(verdict_.asked, 2u);
  EXPECT_EQ(verdict_.allowed, 0u);
}

TEST_F(Decision, ProcessWithAllowedAndForbiddenAttemptsFails) {
  verdict_.allow = {"train.py"};
  add(DriverApi::kCuda, {1});
  EXPECT_TRUE(passes());
  EXPECT_EQ(verdict_.allowed, 1u);
  // The process called execve.
  verdict_.findings.processes.push_back(process(2, "python3 other.py"));
  add(DriverApi::kCuda, {3});
  decide(verdict_);
  EXPECT_EQ(verdict_.asked, 1u);
  EXPECT_EQ(verdict_.allowed, 0u);
}

TEST_F(Decision, UnguardedProcessWithTheDriverOpenFails) {
  verdict_.tree.unguarded.push_back({.pid = 9, .command = {"static"}, .has_driver = true});
  EXPECT_EQ(exit_code(), 1);
  EXPECT_TRUE(verdict_.tree.unguarded[0].fails);
  EXPECT_EQ(verdict_.processes, 4u);
  verdict_.allow = {"static"};
  EXPECT_TRUE(passes());
}

TEST_F(Decision, UnguardedProcessWithTheDriverIsInDoubtIfQueriesMayPass) {
  verdict_.deny = {DriverApi::kContext};
  verdict_.ioctls_tell = true;
  verdict_.tree.unguarded.push_back(
      {.pid = 9, .command = {"static"}, .reason = "static", .has_driver = true});
  EXPECT_EQ(exit_code(), 3);
  EXPECT_FALSE(verdict_.tree.unguarded[0].fails);
  EXPECT_EQ(verdict_.tree.doubts,
            (std::vector<std::string>{
                "static is not guarded, and it has the driver open, so it may have made a context "
                "unseen; link it dynamically with glibc, or accept it: --allow program:static"}));
  verdict_.tree.doubts.clear();
  verdict_.allow = {"static"};
  EXPECT_TRUE(passes());
}

TEST_F(Decision, RefusedLoadDoesNotExplainAnOpenDriver) {
  verdict_.deny = {DriverApi::kContext};
  verdict_.findings.processes[1].not_loaded = {DriverApi::kNvml};
  verdict_.tree.unguarded.push_back(
      {.pid = verdict_.findings.processes[1].pid, .command = {"static"}, .has_driver = true});
  EXPECT_EQ(exit_code(), 3);
}

TEST_F(Decision, NvmlAloneIsNotTheDriverOpen) {
  verdict_.deny = {DriverApi::kContext};
  verdict_.tree.unguarded.push_back({.pid = 9,
                                     .command = {"nvidia-smi"},
                                     .has_driver = true,
                                     .only_nvml = true,
                                     .names_nvidia = true});
  decide(verdict_);
  ASSERT_EQ(verdict_.tree.doubts.size(), 1U);
  EXPECT_EQ(verdict_.tree.doubts[0].find("driver open"), std::string::npos);
  EXPECT_NE(verdict_.tree.doubts[0].find("its file names"), std::string::npos);
}

TEST_F(Decision, UnguardedProcessWithoutTheDriverDoesNotFail) {
  verdict_.tree.unguarded.push_back({.pid = 9, .command = {"static"}});
  EXPECT_TRUE(passes());
  EXPECT_EQ(verdict_.tree.value, TreeTruth::Value::kUnguarded);
}

TEST_F(Decision, TreeIsAllGuardedUnlessAProgramIsUnguardedOrUnknown) {
  using Value = TreeTruth::Value;
  TreeTruth& tree = verdict_.tree;
  tree.guarded = 2;
  decide(verdict_);
  EXPECT_EQ(tree.value, Value::kAllGuarded);
  tree.unknown.push_back({.pid = 8, .command = {"su"}, .reason = "its memory cannot be read"});
  decide(verdict_);
  EXPECT_EQ(tree.value, Value::kUnknown);
  tree.unguarded.push_back({.pid = 9, .command = {"static"}});
  decide(verdict_);
  EXPECT_EQ(tree.value, Value::kUnguarded);
  EXPECT_EQ(tree.started(), 4u);
  tree.value = Value::kNotWatched;
  decide(verdict_);
  EXPECT_EQ(tree.value, Value::kNotWatched);
}

/// The programs of the tree that make a result INCOMPLETE. Each decision is of a new verdict.
class Doubts : public testing::Test {
 protected:
  Doubts() { verdict_.deny = {DriverApi::kCuda}; }
  Verdict decided() const {
    Verdict verdict = verdict_;
    decide(verdict);
    return verdict;
  }
  TreeTruth::Unguarded& add(std::vector<TreeTruth::Unguarded>& programs, const char* program,
                            const char* reason) {
    TreeTruth::Unguarded& one = programs.emplace_back();
    one.pid = 9;
    one.command = command_of(program + std::string(" --all"));
    one.program = program;
    one.reason = reason;
    return one;
  }
  Verdict verdict_;
};

TEST_F(Doubts, UnguardedProgramThatNamesNvidiaIsOneWhereNoIoctlWouldTell) {
  TreeTruth::Unguarded& program = add(verdict_.tree.unguarded, "./stat", "static");
  EXPECT_TRUE(decided().passed());
  program.names_nvidia = true;
  const Verdict verdict = decided();
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_TRUE(verdict.tree.unguarded[0].in_doubt);
  EXPECT_FALSE(verdict.tree.unguarded[0].fails);
  EXPECT_EQ(verdict.tree.doubts,
            std::vector<std::string>{
                "./stat is not guarded, and its file names NVIDIA's driver, so it may have asked "
                "unseen; link it dynamically with glibc, run verify on a machine with a GPU, or "
                "accept it: --allow program:stat"});
  verdict_.ioctls_tell = true;
  EXPECT_TRUE(decided().passed());
  verdict_.deny = {DriverApi::kContext};
  EXPECT_EQ(decided().exit_code, 3);
}

TEST_F(Doubts, AnyUnguardedProgramIsOneIfStrict) {
  add(verdict_.tree.unguarded, "/bin/ex y", "its environment has no LD_PRELOAD");
  verdict_.strict = true;
  verdict_.ioctls_tell = true;
  const Verdict verdict = decided();
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.tree.doubts,
            std::vector<std::string>{"/bin/ex y is not guarded (--strict); keep cudaguard's "
                                     "variables in its environment, or accept it: --allow "
                                     "'program:ex y'"});
  verdict_.allow_incomplete = true;  // is for attempts that may be missing, not for --strict
  EXPECT_EQ(decided().exit_code, 3);
  verdict_.tree.unguarded.clear();
  verdict_.tree.guarded = 1;
  EXPECT_TRUE(decided().passed());
  verdict_.tree.value = TreeTruth::Value::kNotWatched;
  EXPECT_EQ(decided().exit_code, 3);
}

TEST_F(Doubts, ProgramOfUnknownKindIsOne) {
  add(verdict_.tree.unknown, "su", "its memory cannot be read: another user's");
  const Verdict verdict = decided();
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.tree.doubts,
            std::vector<std::string>{"su may not be guarded; to accept it: --allow program:su"});
  verdict_.tree.unknown.front().program = "./a[1]";
  EXPECT_EQ(decided().tree.doubts,
            std::vector<std::string>{
                "./a[1] may not be guarded; to accept it: --allow 'program:a\\[1]'"});
  verdict_.allow_incomplete = true;
  EXPECT_TRUE(decided().passed());
  verdict_.strict = true;
  EXPECT_EQ(decided().exit_code, 3);
}

TEST_F(Doubts, AllowedProgramIsNone) {
  add(verdict_.tree.unguarded, "./bin/stat", "static").names_nvidia = true;
  add(verdict_.tree.unknown, "./bin/stat", "its memory cannot be read: another user's");
  verdict_.strict = true;
  // The first two name the program, the others the process.
  for (const char* pattern : {"program:stat", "program:./b*", "stat", "./bin/stat --all"}) {
    verdict_.allow = {pattern};
    EXPECT_TRUE(decided().passed()) << pattern;
  }
  for (const char* pattern : {"program:other", "program:--all", "lib:stat"}) {
    verdict_.allow = {pattern};
    EXPECT_EQ(decided().exit_code, 3) << pattern;
  }
}

TEST_F(Doubts, AllowedProgramThatHasTheDriverFailsNonetheless) {
  add(verdict_.tree.unguarded, "./stat", "static").has_driver = true;
  verdict_.allow = {"program:stat"};
  EXPECT_EQ(decided().exit_code, 1);
}

TEST_F(Doubts, OneForEachKindOfProgramButAtMostSix) {
  verdict_.strict = true;
  for (int i = 0; i < 200; ++i) add(verdict_.tree.unguarded, "./stat", "static");
  EXPECT_EQ(decided().tree.doubts.size(), 1u);
  for (const char* program : {"./b", "./c", "./d", "./e"}) {
    add(verdict_.tree.unguarded, program, "static");
  }
  EXPECT_EQ(decided().tree.doubts.size(), 5u);  // "more programs in doubt: 0" is left out
  add(verdict_.tree.unguarded, "./f", "static");
  add(verdict_.tree.unknown, "./g", "another user's");
  const std::vector<std::string> doubts = decided().tree.doubts;
  EXPECT_EQ(doubts.size(), 6u);
  EXPECT_TRUE(doubts[0].starts_with("./stat is not guarded (--strict)"));
  EXPECT_EQ(doubts.back(), "more programs in doubt: 2");
}

TEST(Groups, ProgramsThatAreAlikeAreOneGroup) {
  TreeTruth tree;
  const auto add = [](auto& programs, const char* program, const char* reason) -> auto& {
    programs.push_back(
        {.pid = 1, .command = command_of("word --all"), .reason = reason, .program = program});
    return programs.back();
  };
  add(tree.unguarded, "./b", "static");
  for (uint32_t i = 0; i < 200; ++i) add(tree.unguarded, "./stat", "static").pid = 100 + i;
  add(tree.unguarded, "./b", "setuid");
  add(tree.unguarded, "", "static").in_doubt = true;
  add(tree.unguarded, "./b", "static").fails = true;
  add(tree.unknown, "./stat", "another user's");
  std::vector<std::string> found;
  for (const ProgramGroup& group : groups_of(tree)) {
    found.push_back(std::to_string(group.starts) + " " + name_of(*group.first) + " " +
                    group.first->reason + (group.known ? "" : " unknown"));
  }
  EXPECT_EQ(found, (std::vector<std::string>{"1 ./b static", "1 word static", "200 ./stat static",
                                             "1 ./b static", "1 ./b setuid",
                                             "1 ./stat another user's unknown"}));
}

TEST_F(Decision, UnguardedProcessWithNvmlFailsIfNvmlIsDenied) {
  verdict_.tree.unguarded.push_back(
      {.pid = 9, .command = {"static"}, .has_driver = true, .only_nvml = true});
  EXPECT_TRUE(passes());
  verdict_.deny = {DriverApi::kCuda, DriverApi::kNvml};
  EXPECT_EQ(exit_code(), 1);
}

TEST_F(Decision, AttemptOutweighsAFailureAndThatADoubt) {
  const struct {
    bool attempt;
    bool failed;
    const char* doubt;
    int exit_code;
    Verdict::Result result;
  } cases[] = {
      {true, true, "there is no /proc", 1, Verdict::Result::kFail},
      {true, false, "", 1, Verdict::Result::kFail},
      {false, true, "there is no /proc", 2, Verdict::Result::kFail},
      {false, true, "", 2, Verdict::Result::kFail},
      {false, false, "there is no /proc", 3, Verdict::Result::kIncomplete},
      {false, false, "", 0, Verdict::Result::kPass},
  };
  for (const auto& one : cases) {
    Verdict verdict = verdict_;
    if (one.attempt) verdict.findings.sites.push_back(site(DriverApi::kCuda, {0}));
    if (one.failed) verdict.status = 3 << 8;
    if (*one.doubt != '\0') verdict.tree.doubts = {one.doubt};
    decide(verdict);
    EXPECT_EQ(verdict.exit_code, one.exit_code);
    EXPECT_EQ(verdict.result, one.result);
    verdict.allow_incomplete = true;
    decide(verdict);
    EXPECT_EQ(verdict.exit_code, one.exit_code == 3 ? 0 : one.exit_code);
  }
  verdict_.tree.left = "sleep (12)";
  EXPECT_EQ(exit_code(), 3);
}

TEST_F(Decision, ReusedProcessIdIsAnotherProcess) {
  ObservedProcess again = process(2, "python3 train.py");
  verdict_.findings.processes[1].since = 7;
  again.since = 8;
  verdict_.findings.processes.push_back(again);
  add(DriverApi::kCuda, {1, 3});
  decide(verdict_);
  EXPECT_EQ(verdict_.processes, 4u);
  EXPECT_EQ(verdict_.asked, 2u);
}

TEST_F(Decision, CountsTheGuardedProcessesThatReported) {
  verdict_.findings.processes[0].since = 7;
  verdict_.findings.processes[0].policy = "FORCE_CPU";  // from its start record
  verdict_.tree.seen.push_back(
      {.pid = 1, .command = {"sh"}, .guarded = true, .heard = true, .since = 7});
  verdict_.tree.seen.push_back(
      {.pid = 8, .command = {"fork"}, .guarded = true, .heard = true, .since = 9});
  verdict_.tree.seen.push_back({.pid = 9, .command = {"static"}, .since = 9});
  verdict_.tree.seen.push_back({.pid = 10, .command = {"static"}, .since = 9});
  decide(verdict_);
  EXPECT_EQ(verdict_.processes, 6u);
  EXPECT_EQ(verdict_.heard, 2u);
}

TEST_F(Decision, ForkedChildThatAskedWasHeard) {
  verdict_.findings.processes[1].by_guard = true;
  add(DriverApi::kCuda, {1});
  decide(verdict_);
  EXPECT_EQ(verdict_.heard, 1u);
}

TEST_F(Decision, WhatAGuardCouldNotDoIsADoubtIfItIsDenied) {
  using Apis = std::set<DriverApi>;
  const std::string refused = "was refused NVIDIA's ";
  const std::string unusable = " library, because a file of cudaguard cannot be used";
  const auto not_loaded = [](const Apis& which) {
    return [which](ObservedProcess& process) { process.not_loaded = which; };
  };
  const auto exposed = [](const Apis& which) {
    return [which](ObservedProcess& process) { process.exposed = which; };
  };
  const auto in_vain = [](ObservedProcess& process) {
    process.in_vain = true;
    process.tried = {std::make_shared<const std::string>("found no GPU by libx.so")};
  };
  const struct {
    std::function<void(ObservedProcess&)> change;
    Apis deny;
    std::string doubt;
  } cases[] = {
      {not_loaded({DriverApi::kNvml}), {DriverApi::kCuda}, ""},
      {not_loaded({DriverApi::kNvml}), {DriverApi::kNvml}, refused + "NVML" + unusable},
      {[](ObservedProcess& process) {
         process.not_loaded = {DriverApi::kCuda};
         process.in_vain = true;
       },
       {DriverApi::kContext},
       refused + "CUDA" + unusable},
      {exposed({DriverApi::kNvml}), {DriverApi::kCuda}, ""},
      {exposed({DriverApi::kCuda, DriverApi::kNvml}),
       {DriverApi::kCuda},
       "could call NVIDIA's CUDA library by dlsym, because the guard could not change the "
       "library's "
       "symbols"},
      {in_vain, {DriverApi::kCuda}, ""},
      {in_vain,
       {DriverApi::kContext},
       "got no CUDA (found no GPU by libx.so), so it could make no context"},
  };
  for (const auto& one : cases) {
    for (const bool allowed : {false, true}) {
      Verdict verdict = verdict_;
      one.change(verdict.findings.processes[1]);
      verdict.deny = one.deny;
      if (allowed) verdict.allow = {"train.py"};
      decide(verdict);
      const bool doubts = !allowed && !one.doubt.empty();
      EXPECT_EQ(verdict.exit_code, doubts ? 3 : 0) << one.doubt;
      EXPECT_EQ(verdict.tree.doubts,
                doubts ? std::vector{"python3 (2) " + one.doubt} : std::vector<std::string>{});
    }
  }
  // It may have asked from a place that is not allowed.
  verdict_.findings.processes[1].last_place = true;
  verdict_.allow = {"train.py"};
  EXPECT_EQ(exit_code(), 3);
  EXPECT_EQ(verdict_.tree.doubts,
            (std::vector<std::string>{"python3 (2) asked from more places than a guard records"}));
}

TEST_F(Decision, RefusedLoadIsNamedByTheProcessElseByTheLauncher) {
  for (const auto& [own, seen, named] :
       {std::tuple{"?", "jailed x", "jailed (2) was refused"},
        std::tuple{"asks x", "sh -c asks", "asks (2) was refused"}}) {
    Verdict verdict = verdict_;
    verdict.findings.processes[1].command = command_of(own);
    verdict.findings.processes[1].not_loaded = {DriverApi::kCuda};
    verdict.tree.seen.push_back({.pid = 2, .command = command_of(seen)});
    decide(verdict);
    ASSERT_EQ(verdict.tree.doubts.size(), 1u);
    EXPECT_TRUE(verdict.tree.doubts[0].starts_with(named));
  }
}

CallSite& named(CallSite& site, const std::string& line, const std::string& library) {
  site.line = line;
  site.library = library;
  site.passes_on = passes_calls_on(library);
  return site;
}

TEST_F(Decision, LineIsOnePlaceWithAllItsCalls) {
  named(add(DriverApi::kCuda, {1}), "ppo.py:159", "libc10_cuda.so");
  named(add(DriverApi::kCuda, {1, 2}), "ppo.py:159", "libcudart.so.12");
  named(add(DriverApi::kNvml, {0}), "ppo.py:159", "libnvidia-ml.so.1");
  decide(verdict_);
  ASSERT_EQ(verdict_.findings.places.size(), 1u);
  const Place& place = verdict_.findings.places[0];
  EXPECT_EQ(place.sites, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(place.processes, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(place.forbidden, (std::vector<size_t>{1, 2}));  // NVML is not denied
  EXPECT_EQ(verdict_.places, 1u);
  EXPECT_EQ(verdict_.lines, 1u);
  named(add(DriverApi::kCuda, {1}), "", "libfoo.so");  // without a line, the place is the library
  decide(verdict_);
  ASSERT_EQ(verdict_.findings.places.size(), 2u);
  EXPECT_EQ(verdict_.findings.places[1].name, "libfoo.so");
  EXPECT_EQ(verdict_.places, 2u);
  EXPECT_EQ(verdict_.lines, 1u);
}

TEST_F(Decision, PlaceWithoutADeniedCallDoesNotCount) {
  named(add(DriverApi::kNvml, {1}), "monitor.py:1", "ctypes/cffi");
  decide(verdict_);
  EXPECT_FALSE(verdict_.findings.places[0].counts);
  EXPECT_EQ(verdict_.places, 0u);
  verdict_.deny = {DriverApi::kNvml};
  verdict_.allow = {"train.py"};
  decide(verdict_);
  EXPECT_TRUE(verdict_.findings.places[0].counts);
  EXPECT_EQ(verdict_.places, 0u);
}

TEST_F(Decision, CudaCallOfPyTorchIsNoted) {
  named(add(DriverApi::kNvml, {1}), "a.py:1", "libtorch_python.so");
  decide(verdict_);
  EXPECT_FALSE(verdict_.torch_asked);
  named(add(DriverApi::kCuda, {1}), "a.py:1", "libc10_cuda.so");
  decide(verdict_);
  EXPECT_TRUE(verdict_.torch_asked);
}

}  // namespace
}  // namespace cudaguard::launcher
