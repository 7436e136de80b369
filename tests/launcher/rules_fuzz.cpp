// SPDX-License-Identifier: Apache-2.0
// Reads random rules, sanitized, and compares what is known about a process with a part of it: less
// knowledge never allows more.
//
//   rules_fuzz ROUNDS
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "policy/process_rules.h"
#include "tests/launcher/random.h"

namespace {

using namespace cudaguard;  // NOLINT(google-build-using-namespace)

int width(Policy policy) {
  return policy == Policy::kForceCpu ? 0 : policy == Policy::kOff ? 2 : 1;
}

constexpr const char* kPolicyWords[] = {"FORCE_CPU", "VALIDATE", "OFF", "clamp"};
constexpr const char* kPairs[] = {"program=*smi",
                                  "program=/usr/*",
                                  "args=*-m*",
                                  "args=\"python3 -m x\"",
                                  "user=alice",
                                  "user=0",
                                  "user=carol",
                                  "group=gpu",
                                  "group=staff",
                                  "cgroup=/user*",
                                  "cgroup=[",
                                  "gpus=0,1",
                                  "gpus=1",
                                  "gpus=GPU-8",
                                  "log=all",
                                  "report=/tmp/x",
                                  "gpus=-1",
                                  "user=\"",
                                  "environment=may-widen"};
constexpr const char* kEnds[] = {"\n", "\n", ";", " & ", " # ", " "};

/// Returns rules, most of them right, with a few bytes that are changed.
std::string random_text(Random& random) {
  std::string text;
  for (uint64_t rules = random.below(6); rules > 0; --rules) {
    text += kPolicyWords[random.below(std::size(kPolicyWords))];
    for (uint64_t pairs = random.below(3); pairs > 0; --pairs) {
      text.append(" ").append(kPairs[random.below(std::size(kPairs))]);
    }
    text += kEnds[random.below(std::size(kEnds))];
  }
  if (text.empty() || random.below(2) != 0) return text;
  for (uint64_t changes = random.below(4); changes > 0; --changes) {
    text[random.below(text.size())] = static_cast<char>(random.below(256));
  }
  return text;
}

int fuzz(long rounds) {
  using namespace std::string_view_literals;
  Random random;
  const uint32_t groups[] = {44, 1000};
  size_t decided = 0;
  for (long round = 0; round < rounds; ++round) {
    // A copy of the exact size, so that the sanitizer finds a read behind the end.
    const std::string made = random_text(random);
    const std::vector<char> copy(made.begin(), made.end());
    const std::string_view text(copy.data(), copy.size());
    RuleFacts facts;
    facts.program = {random.below(2) != 0 ? "/usr/bin/nvidia-smi"sv : "/usr/bin/python3"sv, true,
                     false};
    facts.args = {"python3\0-m\0x\0"sv, true, random.below(4) == 0};
    facts.cgroup = {"4:cpu:/\n0::/user.slice\n"sv, true, random.below(4) == 0};
    facts.user_file = {"root:x:0:\nalice:x:1000:\n"sv, true, false};
    facts.group_file = {"gpu:x:44:"sv, true, false};
    facts.knows_user = facts.knows_groups = true;
    facts.user = random.below(2) != 0 ? 1000 : 0;
    facts.groups = groups;
    RuleFacts less = facts;
    const uint64_t forget = random.below(128);
    if ((forget & 1U) != 0) less.program.known = false;
    if ((forget & 2U) != 0) less.args.known = false;
    if ((forget & 4U) != 0) less.cgroup.known = false;
    if ((forget & 8U) != 0) less.user_file = {};
    if ((forget & 16U) != 0) less.group_file = {};
    if ((forget & 32U) != 0) less.knows_user = false;
    if ((forget & 64U) != 0) less.knows_groups = false;
    Ruling otherwise;
    otherwise.policy = static_cast<Policy>(random.below(4));
    for (const RuleSource source : {RuleSource::kFile, RuleSource::kVariable}) {
      const Ruling all = decide_by_rules(text, source, facts, otherwise);
      const Ruling some = decide_by_rules(text, source, less, otherwise);
      decided += all.decided ? 1 : 0;
      if (width(some.policy) > width(all.policy) ||
          (some.gpus.empty() && !all.gpus.empty() && some.policy != Policy::kForceCpu)) {
        std::cerr << "wider with fewer facts, round " << round << ":\n" << made << '\n';
        return 1;
      }
    }
  }
  std::cout << "decided " << decided << '\n';
  return decided == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? fuzz(std::atol(argv[1])) : 2; }
