// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/decide.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policy/user_code.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"
#include "tests/unit/command_of.h"
#include "tests/unit/transcript.h"

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

ObservedProcess process(const std::string& words) {
  ObservedProcess one;
  one.pid = static_cast<uint32_t>(std::stoul(words));
  one.command = command_of(words.substr(words.find(' ') + 1));
  return one;
}

std::vector<size_t> numbers_in(std::string_view list) {
  std::vector<size_t> numbers;
  while (!list.empty()) numbers.push_back(std::stoul(std::string(take_entry(list))));
  return numbers;
}

std::string text_of(const std::vector<size_t>& numbers) {
  std::string text;
  for (const size_t one : numbers) text += (text.empty() ? "" : ",") + std::to_string(one);
  return text.empty() ? "none" : text;
}

std::set<DriverApi> apis_in(const std::string& words) { return denied_words({words}); }

/// What is found, as results.txt has it.
Verdict found(const std::string& inputs) {
  Verdict verdict;
  verdict.deny = {DriverApi::kCuda};
  TreeTruth& tree = verdict.tree;
  auto& processes = verdict.findings.processes;
  processes = {process("1 sh run.sh"), process("2 python3 train.py"), process("3 python3 eval.py")};
  size_t at = 1;                            // of the process that the next entries are about
  TreeTruth::Unguarded* program = nullptr;  // that the next entries are about
  for (const auto& [key, value] : entries_of(inputs)) {
    const Key is(key);
    const auto parts = value.find(' ');
    if (is("deny")) verdict.deny = apis_in(value);
    if (is("allow")) verdict.allow.push_back(value);
    if (is("strict")) verdict.strict = true;
    if (is("incomplete")) verdict.allow_incomplete = true;
    if (is("ioctls_tell")) verdict.ioctls_tell = true;
    if (is("status")) verdict.status = std::stoi(value) << 8;
    if (is("left")) tree.left = value;
    if (is("guarded")) tree.guarded = std::stoul(value);
    if (is("unwatched")) tree.value = TreeTruth::Value::kNotWatched;
    if (is("unguarded") || is("unknown")) {
      program = &(is("unknown") ? tree.unknown : tree.unguarded).emplace_back();
      program->pid = 9;
      program->command = command_of(value);
    }
    if (is("program")) program->program = value;
    if (is("reason")) program->reason = value;
    if (is("pid")) program->pid = static_cast<uint32_t>(std::stoul(value));
    if (is("driver")) program->has_driver = true;
    if (is("only_nvml")) program->only_nvml = true;
    if (is("names")) program->names_nvidia = true;
    if (is("seen") || is("heard")) {
      const ObservedProcess one = process(value);
      const bool heard = is("heard");
      tree.seen.push_back(
          {.pid = one.pid, .command = one.command, .guarded = heard, .heard = heard});
    }
    if (is("process")) {
      at = processes.size();
      processes.push_back(process(value));
    }
    if (is("command")) processes[at].command = command_of(value);
    if (is("since")) processes[at].since = std::stoul(value);
    if (is("of")) at = std::stoul(value);
    if (is("policy")) processes[at].policy = value;
    if (is("born")) tree.seen.back().since = std::stoul(value);
    if (is("doubt")) tree.doubts = {value};
    if (is("by_guard")) processes[at].by_guard = true;
    if (is("not_loaded")) processes[at].not_loaded = apis_in(value);
    if (is("exposed")) processes[at].exposed = apis_in(value);
    if (is("last_place")) processes[at].last_place = true;
    if (is("in_vain")) {
      processes[at].in_vain = true;
      processes[at].tried = {std::make_shared<const std::string>("found no GPU by libx.so")};
    }
    if (is("site")) {
      CallSite& site = verdict.findings.sites.emplace_back();
      site.asked = *apis_in(value.substr(0, parts)).begin();
      site.processes = numbers_in(tail(value, parts + 1));
      site.at.resize(site.processes.size());
    }
    if (is("at")) {
      CallSite& site = verdict.findings.sites.back();
      site.line = value.substr(0, parts);
      site.library = value.substr(parts + 1);
      site.passes_on = passes_calls_on(site.library);
    }
  }
  return verdict;
}

std::string decided(const std::string& inputs) {
  Verdict verdict = found(inputs);
  decide(verdict);
  if (verdict.tree.doubts.empty()) decide(verdict);  // a new decision replaces the previous one
  constexpr const char* kResults[] = {"PASS", "FAIL", "INCOMPLETE"};
  constexpr const char* kTrees[] = {", unwatched", "", ", unguarded", ", unknown"};
  std::string text = kResults[static_cast<int>(verdict.result)];
  text += " " + std::to_string(verdict.exit_code) + kTrees[static_cast<int>(verdict.tree.value)];
  const auto put = [&](const std::string& name, size_t count, size_t usual = 0) {
    if (count != usual) text += ", " + name + " " + std::to_string(count);
  };
  put("processes", verdict.processes, 3);
  put("asked", verdict.asked);
  put("allowed", verdict.allowed);
  put("heard", verdict.heard);
  put("places", verdict.places);
  put("lines", verdict.lines);
  put("started", verdict.tree.started());
  put("torch", verdict.torch_asked ? 1 : 0);
  for (const Place& place : verdict.findings.places) {
    text += ", place " + (place.name.empty() ? "?" : place.name) +
            (place.counts ? " that counts" : "") + " sites " + text_of(place.sites) + " in " +
            text_of(place.processes) + " forbids " + text_of(place.forbidden);
  }
  for (const TreeTruth::Unguarded& one : verdict.tree.unguarded) {
    text += (one.fails ? ", it fails" : "") + std::string(one.in_doubt ? ", it is in doubt" : "");
  }
  for (const std::string& doubt : verdict.tree.doubts) text += "; doubt: " + doubt;
  for (const std::string& pattern : patterns_for(verdict)) text += "; accept: " + pattern;
  for (const std::string& unused : unused_patterns(verdict)) text += "; " + unused;
  return text;
}

TEST(Decide, IsAsWritten) {
  expect_as_written(CG_RESULTS,
                    [](const std::string& inputs, const std::string&) { return decided(inputs); });
}

TEST(Decide, OneDoubtForEachKindOfProgramButAtMostSix) {
  std::string inputs = "strict";
  const auto add = [&](const std::string& program, const char* kind = "|unguarded=") {
    inputs += kind + program + " --all|program=" + program;
    Verdict verdict = found(inputs);
    decide(verdict);
    return verdict.tree.doubts;
  };
  for (int i = 0; i < 20; ++i) EXPECT_EQ(add("./stat").size(), 1U);
  size_t kinds = 1;
  for (const char* program : {"./b", "./c", "./d", "./e"}) EXPECT_EQ(add(program).size(), ++kinds);
  add("./f");  // "more programs in doubt: 0" was left out
  const std::vector<std::string> doubts = add("./g", "|unknown=");
  EXPECT_EQ(doubts.size(), 6U);
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

}  // namespace
}  // namespace cudaguard::launcher
