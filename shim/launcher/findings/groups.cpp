// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/groups.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "policy/text.h"
#include "policy/text/user_code.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

namespace {

std::string name_of(const ObservedProcess& process, By by) {
  if (by == By::kExe) return process.exe;
  if (by == By::kHost) return process.host;
  if (by == By::kJob) return process.job;
  if (by == By::kRule) return process.rule == nullptr ? "" : *process.rule;
  return process.uid == kNoUid ? "" : std::to_string(process.uid);
}

std::vector<Group> by_line(const Findings& findings) {
  std::vector<Group> groups;
  for (const Place& place : findings.places) {
    const size_t processes = place.processes.size();
    groups.push_back({place.name, processes, processes, place.asked, place.first, place.last});
  }
  return groups;
}

std::vector<Group> by_process(const Findings& findings, By by) {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> numbers;
  std::vector<size_t> group_of;  // the group of each process
  group_of.reserve(findings.processes.size());
  for (const ObservedProcess& process : findings.processes) {
    const auto [number, is_new] = numbers.try_emplace(name_of(process, by), groups.size());
    if (is_new) groups.emplace_back().name = number->first;
    group_of.push_back(number->second);
    Group& group = groups[number->second];
    ++group.processes;
    note_times(process.first, process.last, group);
  }
  std::vector<bool> asks(group_of.size());
  for (const CallSite& site : findings.sites) {
    for (const size_t process : site.processes) {
      Group& group = groups[group_of[process]];
      group.asked.insert(site.asked);
      if (!asks[process]) ++group.asking;
      asks[process] = true;
    }
  }
  return groups;
}

std::string name_of(const CallSite& site) {
  if (const PythonFrame* frame = own_frame(site.stack); frame != nullptr) return place_of(*frame);
  if (site.bypassed_guard()) return "bypassing the guard";
  if (!site.line.empty()) return site.line;
  const std::string by = site.started_by.empty() ? "" : ", started by " + site.started_by;
  if (!site.passes_on) return site.library + by;
  const std::vector<NativeFrame>& frames = site.stack.native;
  const auto own = std::find_if(frames.begin(), frames.end(), [](const NativeFrame& frame) {
    return !passes_calls_on(frame.module);
  });
  return (own == frames.end() ? site.library : std::string(base_name(own->module))) + by;
}

}  // namespace

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
  std::unordered_map<std::string, size_t> numbers;
  for (size_t i = 0; i < findings.sites.size(); ++i) {
    const CallSite& site = findings.sites[i];
    const auto [number, is_new] = numbers.try_emplace(name_of(site), findings.places.size());
    if (is_new) findings.places.emplace_back();
    Place& place = findings.places[number->second];
    place.name = number->first;
    place.line = site.line;
    place.sites.push_back(i);
    place.asked.insert(site.asked);
    place.processes.insert(place.processes.end(), site.processes.begin(), site.processes.end());
    place.at.insert(place.at.end(), site.at.begin(), site.at.end());
    note_times(site.first, site.last, place);
  }
  for (Place& place : findings.places) keep_first(place.processes, place.at);
}

std::vector<Group> groups_of(const Findings& findings, By by) {
  std::vector<Group> groups = by == By::kLine ? by_line(findings) : by_process(findings, by);
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    if (a.asking != b.asking) return a.asking > b.asking;
    if (a.processes != b.processes) return a.processes > b.processes;
    return a.name < b.name;
  });
  return groups;
}

}  // namespace cudaguard::launcher
