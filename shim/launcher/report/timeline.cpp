// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "shim/launcher/message.h"
#include "shim/launcher/report/alike.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kRows = 300;    // seen at once
constexpr size_t kFolded = 600;  // in what can be unfolded, all together
constexpr size_t kMembers = 64;  // in one of these
constexpr size_t kPlain = 24;    // rows of one parent's children that did nothing
constexpr size_t kAlike = 3;     // so many become one row
constexpr size_t kSlots = 200;   // places of marks in one row
constexpr size_t kChips = 8;

enum class Guard { kUnknown, kGuarded, kNot };

struct Request {
  double at;
  size_t toucher;
  bool forbidden;
};

struct Node {
  uint32_t pid = 0;
  uint32_t ppid = 0;
  std::string command;
  double first = 0;
  double last = 0;
  Guard guard = Guard::kUnknown;
  bool has_driver = false;
  std::vector<Request> asked;
  std::vector<size_t> children;
  size_t below = 0;      // processes
  size_t like = 0;       // the same for all that look the same, with what is below them
  bool notable = false;  // it or one below it has asked, or is not guarded

  void lived(double from, double to) {
    if (from > 0) first = first > 0 ? std::min(first, from) : from;
    last = std::max({last, from, to});
  }
};

/// Round: "5 s", "30 min".
std::string tick_of(double seconds) {
  if (seconds < 1 || seconds > 59.5) return span_of(seconds);
  return std::to_string(std::lround(seconds)) + " s";
}

class Timeline {
 public:
  Timeline(const std::vector<Shown>& touchers, double begin, double end)
      : touchers_(touchers), begin_(begin), end_(end) {}

  void gather(const Findings& findings, const TreeTruth* tree) {
    if (tree != nullptr) add_tree(*tree);
    for (const ObservedProcess& process : findings.processes) {
      Node& node = node_of(process.pid, process.ppid, process.command);
      node.lived(process.started > 0 ? process.started : process.first,
                 std::max(process.last, process.ended));
      if (!process.policy.empty() && node.guard == Guard::kUnknown) node.guard = Guard::kGuarded;
    }
    for (size_t i = 0; i < findings.touchers.size(); ++i) {
      const Toucher& toucher = findings.touchers[i];
      for (size_t j = 0; j < toucher.processes.size(); ++j) {
        const size_t process = toucher.processes[j];
        Node& node = nodes_[places_[findings.processes[process].pid]];
        node.asked.push_back({toucher.at[j], i, touchers_[i].forbidden.contains(process)});
      }
    }
    for (const Node& node : nodes_) {
      if (node.first > 0) begin_ = begin_ > 0 ? std::min(begin_, node.first) : node.first;
      end_ = std::max(end_, node.last);
    }
    link();
  }

  Html write() {
    out_.put("<div class=\"timeline\">\n");
    write_axis();
    write_list(roots_, 0);
    return out_.put("</div>\n");
  }

 private:
  Node& node_of(uint32_t pid, uint32_t ppid, const std::string& command) {
    const auto [place, is_new] = places_.try_emplace(pid, nodes_.size());
    if (is_new) nodes_.push_back({});
    Node& node = nodes_[place->second];
    node.pid = pid;
    if (ppid != 0) node.ppid = ppid;
    if (!command.empty()) node.command = command;
    return node;
  }

  void add_tree(const TreeTruth& tree) {
    for (const TreeTruth::Seen& seen : tree.seen) {
      Node& node = node_of(seen.pid, seen.ppid, seen.command);
      node.lived(seen.first, seen.last);
      if (seen.guarded) node.guard = Guard::kGuarded;
    }
    for (const TreeTruth::Unguarded& one : tree.unguarded) {
      Node& node = node_of(one.pid, 0, one.command);
      node.lived(one.seen, one.seen);
      node.guard = Guard::kNot;
      node.has_driver = node.has_driver || (one.has_driver && !one.only_nvml);
    }
  }

  /// Parents are known by their numbers, which may say anything: a circle hangs from its first one.
  void link() {
    std::vector<size_t> order(nodes_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto when = [&](size_t i) { return std::tuple(nodes_[i].first, nodes_[i].pid, i); };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return when(a) < when(b); });
    std::vector<std::vector<size_t>> children(nodes_.size());
    std::vector<bool> taken(nodes_.size());
    for (const size_t i : order) {
      const auto parent = places_.find(nodes_[i].ppid);
      if (parent != places_.end() && parent->second != i) {
        children[parent->second].push_back(i);
      } else {
        roots_.push_back(i);
        taken[i] = true;
      }
    }
    std::vector<size_t> from_above = roots_;
    for (size_t done = 0, next = 0; done < order.size(); ++done) {
      if (done == from_above.size()) {  // only circles are left
        while (taken[order[next]]) ++next;
        taken[order[next]] = true;
        roots_.push_back(order[next]);
        from_above.push_back(order[next]);
      }
      const size_t i = from_above[done];
      for (const size_t child : children[i]) {
        if (taken[child]) continue;
        taken[child] = true;
        nodes_[i].children.push_back(child);
        from_above.push_back(child);
      }
    }
    for (size_t i = from_above.size(); i-- > 0;) look_at(nodes_[from_above[i]]);
  }

  /// Its children have been looked at.
  void look_at(Node& node) {
    node.notable = node.guard == Guard::kNot || !node.asked.empty();
    std::set<size_t> asked;
    std::set<size_t> likes;
    for (const Request& one : node.asked) asked.insert(one.toucher);
    for (const size_t child : node.children) {
      node.below += 1 + nodes_[child].below;
      node.notable = node.notable || nodes_[child].notable;
      likes.insert(nodes_[child].like);
    }
    node.like =
        likes_.try_emplace({without_numbers(node.command), node.guard, asked, likes}, likes_.size())
            .first->second;
  }

  double place_of(double when) const {
    return end_ > begin_ ? std::clamp((when - begin_) / (end_ - begin_), 0.0, 1.0) : 0;
  }

  void write_axis() {
    static constexpr std::array kSteps = {0.001, 0.002, 0.005, 0.01,  0.02,  0.05,  0.1,    0.2,
                                          0.5,   1.0,   2.0,   5.0,   10.0,  20.0,  30.0,   60.0,
                                          120.0, 300.0, 600.0, 1800., 3600., 7200., 21600., 86400.};
    const double all = std::max(end_ - begin_, 0.001);
    double step = kSteps.back() * std::ceil(all / (5 * kSteps.back()));
    for (const double one : kSteps) {
      if (all / one <= 5) {
        step = one;
        break;
      }
    }
    step_ = step / all;
    out_.put(
        "<div class=\"row axis\" aria-hidden=\"true\"><span class=\"who\"></span>"
        "<span class=\"took\"></span><span class=\"lane\">");
    // Not close to the end: it would reach out.
    for (size_t i = 0; static_cast<double>(i) * step <= all * 0.88; ++i) {
      const double at = static_cast<double>(i) * step;
      out_.put("<span style=\"left:", percent(at / all), "\">", i == 0 ? "0" : tick_of(at),
               "</span>");
    }
    out_.put("</span></div>\n");
  }

  void write_list(const std::vector<size_t>& siblings, size_t depth) {
    std::vector<std::vector<size_t>> groups;
    std::map<size_t, size_t> places;
    for (const size_t i : siblings) {
      const auto [place, is_new] = places.try_emplace(nodes_[i].like, groups.size());
      if (is_new) groups.push_back({});
      groups[place->second].push_back(i);
    }
    size_t plain = 0;
    size_t left = 0;
    out_.put(depth == 0 ? "<ul class=\"tree\" style=\"--step:" : "<ul>");
    if (depth == 0) out_.put(percent(step_), "\">");
    for (const std::vector<size_t>& group : groups) {
      const bool notable = nodes_[group[0]].notable;
      if (rows_ == 0 || (!notable && plain == kPlain)) {
        for (const size_t i : group) left += 1 + nodes_[i].below;
      } else if (group.size() < kAlike) {
        for (const size_t i : group) write_one(i, depth);
      } else {
        write_many(group, depth);
      }
      plain += notable || plain == kPlain ? 0 : 1;
    }
    write_left(left, depth);
    out_.put("</ul>\n");
  }

  void write_left(size_t left, size_t depth) {
    if (left == 0) return;
    out_.put("<li class=\"left\"><div class=\"row\" style=\"--d:", std::min<size_t>(depth, 9),
             "\"><span class=\"who\">and ", counted(left, "more process"),
             ", left out here</span></div></li>\n");
  }

  void write_one(size_t i, size_t depth) {
    rows_ -= rows_ == 0 ? 0 : 1;
    const Node& node = nodes_[i];
    out_.put("<li>");
    write_row(node, {i}, depth, "div");
    if (!node.children.empty()) write_list(node.children, depth + 1);
    out_.put("</li>\n");
  }

  /// One row, and in it all of them.
  void write_many(const std::vector<size_t>& group, size_t depth) {
    rows_ -= 1;
    Node all = nodes_[group[0]];
    all.asked.clear();
    std::vector<size_t> rest = group;
    for (size_t next = 0; next < rest.size(); ++next) {
      const Node& one = nodes_[rest[next]];
      all.asked.insert(all.asked.end(), one.asked.begin(), one.asked.end());
      rest.insert(rest.end(), one.children.begin(), one.children.end());
    }
    for (const size_t i : group) {
      all.command = in_common(all.command, nodes_[i].command);
      all.lived(nodes_[i].first, nodes_[i].last);
    }
    out_.put("<li><details>");
    write_row(all, group, depth, "summary");
    out_.put("<ul>");
    const size_t most = std::min({group.size(), kMembers, folded_});
    const size_t rows = rows_;
    rows_ = folded_;
    for (size_t i = 0; i < most; ++i) write_one(group[i], depth + 1);
    folded_ = rows_;
    rows_ = rows;
    size_t left = 0;
    for (size_t i = most; i < group.size(); ++i) left += 1 + nodes_[group[i]].below;
    write_left(left, depth + 1);
    out_.put("</ul></details></li>\n");
  }

  void write_row(const Node& node, const std::vector<size_t>& group, size_t depth,
                 const char* element) {
    const size_t count = group.size();
    out_.put("<", element, " class=\"row", count > 1 ? " many" : "",
             "\" style=\"--d:", std::min<size_t>(depth, 9), "\"><span class=\"who\">");
    if (count > 1) out_.put("<span class=\"count\">", grouped(count), " \u00d7</span> ");
    out_.put("<code>", node.command.empty() ? std::string("not known") : node.command, "</code>");
    if (count == 1) out_.put(" <span class=\"pid\">", node.pid, "</span>");
    if (count > 1 && node.below > 0) out_.put(" <span class=\"pid\">and what they started</span>");
    if (node.has_driver) {
      out_.put(" <strong class=\"tag fail\">not guarded, has the driver</strong>");
    } else if (node.guard == Guard::kNot) {
      out_.put(" <strong class=\"tag warn\">not guarded</strong>");
    }
    write_chips(node, count == 1);
    out_.put("</span><span class=\"took\">",
             node.last > node.first ? span_of(node.last - node.first) : "",
             "</span><span class=\"lane\" aria-hidden=\"true\">");
    if (node.first > 0) {
      out_.put("<i class=\"bar", node.guard == Guard::kNot ? " not" : "",
               "\" style=\"left:", percent(place_of(node.first)),
               ";width:", percent(place_of(node.last) - place_of(node.first)), "\"></i>");
    }
    write_marks(node);
    out_.put("</span></", element, ">");
  }

  /// The numbers of what it has asked for. In a summary they are no links: it is a button.
  void write_chips(const Node& node, bool links) {
    std::set<size_t> numbers;
    for (const Request& one : node.asked) numbers.insert(touchers_[one.toucher].number);
    numbers.erase(0);
    size_t room = kChips;
    for (const size_t number : numbers) {
      if (room-- == 0) break;
      if (links) {
        out_.put(" <a class=\"chip\" href=\"#t", number, "\" aria-label=\"asked: ", number, "\">",
                 number, "</a>");
      } else {
        out_.put(" <span class=\"chip\">", number, "</span>");
      }
    }
  }

  void write_marks(const Node& node) {
    std::set<std::pair<long, bool>> marks;
    for (const Request& one : node.asked) {
      marks.emplace(std::lround(place_of(one.at) * kSlots), one.forbidden);
    }
    for (const auto& [slot, fails] : marks) {
      out_.put("<i class=\"mark", fails ? " fail" : "",
               "\" style=\"left:", percent(static_cast<double>(slot) / kSlots), "\"></i>");
    }
  }

  const std::vector<Shown>& touchers_;
  double begin_;
  double end_;
  double step_ = 1;
  std::vector<Node> nodes_;
  std::map<uint32_t, size_t> places_;  // by pid
  std::vector<size_t> roots_;
  std::map<std::tuple<std::string, Guard, std::set<size_t>, std::set<size_t>>, size_t> likes_;
  size_t rows_ = kRows;
  size_t folded_ = kFolded;
  Html out_;
};

}  // namespace

Html timeline(const Findings& findings, const TreeTruth* tree, const std::vector<Shown>& touchers,
              double begin, double end) {
  Timeline line(touchers, begin, end);
  line.gather(findings, tree);
  return line.write();
}

}  // namespace cudaguard::launcher
