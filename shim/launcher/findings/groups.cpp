// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/groups.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

namespace {

std::string name_of(const Findings& findings, const ObservedProcess& process, By by) {
  if (by == By::kExe) return process.exe;
  if (by == By::kHost) return process.host;
  if (by == By::kJob) return process.job;
  if (by == By::kRule) return process.rule == nullptr ? "" : *process.rule;
  if (process.uid == kNoUid) return {};
  const auto user = findings.users.find(process.uid);
  return user == findings.users.end() ? std::to_string(process.uid) : user->second;
}

std::vector<Group> by_line(const Findings& findings) {
  std::vector<Group> groups;
  for (const Place& place : findings.places) {
    const size_t processes = place.processes.size();
    groups.push_back({place.name, {}, processes, processes, place.asked, place.first, place.last});
  }
  return groups;
}

using Names = std::pair<std::string, std::optional<std::string>>;

/// The groups by two names, each of which gets a number.
class NamedGroups {
 public:
  size_t number_of(Names names) {
    const auto [number, is_new] = numbers_.try_emplace(std::move(names), all.size());
    if (is_new) {
      all.emplace_back().name = number->first.first;
      all.back().second = number->first.second;
    }
    return number->second;
  }
  std::vector<Group> all;

 private:
  std::map<Names, size_t> numbers_;
};

/// `other` is nothing for one key.
std::vector<Group> by_process(const Findings& findings, By by, std::optional<By> other) {
  NamedGroups named;
  std::vector<Group>& groups = named.all;
  std::vector<size_t> group_of;  // the group of each process
  group_of.reserve(findings.processes.size());
  for (const ObservedProcess& process : findings.processes) {
    Names names = {name_of(findings, process, by), {}};
    if (other) names.second = name_of(findings, process, *other);
    group_of.push_back(named.number_of(std::move(names)));
    Group& group = groups[group_of.back()];
    ++group.processes;
    group.asking += process.asked() ? 1 : 0;
    note_times(process.first, process.last, group);
  }
  for (const CallSite& site : findings.sites) {
    for (const size_t process : site.processes) {
      groups[group_of[process]].asked.insert(site.asked);
    }
  }
  return groups;
}

/// Each process counts in each place that it has asked from.
std::vector<Group> by_line_and(const Findings& findings, By by, bool line_first) {
  NamedGroups named;
  for (const Place& place : findings.places) {
    for (size_t i = 0; i < place.processes.size(); ++i) {
      const std::string name = name_of(findings, findings.processes[place.processes[i]], by);
      Names names = line_first ? Names(place.name, name) : Names(name, place.name);
      Group& group = named.all[named.number_of(std::move(names))];
      ++group.processes;
      ++group.asking;
      group.asked.insert(place.asked.begin(), place.asked.end());
      note_times(place.at[i], place.at[i], group);
    }
  }
  return std::move(named.all);
}

void sort(std::vector<Group>& groups) {
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    if (a.asking != b.asking) return a.asking > b.asking;
    if (a.processes != b.processes) return a.processes > b.processes;
    return std::tie(a.name, a.second) < std::tie(b.name, b.second);
  });
}

/// "/a/b/../c/ppo.py:159" becomes "/a/c/ppo.py:159", whatever the file system has there.
std::string without_detours(std::string line) {
  const bool is_path = line.find('/') != std::string::npos && line.find("://") == std::string::npos;
  return is_path ? std::filesystem::path(line).lexically_normal().native() : line;
}

std::string name_of(const CallSite& site) {
  const std::string by = site.started_by.empty() ? "" : ", started by " + site.started_by;
  if (const PythonFrame* frame = own_frame(site.stack); frame != nullptr) {
    return without_detours(file_and_line(*frame)) + by;
  }
  if (site.bypassed_guard()) return "bypassing the guard";
  if (!site.line.empty()) return without_detours(site.line) + by;
  if (!site.passes_on) return site.library + by;
  const std::vector<NativeFrame>& frames = site.stack.native;
  const auto own = std::find_if(frames.begin(), frames.end(), [](const NativeFrame& frame) {
    return !passes_calls_on(frame.module);
  });
  return (own == frames.end() ? site.library : std::string(base_name(own->module))) + by;
}

/// Numbers places by their names. Two paths that lead to one file of this machine have one number.
class PlaceNumbers {
 public:
  size_t number_of(const std::string& name) {
    const auto [number, is_new] = by_name_.try_emplace(name, count_);
    if (is_new) number->second = number_of_file(name);
    return number->second;
  }

 private:
  /// Looks at files only if another file has the same line, because a report may name files of
  /// other machines, or in directories that an access would mount.
  size_t number_of_file(const std::string& name) {
    if (!name.starts_with('/')) return count_++;
    const std::string_view line =
        std::string_view(name).substr(std::min(name.rfind(':'), name.size()));
    const auto [first, is_first] = first_by_line_.try_emplace(std::string(line), name);
    if (is_first) return count_++;
    by_file_.try_emplace(without_links(first->second), by_name_[first->second]);
    const auto [number, is_new] = by_file_.try_emplace(without_links(name), count_);
    count_ += is_new ? 1 : 0;
    return number->second;
  }

  static std::string without_links(const std::string& name) {
    const std::string file = name.substr(0, name.rfind(':'));
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(file, error);
    return error ? name : real.native() + name.substr(file.size());
  }

  size_t count_ = 0;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_map<std::string, size_t> by_file_;
  std::unordered_map<std::string, std::string> first_by_line_;
};

}  // namespace

std::string name_of(const TreeTruth::Unguarded& program) {
  if (!program.program.empty()) return program.program;
  return std::string(program.command.program());
}

std::vector<ProgramGroup> groups_of(const TreeTruth& tree) {
  std::vector<ProgramGroup> groups;
  for (const auto* programs : {&tree.unguarded, &tree.unknown}) {
    const auto begin = static_cast<std::ptrdiff_t>(groups.size());
    std::map<std::tuple<bool, bool, bool, bool, std::string, std::string>, size_t> numbers;
    for (const TreeTruth::Unguarded& one : *programs) {
      const auto [number, is_new] = numbers.try_emplace(
          {one.fails, one.in_doubt, one.has_driver, one.only_nvml, name_of(one), one.reason},
          groups.size());
      if (is_new) groups.push_back({.first = &one, .known = programs == &tree.unguarded});
      ++groups[number->second].starts;
    }
    std::stable_sort(groups.begin() + begin, groups.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.first->fails, a.first->in_doubt, a.starts) >
             std::tuple(b.first->fails, b.first->in_doubt, b.starts);
    });
  }
  return groups;
}

void keep_first(std::vector<size_t>& processes, std::vector<double>& at) {
  std::vector<std::pair<size_t, double>> order;
  order.reserve(processes.size());
  for (size_t i = 0; i < processes.size(); ++i) order.emplace_back(processes[i], at[i]);
  std::sort(order.begin(), order.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  order.erase(std::unique(order.begin(), order.end(), same), order.end());
  processes.clear();
  at.clear();
  for (const auto& [process, time] : order) {
    processes.push_back(process);
    at.push_back(time);
  }
}

void group_by_place(Findings& findings) {
  findings.places.clear();
  PlaceNumbers numbers;
  for (size_t i = 0; i < findings.sites.size(); ++i) {
    const CallSite& site = findings.sites[i];
    const std::string name = name_of(site);
    const size_t number = numbers.number_of(name);
    if (number == findings.places.size()) {
      findings.places.emplace_back();
      findings.places.back().name = name;
      findings.places.back().line = site.line;
    }
    Place& place = findings.places[number];
    place.sites.push_back(i);
    place.asked.insert(site.asked);
    place.processes.insert(place.processes.end(), site.processes.begin(), site.processes.end());
    place.at.insert(place.at.end(), site.at.begin(), site.at.end());
    note_times(site.first, site.last, place);
  }
  for (Place& place : findings.places) keep_first(place.processes, place.at);
}

std::vector<Group> groups_of(const Findings& findings, By by) {
  std::vector<Group> groups = by == By::kLine ? by_line(findings) : by_process(findings, by, {});
  sort(groups);
  return groups;
}

std::string text_of(const Keys& keys) {
  std::string text;
  for (const ByWord& key : keys) text.append(text.empty() ? "" : ",").append(key.word);
  return text;
}

std::vector<Group> groups_of(const Findings& findings, const Keys& keys) {
  if (keys.size() == 1) return groups_of(findings, keys[0].by);
  const By one = keys[0].by;
  const By other = keys[1].by;
  std::vector<Group> groups = one == By::kLine     ? by_line_and(findings, other, true)
                              : other == By::kLine ? by_line_and(findings, one, false)
                                                   : by_process(findings, one, other);
  sort(groups);
  return groups;
}

}  // namespace cudaguard::launcher
