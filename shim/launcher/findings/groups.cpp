// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/groups.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "shim/launcher/findings/records.h"

namespace cudaguard::launcher {

namespace {

void note_times(double first, double last, Group& group) {
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
  std::map<std::string, std::vector<const Toucher*>> lines;
  for (const Toucher& toucher : findings.touchers) lines[place_of(toucher)].push_back(&toucher);
  Counter counter;
  for (const auto& [line, touchers] : lines) {
    Group& group = counter.group(counter.place(line));
    std::vector<size_t> processes;
    for (const Toucher* one : touchers) {
      processes.insert(processes.end(), one->processes.begin(), one->processes.end());
      group.asked.insert(one->asked);
      note_times(one->first, one->last, group);
    }
    std::sort(processes.begin(), processes.end());
    const auto end = std::unique(processes.begin(), processes.end());
    group.processes = group.touching = static_cast<size_t>(end - processes.begin());
  }
  return counter.sorted();
}

}  // namespace

std::string place_of(const Toucher& toucher) {
  if (const PythonFrame* frame = own_frame(toucher); frame != nullptr) return place_of(*frame);
  if (toucher.around_guard()) return "around the guard";
  return toucher.line.empty() ? toucher.library : toucher.line;
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
