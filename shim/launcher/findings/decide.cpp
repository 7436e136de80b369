// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/decide.h"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr int kTouched = 1;
constexpr int kProgramFailed = 2;
constexpr int kIncomplete = 3;

Asked asked_of(std::string_view word) {
  if (word == "init") return Asked::kCuda;
  if (word == "nvml") return Asked::kNvml;
  if (word == "opencl") return Asked::kOpenCl;
  throw Refusal(kRefused,
                "--deny " + in_quotes(word) + " is not accepted (accepted: init, nvml, opencl)");
}

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

std::set<Asked> denied_words(const std::vector<std::string>& lists) {
  std::set<Asked> result;
  for (const std::string& list : lists) {
    std::string_view rest = list;
    for (bool last = false; !last;) result.insert(asked_of(take_entry(rest, last)));
  }
  if (result.empty()) result.insert(Asked::kCuda);
  return result;
}

bool is_allowed(const std::vector<std::string>& patterns, const std::string& command) {
  std::vector<std::string> texts = {command};
  for (std::string_view rest = command; !rest.empty();) {
    const std::string_view word = head(rest, rest.find(' '));
    texts.emplace_back(word);
    texts.emplace_back(base_name(word));
    rest = tail(rest, word.size() + 1);
  }
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return matches(pattern, text); });
  });
}

namespace {

/// By which code a toucher asked. PyTorch's own libraries keep the answer.
bool is_torch(const Toucher& toucher) {
  return toucher.library == "libc10_cuda.so" || toucher.library.starts_with("libtorch");
}

/// Of its touchers.
void decide_place(Verdict& verdict, Place& place) {
  place.counts = false;
  place.forbidden.clear();
  for (const size_t number : place.touchers) {
    const Toucher& toucher = verdict.findings.touchers[number];
    place.counts |= toucher.counts;
    place.forbidden.insert(place.forbidden.end(), toucher.forbidden.begin(),
                           toucher.forbidden.end());
  }
  std::sort(place.forbidden.begin(), place.forbidden.end());
  place.forbidden.erase(std::unique(place.forbidden.begin(), place.forbidden.end()),
                        place.forbidden.end());
  if (place.forbidden.empty()) return;
  ++verdict.places;
  if (!place.line.empty()) ++verdict.lines;
}

void decide_places(Verdict& verdict) {
  group_by_place(verdict.findings);
  verdict.places = verdict.lines = 0;
  for (Place& place : verdict.findings.places) decide_place(verdict, place);
}

}  // namespace

void decide(Verdict& verdict) {
  TreeTruth& tree = verdict.tree;
  // Process ids are reused. Records in a file have no start time to tell two processes apart.
  using Key = std::pair<uint32_t, uint64_t>;
  const auto key = [&](uint32_t pid, uint64_t since) { return Key(pid, tree.by_file ? 0 : since); };
  std::set<Key> all;
  std::set<Key> heard;
  std::set<Key> touched;
  std::set<Key> allowed;
  verdict.torch_asked = false;
  const auto& processes = verdict.findings.processes;
  for (const ObservedProcess& process : processes) {
    all.insert(key(process.pid, process.since));
    if (!tree.by_file && process.since != 0 && !process.policy.empty()) {
      heard.insert(key(process.pid, process.since));
    }
  }
  for (const TreeTruth::Seen& process : tree.seen) {
    all.insert(key(process.pid, process.since));
    if (process.heard) heard.insert(key(process.pid, process.since));
  }
  for (Toucher& toucher : verdict.findings.touchers) {
    toucher.forbidden.clear();
    toucher.counts = verdict.deny.contains(toucher.asked);
    if (!toucher.counts) continue;
    verdict.torch_asked |= is_torch(toucher);
    for (const size_t number : toucher.processes) {
      const ObservedProcess& process = processes[number];
      const bool may = is_allowed(verdict.allow, process.command);
      (may ? allowed : touched).insert(key(process.pid, process.since));
      if (!may) toucher.forbidden.push_back(number);
    }
  }
  decide_places(verdict);
  for (TreeTruth::Unguarded& process : tree.unguarded) {
    all.insert(key(process.pid, process.since));
    const bool denied = !process.only_nvml || verdict.deny.contains(Asked::kNvml);
    process.fails = process.has_driver && denied && !is_allowed(verdict.allow, process.command);
    if (process.fails) touched.insert(key(process.pid, process.since));
  }
  for (const Key& process : touched) allowed.erase(process);
  verdict.processes = all.size();
  verdict.heard = heard.size();
  verdict.touched = touched.size();
  verdict.allowed = allowed.size();
  using Result = Verdict::Result;
  const bool failed = !touched.empty() || verdict.status != 0;
  const bool in_doubt = verdict.is_in_doubt() && !verdict.allow_incomplete;
  verdict.result = failed ? Result::kFail : in_doubt ? Result::kIncomplete : Result::kPass;
  verdict.exit_code = !touched.empty()      ? kTouched
                      : verdict.status != 0 ? kProgramFailed
                      : in_doubt            ? kIncomplete
                                            : 0;
  if (!tree.unguarded.empty()) {
    tree.value = TreeTruth::Value::kUnguarded;
  } else if (tree.traced && !tree.some_untraced && tree.doubts.empty()) {
    tree.value = TreeTruth::Value::kAllGuarded;
  }
}

}  // namespace cudaguard::launcher
