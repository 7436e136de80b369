// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/page.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/message.h"
#include "shim/launcher/report/alike.h"
#include "shim/launcher/report/groups.h"
#include "shim/launcher/report/html.h"
#include "shim/launcher/report/records.h"
#include "shim/launcher/report/symbols.h"
#include "shim/launcher/report/timeline.h"
#include "shim/launcher/verify/decide.h"
#include "shim/launcher/verify/text.h"

namespace cudaguard::launcher {

namespace {

constexpr char kStyle[] =
#include "page_style.inc"
    ;

constexpr size_t kCards = 40;    // touchers with their stacks
constexpr size_t kFrames = 64;   // of one stack
constexpr size_t kRun = 5;       // so many frames of others' code, one after another, are folded
constexpr size_t kRows = 100;    // of a table
constexpr size_t kParts = 8;     // numbers in one cell
constexpr size_t kInTree = 500;  // processes of records alone that are drawn
constexpr size_t kColumnsOfTime = 60;

using Words = std::vector<std::string>;

std::string joined(const Words& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

/// "3, 7-12 and 4 more".
std::string ranges(std::vector<uint32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  Words parts;
  size_t i = 0;
  for (size_t next = 0; i < numbers.size() && parts.size() < kParts; i = next) {
    for (next = i + 1; next < numbers.size() && numbers[next] - numbers[next - 1] <= 1;) ++next;
    parts.push_back(std::to_string(numbers[i]));
    if (numbers[i] != numbers[next - 1])
      parts.back() += "\u2013" + std::to_string(numbers[next - 1]);
  }
  return joined(parts, ", ") +
         (i < numbers.size() ? " and " + grouped(numbers.size() - i) + " more" : "");
}

std::string was_or_were(size_t number) {
  return counted(number, "process") + (number == 1 ? " was" : " were");
}

/// What is looked at first: the user's line, else what stands in for it.
std::string who(const Findings& findings, const Toucher& toucher) {
  if (!toucher.line.empty()) return toucher.line;
  if (!toucher.library.empty()) return toucher.library;
  return findings.processes[toucher.processes.at(0)].command;
}

/// "initialised CUDA by libtorch.so; context on 0, 1; loaded code".
std::string deeds_of(const ObservedProcess& process) {
  Words deeds;
  if (process.initialised) deeds.push_back("initialised CUDA by " + process.by);
  Words devices;
  for (const int device : process.contexts) devices.push_back(std::to_string(device));
  if (!devices.empty()) deeds.push_back("context on " + joined(devices, ", "));
  if (process.worked) deeds.emplace_back("loaded code");
  if (process.nvml) deeds.emplace_back("used NVML");
  deeds.insert(deeds.end(), process.tried.begin(), process.tried.end());
  for (const std::string& one : process.refused) deeds.push_back("refused: " + one);
  return joined(deeds, "; ");
}

/// Processes that look alike, in one row.
struct Alike {
  std::string command;
  std::vector<uint32_t> pids;
  std::set<std::string> hosts;
  std::set<std::string> users;
  std::string deeds;

  void add(const ObservedProcess& process) {
    command = pids.empty() ? process.command : in_common(command, process.command);
    pids.push_back(process.pid);
    hosts.insert(process.host);
    users.insert(process.uid == kNoUid ? "" : std::to_string(process.uid));
  }
};

/// "node7", "40 hosts"
std::string one_or_many(const std::set<std::string>& names, const char* what) {
  return names.size() == 1 ? *names.begin() : counted(names.size(), what);
}

/// Of several hosts they say nothing.
std::string pids_of(const Alike& row) { return row.hosts.size() > 1 ? "" : ranges(row.pids); }

class Page {
 public:
  /// `verdict`: null for records alone.
  Page(const Findings& findings, const Verdict* verdict);
  std::string of_verdict();
  std::string of_records(const std::string& title);

 private:
  template <typename... Parts>
  void put(const Parts&... parts) {
    out_.put(parts...);
  }
  void begin(const std::string& title);
  std::string end();
  void put_fact(const char* name, const std::string& value) {
    put("<div><dt>", name, "</dt><dd>", value, "</dd></div>\n");
  }
  void put_left(size_t count, const char* what) {
    if (count != 0) put("<p class=\"note\">and ", counted(count, what), ", left out here</p>\n");
  }
  /// `name`: of what can be scrolled; of `columns` those with '#' in front have numbers.
  void begin_table(const char* name, std::initializer_list<std::string_view> columns);
  void end_table() { put("</tbody></table></div>\n"); }

  void put_lead();
  void put_doubts();
  void put_touchers();
  void put_toucher(size_t i);
  void put_python(const Toucher& toucher);
  void put_native(const Toucher& toucher);
  void put_whose(const Toucher& toucher);
  void put_frame(bool own, bool is_line, const std::string& path, const std::string& behind);
  void put_how_sure();
  void put_alike(const Alike& row);
  void put_processes();
  void put_groups(const char* title, const char* column, By by);
  void put_when();

  const Findings& findings_;
  const Verdict* verdict_;
  std::vector<size_t> order_;  // of the touchers on the page
  std::vector<Shown> shown_;   // for each toucher
  std::set<uint32_t> all_;     // numbers of processes
  std::set<uint32_t> asked_;   // of these; with a verdict those that must not
  Symbols symbols_;
  Html out_;
};

Page::Page(const Findings& findings, const Verdict* verdict)
    : findings_(findings), verdict_(verdict) {
  for (const Toucher& toucher : findings.touchers) {
    Shown& one = shown_.emplace_back();
    if (verdict == nullptr) continue;
    for (const size_t i : forbidden_processes(*verdict, toucher)) {
      one.forbidden.insert(i);
      asked_.insert(findings.processes[i].pid);
    }
  }
  for (const ObservedProcess& process : findings.processes) all_.insert(process.pid);
  for (size_t i = 0; i < shown_.size(); ++i) order_.push_back(i);
  // Of records alone the most frequent first.
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    if (verdict != nullptr) return !shown_[a].forbidden.empty() && shown_[b].forbidden.empty();
    return findings.touchers[a].processes.size() > findings.touchers[b].processes.size();
  });
  order_.resize(std::min(order_.size(), kCards));
  for (size_t i = 0; i < order_.size(); ++i) shown_[order_[i]].number = i + 1;
  if (verdict == nullptr) return;
  for (const TreeTruth::Seen& one : verdict->tree.seen) all_.insert(one.pid);
  for (const TreeTruth::Unguarded& one : verdict->tree.unguarded) {
    all_.insert(one.pid);
    if (fails(*verdict, one)) asked_.insert(one.pid);
  }
}

// --- Head and foot -------------------------------------------------------------------------------

void Page::begin(const std::string& title) {
  put("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>", title,
      "</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      // Whatever the records contain: nothing is run, nothing is fetched.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<style>\n",
      kStyle, "</style>\n</head>\n<body>\n<main>\n");
}

std::string Page::end() {
  put("<footer>\n<p>", counted(findings_.records, "record"));
  if (findings_.torn != 0) {
    put(", ", grouped(findings_.torn), " cut short (the writer was killed, or the disk is full)");
  }
  if (findings_.not_understood != 0) {
    put(", ", counted(findings_.not_understood, "line"), " left out that no guard has written");
  }
  put(". cudaguard " CUDAGUARD_VERSION "</p>\n</footer>\n</main>\n</body>\n</html>\n");
  return out_.markup();
}

/// "ppo.py:159 and 2 others asked for CUDA".
std::string headline_of(const Verdict& verdict) {
  const Findings& findings = verdict.findings;
  Words names;
  for (size_t i = 0; i < findings.touchers.size(); ++i) {
    const std::string name = who(findings, findings.touchers[i]);
    if (verdict.fails[i] && std::count(names.begin(), names.end(), name) == 0)
      names.push_back(name);
  }
  if (names.size() > 2) names = {names[0], grouped(names.size() - 1) + " others"};
  const std::string denied = denied_names(verdict.deny);
  if (!names.empty()) return joined(names, " and ") + " asked for " + denied;
  for (const TreeTruth::Unguarded& one : verdict.tree.unguarded) {
    if (fails(verdict, one)) return one.command + " has the driver, and was not guarded";
  }
  if (verdict.status != 0) return "The program " + text_of_end(verdict.status);
  const bool allowed =
      std::any_of(findings.touchers.begin(), findings.touchers.end(),
                  [&](const auto& one) { return verdict.deny.contains(one.asked); });
  return (allowed ? "Only what may asked for " : "Nothing asked for ") + denied;
}

void Page::put_lead() {
  const Findings& findings = findings_;
  put("<p class=\"lead\">");
  if (!order_.empty() && verdict_->fails[order_[0]]) {
    const Toucher& first = findings.touchers[order_[0]];
    put(grouped(asked_.size()), " of ", counted(all_.size(), "process"), " asked; the first ",
        span_of(first.first - verdict_->started), " after the start, by <code>",
        first.around_guard() ? first.object : first.api, "</code>");
    if (first.around_guard()) put(", a request around the guard");
    if (!first.library.empty()) put(" through <code>", first.library, "</code>");
    put(first.denied ? ". It was refused." : ". It was let in.");
    if (verdict_->status != 0) put(" The program ", text_of_end(verdict_->status), ".");
  } else if (!verdict_->touched && verdict_->status != 0) {
    put("Nothing forbidden was asked for, but the program itself failed.");
  } else {
    put(counted(all_.size(), "process"), ", ",
        verdict_->tree.value == TreeTruth::Value::kUnguarded ? "not all of them guarded."
        : verdict_->tree.value == TreeTruth::Value::kAllGuarded
            ? "each of them guarded."
            : "none seen that was not guarded.");
  }
  put("</p>\n");
}

void Page::put_doubts() {
  const TreeTruth& tree = verdict_->tree;
  if (tree.unguarded.empty() && tree.doubts.empty()) return;
  put("<p class=\"caution\"><strong>Not the whole truth:</strong> ");
  if (!tree.unguarded.empty()) put(was_or_were(tree.unguarded.size()), " not guarded");
  put(tree.unguarded.empty() || tree.doubts.empty() ? "" : ", and ",
      tree.doubts.empty() ? "" : "records may be missing", ". <a href=\"#sure\">Why</a></p>\n");
}

// --- Who asked -----------------------------------------------------------------------------------

void Page::put_touchers() {
  if (order_.empty()) return;
  put("<section>\n<h2>Who asked</h2>\n");
  for (const size_t i : order_) put_toucher(i);
  put_left(findings_.touchers.size() - order_.size(), "more place");
  put("</section>\n");
}

void Page::put_toucher(size_t i) {
  const Toucher& toucher = findings_.touchers[i];
  const bool forbidden = !shown_[i].forbidden.empty();
  const bool counts = verdict_ != nullptr && verdict_->deny.contains(toucher.asked);
  put("<article class=\"toucher", forbidden ? " fail" : "", "\" id=\"t", shown_[i].number,
      "\">\n<h3><span class=\"chip\">", shown_[i].number, "</span> ", who(findings_, toucher),
      "</h3> <strong class=\"tag",
      forbidden        ? " fail"
      : toucher.denied ? ""
                       : " warn",
      "\">",
      forbidden             ? "not allowed"
      : counts              ? "allowed"
      : verdict_ != nullptr ? "does not count here"
      : toucher.denied      ? "refused"
                            : "let in",
      "</strong>\n<p>");
  if (toucher.around_guard()) {
    put("<code>", toucher.object, "</code>, a request to NVIDIA's driver around the guard");
  } else {
    put("<code>", toucher.api);
    if (!toucher.object.empty()) put("(\"", toucher.object, "\")");
    put("</code>");
  }
  if (!toucher.library.empty()) put(" through <code>", toucher.library, "</code>");
  put(toucher.around_guard() ? ", refused by the kernel's fence"
      : toucher.denied       ? ", refused"
                             : ", let in");
  if (verdict_ != nullptr) {
    put("; first ", span_of(toucher.first - verdict_->started), " after the start</p>\n");
  } else {
    put("; first at ", time_of(toucher.first), " UTC</p>\n");
  }
  if (!toucher.around_guard()) {
    put_python(toucher);
    put_native(toucher);
  }
  put_whose(toucher);
  put("</article>\n");
}

/// One frame, but for its end.
void Page::put_frame(bool own, bool is_line, const std::string& path, const std::string& behind) {
  const std::string_view folder = folder_of(path);
  put("<li class=\"", own ? "own" : "other", is_line ? " the-one" : "",
      "\"><span class=\"place\"><span class=\"folder\">", folder, folder.empty() ? "" : "/",
      "</span>", base_name(path), behind, "</span>");
}

void Page::put_python(const Toucher& toucher) {
  const std::vector<PythonFrame>& frames = toucher.stack.python;
  if (!toucher.stack.python_missing.empty() && toucher.stack.python_missing != kNoPython) {
    put("<p class=\"note\">No Python stack: ", toucher.stack.python_missing, "</p>\n");
  }
  if (frames.empty()) return;
  put("<h4>Python stack, innermost first</h4>\n<ol class=\"frames\">\n");
  const size_t count = std::min(frames.size(), kFrames);
  const PythonFrame* own = own_frame(toucher);
  size_t folded_to = 0;
  for (size_t i = 0; i < count; ++i) {
    size_t run = i;
    while (run < count && !is_user_code(frames[run].file, frames[run].function)) ++run;
    if (folded_to <= i && run - i >= kRun) {
      folded_to = run;
      put("<li><details><summary>", counted(run - i, "frame"),
          " of other people's code</summary>\n<ol class=\"frames\">\n");
    }
    put_frame(run == i, &frames[i] == own, frames[i].file, ":" + std::to_string(frames[i].line));
    put(" in <code>", frames[i].function, "</code>");
    // Of records that others have made, a file's name may be that of any file of ours.
    const std::string source = verdict_ == nullptr ? "" : source_of(findings_, toucher, frames[i]);
    if (!source.empty()) put("<code class=\"source\">", source, "</code>");
    put("</li>\n", i + 1 == folded_to ? "</ol></details></li>\n" : "");
  }
  put("</ol>\n");
  put_left(frames.size() - count, "more frame");
}

void Page::put_native(const Toucher& toucher) {
  const std::vector<NativeFrame>& frames = toucher.stack.native;
  const std::string& missing = toucher.stack.native_missing;
  if (frames.empty()) {
    if (!missing.empty()) put("<p class=\"note\">No native stack: ", missing, "</p>\n");
    return;
  }
  put("<details><summary>Native stack, ", counted(frames.size(), "frame"),
      missing.empty() ? "" : "; its callers are not available: ", missing,
      "</summary>\n<ol class=\"frames\">\n");
  const size_t count = std::min(frames.size(), kFrames);
  for (size_t i = 0; i < count; ++i) {
    char offset[24];
    put_frame(!passes_calls_on(frames[i].module), false, frames[i].module,
              "+" + std::string(Text(offset, sizeof offset).put_hex(frames[i].offset).view()));
    const std::string name = verdict_ == nullptr ? "" : symbols_.name_of(frames[i]);
    if (!name.empty()) put("<code class=\"source\">", name, "</code>");
    put("</li>\n");
  }
  put("</ol></details>\n");
  put_left(frames.size() - count, "more frame");
}

void Page::put_alike(const Alike& row) {
  const size_t count = row.pids.size();
  if (count > 1) put("<span class=\"count\">", grouped(count), " \u00d7</span> ");
  put("<code>", row.command, "</code>");
}

void Page::put_whose(const Toucher& toucher) {
  std::map<std::string, size_t> places;
  std::vector<Alike> rows;
  for (const size_t i : toucher.processes) {
    const std::string& command = findings_.processes[i].command;
    const auto [place, is_new] = places.try_emplace(without_numbers(command), rows.size());
    if (is_new) rows.emplace_back();
    rows[place->second].add(findings_.processes[i]);
  }
  const bool folded = rows.size() > 3;
  put(folded ? "<details><summary>In " : "<h4>In ", counted(toucher.processes.size(), "process"),
      folded ? "</summary>\n" : "</h4>\n", "<ul class=\"whose\">\n");
  for (size_t i = 0; i < std::min(rows.size(), kRows); ++i) {
    put("<li>");
    put_alike(rows[i]);
    put(" <span class=\"pid\">", pids_of(rows[i]), "</span></li>\n");
  }
  put("</ul>\n", folded ? "</details>\n" : "");
  put_left(rows.size() - std::min(rows.size(), kRows), "more command");
}

// --- How sure ------------------------------------------------------------------------------------

void Page::put_how_sure() {
  const TreeTruth& tree = verdict_->tree;
  put("<section id=\"sure\">\n<h2>How sure this is</h2>\n<p><strong>");
  if (tree.value == TreeTruth::Value::kUnguarded) {
    put(was_or_were(tree.unguarded.size()), " not guarded.");
  } else {
    put(tree.value == TreeTruth::Value::kAllGuarded ? "Every process was guarded."
                                                    : "No unguarded process was seen.");
  }
  put("</strong> ", counted(tree.seen.size(), "process"), " seen, ",
      counted(tree.hello, "start record"), " of guards read. ",
      tree.traced
          ? "Every start of a program was looked at (<code>--trace</code>)."
          : "The tree was looked at from time to time: what lived only between two looks may "
            "be missing. <code>--trace</code> looks at every start of a program.",
      "</p>\n");
  for (const std::string& doubt : tree.doubts) {
    put("<p class=\"caution\"><strong>In doubt:</strong> ", Long{doubt}, ".</p>\n");
  }
  if (!tree.left.empty()) put("<p class=\"note\">Not waited for: ", Long{tree.left}, "</p>\n");
  if (!tree.unguarded.empty()) {
    begin_table("Not guarded", {"Not guarded", "#pid", "Why"});
    const size_t count = std::min(tree.unguarded.size(), kRows);
    for (size_t i = 0; i < count; ++i) {
      const TreeTruth::Unguarded& one = tree.unguarded[i];
      put("<tr><th scope=\"row\"><code>", one.command, "</code></th><td class=\"number\">", one.pid,
          "</td><td>", one.reason);
      if (one.has_driver) {
        const bool counts = fails(*verdict_, one);
        put(counts ? " <strong class=\"tag fail\">" : " <strong class=\"tag\">",
            one.only_nvml ? "has NVML" : "has the driver open",
            counts ? ": counts as asked</strong>" : ", allowed</strong>");
      }
      put("</td></tr>\n");
    }
    end_table();
    put_left(tree.unguarded.size() - count, "more process");
  }
  put("</section>\n");
}

// --- Tables --------------------------------------------------------------------------------------

void Page::begin_table(const char* name, std::initializer_list<std::string_view> columns) {
  put("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"", name,
      "\"><table>\n<thead><tr>");
  for (const std::string_view column : columns) {
    const bool number = column.starts_with("#");
    put("<th scope=\"col\"", number ? " class=\"number\">" : ">", column.substr(number ? 1 : 0),
        "</th>");
  }
  put("</tr></thead>\n<tbody>\n");
}

void Page::put_processes() {
  std::map<std::pair<std::string, std::string>, size_t> places;
  std::vector<Alike> rows;
  for (const ObservedProcess& process : findings_.processes) {
    if (!process.asked()) continue;
    const std::string deeds = deeds_of(process);
    const auto [place, is_new] =
        places.try_emplace({without_numbers(process.command), deeds}, rows.size());
    if (is_new) rows.emplace_back().deeds = deeds;
    rows[place->second].add(process);
  }
  if (rows.empty()) return;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Alike& a, const Alike& b) { return a.pids.size() > b.pids.size(); });
  put("<section>\n<h2>Processes that asked</h2>\n");
  begin_table("Processes that asked", {"Process", "pid", "What it did", "User", "Host"});
  const size_t count = std::min(rows.size(), kRows);
  for (size_t i = 0; i < count; ++i) {
    put("<tr><th scope=\"row\">");
    put_alike(rows[i]);
    put("</th><td class=\"pid\">", pids_of(rows[i]), "</td><td>", rows[i].deeds, "</td><td>",
        one_or_many(rows[i].users, "user"), "</td><td>", one_or_many(rows[i].hosts, "host"),
        "</td></tr>\n");
  }
  end_table();
  put_left(rows.size() - count, "more row");
  put("</section>\n");
}

/// Nothing where all are one, but of lines.
void Page::put_groups(const char* title, const char* column, By by) {
  const std::vector<Group> groups = groups_of(findings_, by);
  if (groups.size() < (by == By::kLine ? 1 : 2)) return;
  std::map<std::string, size_t> numbers;
  for (size_t i = order_.size(); i-- > 0;) numbers[place_of(findings_.touchers[order_[i]])] = i + 1;
  put("<section>\n<h2>", title, "</h2>\n");
  begin_table(title, {column, "#Processes", "Asked for", "Last, UTC"});
  const size_t count = std::min(groups.size(), by == By::kLine ? kRows : kRows / 5);
  for (size_t i = 0; i < count; ++i) {
    const Group& group = groups[i];
    Words asked;
    for (const Asked one : group.asked) asked.push_back(denied_names({one}));
    put("<tr><th scope=\"row\">");
    if (const auto number = numbers.find(group.name); by == By::kLine && number != numbers.end()) {
      put("<a class=\"chip\" href=\"#t", number->second,
          "\" aria-label=\"its stack: ", number->second, "\">", number->second, "</a> ");
    }
    const std::string_view folder = folder_of(group.name);
    if (!folder.empty()) put("<span class=\"folder\">", folder, "/</span>");
    put(group.name.empty() ? std::string_view("not known") : base_name(group.name),
        "</th><td class=\"number share\" style=\"--p:",
        percent(static_cast<double>(group.touching) / static_cast<double>(groups[0].touching)),
        "\">", grouped(group.touching), "</td><td>", joined(asked, ", "),
        "</td><td class=\"time\">", time_of(group.last), "</td></tr>\n");
  }
  end_table();
  put_left(groups.size() - count, "more row");
  put("</section>\n");
}

/// How many asked, from the first to the last.
void Page::put_when() {
  std::vector<double> times;
  for (const Toucher& toucher : findings_.touchers) {
    std::copy_if(toucher.at.begin(), toucher.at.end(), std::back_inserter(times),
                 [](double time) { return time > 0; });
  }
  if (times.empty()) return;
  const auto [first, last] = std::minmax_element(times.begin(), times.end());
  const double begin = *first;
  const double all = *last - begin;
  if (!(all > 0)) return;
  std::vector<size_t> counts(kColumnsOfTime);
  for (const double time : times) {
    const auto column = static_cast<size_t>((time - begin) / all * kColumnsOfTime);
    counts[std::min(column, kColumnsOfTime - 1)] += 1;
  }
  const size_t most = *std::max_element(counts.begin(), counts.end());
  put("<section>\n<h2>When</h2>\n<p class=\"note\">Processes that asked, in columns of ",
      span_of(all / kColumnsOfTime), "; ", grouped(most),
      " in the highest</p>\n<div class=\"columns\" aria-hidden=\"true\">");
  for (const size_t count : counts) {
    put("<i style=\"height:", percent(static_cast<double>(count) / static_cast<double>(most)),
        "\"></i>");
  }
  put("</div>\n<p class=\"ends\"><span>", time_of(begin), "</span> <span>", time_of(begin + all),
      " UTC</span></p>\n</section>\n");
}

// --- The two pages -------------------------------------------------------------------------------

std::string Page::of_verdict() {
  const bool passed = verdict_->passed();
  const TreeTruth& tree = verdict_->tree;
  const std::string headline = headline_of(*verdict_);
  begin((passed ? "PASS: " : "FAIL: ") + headline);
  put("<header class=\"", passed ? "pass" : "fail",
      "\">\n<p class=\"kicker\">cudaguard verify</p>\n"
      "<h1><span class=\"word\">",
      passed ? "PASS" : "FAIL", "</span> ", headline, "</h1>\n");
  put_lead();
  put_doubts();
  const std::string command = joined(verdict_->command, " ");
  put("<p class=\"command\"><code>", Long{command}, "</code></p>\n<dl class=\"facts\">\n");
  put_fact("Started, UTC", time_of(verdict_->started));
  put_fact("Took", span_of(verdict_->ended - verdict_->started));
  put_fact("The program", text_of_end(verdict_->status));
  put_fact("Processes", grouped(all_.size()));
  put_fact("Not guarded", tree.unguarded.empty() ? "none seen" : grouped(tree.unguarded.size()));
  put_fact("Denied", denied_names(verdict_->deny));
  if (!verdict_->allow.empty()) put_fact("Allowed", joined(verdict_->allow, ", "));
  put("</dl>\n</header>\n");
  put_touchers();
  put("<section>\n<h2>Over time</h2>\n<p class=\"legend\" aria-hidden=\"true\">"
      "<span><i class=\"bar\"></i> guarded</span>",
      tree.unguarded.empty() ? "" : " <span><i class=\"bar not\"></i> not guarded</span>",
      findings_.touchers.empty()
          ? ""
          : " <span><i class=\"mark fail\"></i> asked, not allowed</span> "
            "<span><i class=\"mark\"></i> asked, allowed or does not count</span>",
      "</p>\n", timeline(findings_, &tree, shown_, verdict_->started, verdict_->ended),
      "</section>\n");
  put_how_sure();
  put_processes();
  return end();
}

std::string Page::of_records(const std::string& title) {
  const auto touching = [](const std::vector<Group>& groups) {
    size_t count = 0;
    for (const Group& group : groups) count += group.touching;
    return count;
  };
  const std::vector<Group> hosts = groups_of(findings_, By::kHost);
  std::string headline = counted(touching(hosts), "process");
  if (hosts.size() > 1) headline += " on " + counted(hosts.size(), "host");
  headline += " asked for CUDA or NVML";
  double first = 0;
  double last = 0;
  for (const Group& group : hosts) {
    if (group.first > 0) first = first > 0 ? std::min(first, group.first) : group.first;
    last = std::max(last, group.last);
  }
  begin(headline);
  put("<header>\n<p class=\"kicker\">cudaguard report</p>\n<h1>", headline,
      "</h1>\n<p class=\"command\"><code>", Long{title}, "</code></p>\n<dl class=\"facts\">\n");
  put_fact("First record, UTC", time_of(first));
  put_fact("Last record, UTC", time_of(last));
  put_fact("Processes", grouped(findings_.processes.size()));
  put_fact("Hosts", grouped(hosts.size()));
  put_fact("Users", grouped(groups_of(findings_, By::kUser).size()));
  put("</dl>\n</header>\n");
  put_groups("Which line asked", "Line, or library", By::kLine);
  if (hosts.size() == 1 && findings_.processes.size() <= kInTree) {
    put("<section>\n<h2>Over time</h2>\n<p class=\"note\">Each bar goes from a process's first "
        "record "
        "to its last.</p>\n",
        timeline(findings_, nullptr, shown_, first, last), "</section>\n");
  } else {
    put_when();
  }
  put("<div class=\"tables\">\n");
  put_groups("By host", "Host", By::kHost);
  put_groups("By user", "User", By::kUser);
  put_groups("By job", "Job", By::kJob);
  put_groups("By program", "Program", By::kExe);
  put("</div>\n");
  put_touchers();
  put_processes();
  return end();
}

}  // namespace

std::string page(const Verdict& verdict) { return Page(verdict.findings, &verdict).of_verdict(); }

std::string page(const Findings& findings, const std::string& title) {
  return Page(findings, nullptr).of_records(title);
}

}  // namespace cudaguard::launcher
