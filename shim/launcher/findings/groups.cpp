// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/groups.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/records.h"

namespace cudaguard::launcher {

namespace {

/// Of a Group or a Place. 0 is no time.
void note_times(double first, double last, auto& group) {
  if (first != 0 && (group.first == 0 || first < group.first)) group.first = first;
  group.last = std::max(group.last, last);
}

std::string name_of(const ObservedProcess& process, By by) {
  if (by == By::kExe) return process.exe;
  if (by == By::kHost) return process.host;
  if (by == By::kJob) return process.job;
  return process.uid == kNoUid ? "" : std::to_string(process.uid);
}

class Counter {
 public:
  size_t place(const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(name, groups_.size());
    if (is_new) groups_.emplace_back().name = name;
    return place->second;
  }
  Group& group(size_t number) { return groups_[number]; }
  std::vector<Group> sorted() {
    std::sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
      if (a.touching != b.touching) return a.touching > b.touching;
      if (a.processes != b.processes) return a.processes > b.processes;
      return a.name < b.name;
    });
    return std::move(groups_);
  }

 private:
  std::vector<Group> groups_;
  std::unordered_map<std::string, size_t> places_;
};

std::vector<Group> by_line(const Findings& findings) {
  Counter counter;
  for (const Place& place : findings.places) {
    Group& group = counter.group(counter.place(place.name));
    group.processes = group.touching = place.processes.size();
    group.asked = place.asked;
    group.first = place.first;
    group.last = place.last;
  }
  return counter.sorted();
}

std::string name_of(const Toucher& toucher) {
  if (const PythonFrame* frame = own_frame(toucher); frame != nullptr) return place_of(*frame);
  if (toucher.around_guard()) return "around the guard";
  if (!toucher.line.empty()) return toucher.line;
  if (!passes_calls_on(toucher.library)) return toucher.library;
  const std::vector<NativeFrame>& frames = toucher.stack.native;
  const auto own = std::find_if(frames.begin(), frames.end(), [](const NativeFrame& frame) {
    return !passes_calls_on(frame.module);
  });
  return own == frames.end() ? toucher.library : std::string(base_name(own->module));
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
  for (size_t i = 0; i < findings.touchers.size(); ++i) {
    const Toucher& toucher = findings.touchers[i];
    const auto [number, is_new] = numbers.try_emplace(name_of(toucher), findings.places.size());
    if (is_new) findings.places.emplace_back();
    Place& place = findings.places[number->second];
    place.name = number->first;
    place.line = toucher.line;
    place.touchers.push_back(i);
    place.asked.insert(toucher.asked);
    place.processes.insert(place.processes.end(), toucher.processes.begin(),
                           toucher.processes.end());
    place.at.insert(place.at.end(), toucher.at.begin(), toucher.at.end());
    note_times(toucher.first, toucher.last, place);
  }
  for (Place& place : findings.places) keep_first(place.processes, place.at);
}

std::vector<Group> groups_of(const Findings& findings, By by) {
  if (by == By::kLine) return by_line(findings);
  Counter counter;
  std::vector<size_t> groups;  // of each process
  for (const ObservedProcess& process : findings.processes) {
    groups.push_back(counter.place(name_of(process, by)));
    Group& group = counter.group(groups.back());
    ++group.processes;
    note_times(process.first, process.last, group);
  }
  std::vector<bool> touches(groups.size());
  for (const Toucher& toucher : findings.touchers) {
    for (const size_t process : toucher.processes) {
      Group& group = counter.group(groups[process]);
      group.asked.insert(toucher.asked);
      if (!touches[process]) ++group.touching;
      touches[process] = true;
    }
  }
  return counter.sorted();
}

}  // namespace cudaguard::launcher
