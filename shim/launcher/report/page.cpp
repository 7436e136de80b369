// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/page.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/report/html.h"
#include "shim/launcher/report/symbols.h"
#include "shim/launcher/report/timeline.h"

namespace cudaguard::launcher {

namespace {

constexpr char kStyle[] =
#include "page_style.inc"
    ;

constexpr size_t kCards = 40;   // touchers with their stacks
constexpr size_t kFrames = 64;  // of one stack
constexpr size_t kRun = 5;      // frames of others' code, one after another, are folded
constexpr size_t kTableRows = 100;
constexpr size_t kListed = 40;   // numbers, or names, in one cell
constexpr size_t kInTree = 500;  // processes of records alone that are drawn one by one
constexpr size_t kColumnsOfTime = 60;

const char* name_of(Asked asked) {
  return asked == Asked::kCuda ? "CUDA" : asked == Asked::kNvml ? "NVML" : "OpenCL";
}

/// What the user is to look at: the line, else what stands in for it.
std::string who(const Findings& findings, const Toucher& toucher) {
  if (!toucher.line.empty()) return toucher.line;
  if (!toucher.library.empty()) return toucher.library;
  if (toucher.processes.empty() || toucher.processes[0] >= findings.processes.size())
    return "a process";
  return std::string(base_name(findings.processes[toucher.processes[0]].exe));
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

/// "3, 7-12 and 4 more".
std::string ranges(std::vector<uint32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<std::string> parts;
  size_t i = 0;
  while (i < numbers.size() && parts.size() < kListed) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(std::to_string(numbers[i]));
    if (last != i) parts.back() += "\u2013" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return joined(parts, ", ") +
         (i < numbers.size() ? " and " + grouped(numbers.size() - i) + " more" : "");
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) {
    return "killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

class Page {
 public:
  /// `verdict`: null for records alone.
  Page(const Findings& findings, const Verdict* verdict) : findings_(findings), verdict_(verdict) {
    const size_t count = findings.touchers.size();
    shown_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      order_.push_back(i);
      shown_[i].fails = verdict != nullptr && i < verdict->fails.size() && verdict->fails[i];
    }
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      if (shown_[a].fails != shown_[b].fails) return shown_[a].fails;
      return verdict == nullptr &&
             findings.touchers[a].processes.size() > findings.touchers[b].processes.size();
    });
    order_.resize(std::min(count, kCards));
    for (size_t i = 0; i < order_.size(); ++i) shown_[order_[i]].number = i + 1;
  }

  std::string of_verdict();
  std::string of_records(const std::string& title);

 private:
  template <typename... Parts>
  void put(const Parts&... parts) {
    out_.put(parts...);
  }

  void begin(const std::string& title) {
    put("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>", title,
        "</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<meta name=\"referrer\" content=\"no-referrer\">\n"
        // Whatever the records contain: nothing is run and nothing is fetched.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\">\n<style>\n",
        kStyle, "</style>\n</head>\n<body>\n<main>\n");
  }
  std::string end();
  void put_fact(const char* name, const std::string& value) {
    put("<div><dt>", name, "</dt><dd>", value, "</dd></div>\n");
  }

  void put_headline();
  void put_sentence();
  void put_touchers();
  void put_toucher(size_t i);
  void put_tag(size_t i);
  void put_python(const Toucher& toucher);
  void put_native(const Toucher& toucher);
  void put_whose(const Toucher& toucher);
  void put_how_sure();
  void put_processes();
  void put_lines();
  void put_by(const char* title, const char* what, std::string (*key)(const ObservedProcess&));
  void put_when();
  std::string where(const Toucher& toucher) const;

  size_t asked() const {
    return static_cast<size_t>(std::count_if(findings_.processes.begin(), findings_.processes.end(),
                                             [](const auto& one) { return one.asked(); }));
  }
  size_t count_of(std::string (*key)(const ObservedProcess&)) const {
    std::set<std::string> names;
    for (const ObservedProcess& process : findings_.processes) names.insert(key(process));
    names.erase("");
    return names.size();
  }

  const Findings& findings_;
  const Verdict* verdict_;
  std::vector<size_t> order_;  // of touchers on the page
  std::vector<Shown> shown_;   // for each of Findings::touchers
  Symbols symbols_;
  Html out_;
};

std::string host_of(const ObservedProcess& process) { return process.host; }
std::string user_of(const ObservedProcess& process) { return "uid " + std::to_string(process.uid); }
std::string job_of(const ObservedProcess& process) { return process.job; }
std::string program_of(const ObservedProcess& process) { return process.exe; }

// --- The head of a verify run
// ----------------------------------------------------------------------

/// "ppo.py:159 and 2 more asked for CUDA": the title too.
std::string headline_of(const Verdict& verdict) {
  const Findings& findings = verdict.findings;
  std::vector<std::string> names;
  const char* what = "";
  for (size_t i = 0; i < findings.touchers.size() && i < verdict.fails.size(); ++i) {
    if (!verdict.fails[i]) continue;
    if (names.empty()) what = name_of(findings.touchers[i].asked);
    const std::string name = who(findings, findings.touchers[i]);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (names.size() == 1) return names[0] + " asked for " + what;
  if (names.size() == 2) return names[0] + " and " + names[1] + " asked for " + what;
  if (!names.empty()) {
    return names[0] + " and " + grouped(names.size() - 1) + " others asked for " + what;
  }
  if (verdict.touched) return "CUDA was asked for";
  if (!verdict.passed()) return "The program failed: " + ending_of(verdict.status);
  const bool allowed = std::any_of(findings.touchers.begin(), findings.touchers.end(),
                                   [&](const auto& one) { return verdict.deny.count(one.asked); });
  return allowed ? "Only what is allowed asked for CUDA" : "Nothing asked for CUDA";
}

void Page::put_headline() {
  const bool passed = verdict_->passed();
  put("<header class=\"verdict ", passed ? "pass" : "fail",
      "\">\n<p class=\"kicker\">cudaguard verify</p>\n", "<h1><span class=\"word\">",
      passed ? "PASS" : "FAIL", "</span> ", headline_of(*verdict_), "</h1>\n");
  put_sentence();
  const std::string command = joined(verdict_->command);
  put("<p class=\"command\"><code>", Long{command}, "</code></p>\n<dl class=\"facts\">\n");
  put_fact("Started", time_of(verdict_->started) + " UTC");
  put_fact("Took", span_of(verdict_->ended - verdict_->started));
  put_fact("The program's end", ending_of(verdict_->status));
  put_fact("Processes", grouped(std::max(verdict_->tree.seen.size(), findings_.processes.size())));
  const TreeTruth& tree = verdict_->tree;
  put("<div><dt>Guarded</dt><dd><a href=\"#sure\">",
      tree.value == TreeTruth::Value::kAllGuarded  ? std::string("all of them")
      : tree.value == TreeTruth::Value::kUnguarded ? "all but " + grouped(tree.unguarded.size())
                                                   : std::string("none seen that was not"),
      "</a></dd></div>\n</dl>\n</header>\n");
}

/// Under the headline: how, and what came of it.
void Page::put_sentence() {
  const TreeTruth& tree = verdict_->tree;
  put("<p class=\"lead\">");
  if (verdict_->touched && !order_.empty()) {
    const Toucher& first = findings_.touchers[order_[0]];
    put("<code>", first.api, "</code>");
    if (!first.library.empty()) put(" through <code>", first.library, "</code>");
    put(", ", span_of(first.first - verdict_->started), " after the start, in ",
        counted(first.processes.size(), "process"), ". ",
        first.denied ? "It was refused; no GPU was touched." : "It was let in.");
  } else if (findings_.touchers.empty()) {
    put("No process loaded or called NVIDIA's driver.");
  } else {
    put(counted(findings_.touchers.size(), "place"),
        " in the code asked for something that does not count here: see below.");
  }
  if (verdict_->touched && verdict_->status != 0) {
    put(" The program itself failed as well: ", ending_of(verdict_->status), ".");
  }
  put("</p>\n");
  if (tree.value == TreeTruth::Value::kUnguarded) {
    put("<p class=\"caution\"><strong>Not the whole truth:</strong> ",
        counted(tree.unguarded.size(), "process"), tree.unguarded.size() == 1 ? " was" : " were",
        " not guarded, and what they did is not known. <a href=\"#sure\">Which ones</a></p>\n");
  } else if (!tree.doubts.empty()) {
    put("<p class=\"caution\"><strong>Not the whole truth:</strong> records may be missing. "
        "<a href=\"#sure\">Why</a></p>\n");
  }
}

// --- Who asked
// -------------------------------------------------------------------------------------

void Page::put_tag(size_t i) {
  const Toucher& toucher = findings_.touchers[i];
  if (shown_[i].fails) {
    put("<strong class=\"tag fail\">not allowed</strong>");
  } else if (verdict_ == nullptr) {
    put(toucher.denied ? "<strong class=\"tag\">refused</strong>"
                       : "<strong class=\"tag warn\">let in</strong>");
  } else if (verdict_->deny.count(toucher.asked)) {
    put("<strong class=\"tag\">allowed by --allow</strong>");
  } else {
    put("<strong class=\"tag\">", name_of(toucher.asked), " does not count here</strong>");
  }
}

void Page::put_touchers() {
  if (order_.empty()) return;
  put("<section>\n<h2>Who asked</h2>\n");
  for (const size_t i : order_) put_toucher(i);
  if (const size_t left = findings_.touchers.size() - order_.size(); left != 0) {
    put("<p class=\"note\">", counted(left, "more place"),
        " in the code asked; left out here.</p>\n");
  }
  put("</section>\n");
}

void Page::put_toucher(size_t i) {
  const Toucher& toucher = findings_.touchers[i];
  put("<article class=\"toucher", shown_[i].fails ? " fail" : "", "\" id=\"t", shown_[i].number,
      "\">\n<h3><span class=\"chip\">", shown_[i].number, "</span> ", who(findings_, toucher),
      "</h3> ");
  put_tag(i);
  put("\n<p><code>", toucher.api);
  if (!toucher.object.empty()) put("(\"", toucher.object, "\")");
  put("</code>");
  if (!toucher.library.empty()) put(" through <code>", toucher.library, "</code>");
  put(toucher.denied ? ", refused. " : ", let in. ");
  if (verdict_ != nullptr) {
    put("First ", span_of(toucher.first - verdict_->started), " after the start. ");
  } else {
    put("First at ", time_of(toucher.first), " UTC", where(toucher), ". ");
  }
  put("</p>\n");
  put_python(toucher);
  put_native(toucher);
  put_whose(toucher);
  put("</article>\n");
}

void Page::put_python(const Toucher& toucher) {
  const std::vector<PythonFrame>& frames = toucher.stack.python;
  if (frames.empty()) {
    if (!toucher.stack.python_missing.empty()) {
      put("<p class=\"note\">No Python stack: ", toucher.stack.python_missing, "</p>\n");
    }
    return;
  }
  put("<h4>Python stack, innermost first</h4>\n<ol class=\"frames\">\n");
  const size_t count = std::min(frames.size(), kFrames);
  size_t folded_to = 0;
  for (size_t i = 0; i < count; ++i) {
    const PythonFrame& frame = frames[i];
    const bool own = is_user_file(frame.file);
    const std::string place = std::string(base_name(frame.file)) + ":" + std::to_string(frame.line);
    size_t run = i;
    while (run < count && !is_user_file(frames[run].file)) ++run;
    if (folded_to <= i && run - i >= kRun) {
      folded_to = run;
      put("<li class=\"folded\"><details><summary>", counted(run - i, "frame"),
          " of other people's code</summary>\n<ol class=\"frames\">\n");
    }
    put("<li class=\"", own ? "own" : "other", place == toucher.line ? " the-one" : "",
        "\"><span class=\"place\"><span class=\"folder\">", folder_of(frame.file),
        folder_of(frame.file).empty() ? "" : "/", "</span>", place,
        "</span> <span class=\"function\">", frame.function, "</span>");
    // Of records that others have sent, a file's name may be any file of ours.
    if (verdict_ != nullptr) {
      if (const std::string source = source_of(findings_, toucher, frame); !source.empty()) {
        put("<code class=\"source\">", source, "</code>");
      }
    }
    put("</li>\n");
    if (i + 1 == folded_to) put("</ol></details></li>\n");
  }
  if (frames.size() > count) {
    put("<li class=\"other\">", counted(frames.size() - count, "more frame"), "</li>\n");
  }
  put("</ol>\n");
}

void Page::put_native(const Toucher& toucher) {
  const std::vector<NativeFrame>& frames = toucher.stack.native;
  if (frames.empty()) {
    if (!toucher.stack.native_missing.empty()) {
      put("<p class=\"note\">No native stack: ", toucher.stack.native_missing, "</p>\n");
    }
    return;
  }
  put("<details><summary>Native stack, ", counted(frames.size(), "frame"),
      "</summary>\n<ol class=\"frames native\">\n");
  for (size_t i = 0; i < std::min(frames.size(), kFrames); ++i) {
    const std::string name = verdict_ == nullptr ? "" : symbols_.name_of(frames[i]);
    char offset[32];
    Text number(offset, sizeof offset);
    number.put_hex(frames[i].offset);
    put("<li class=\"", passes_calls_on(frames[i].module) ? "other" : "own",
        "\"><span class=\"place\"><span class=\"folder\">", folder_of(frames[i].module),
        folder_of(frames[i].module).empty() ? "" : "/", "</span>", base_name(frames[i].module), "+",
        number.view(), "</span>");
    if (!name.empty()) put(" <code class=\"source\">", name, "</code>");
    put("</li>\n");
  }
  put("</ol></details>\n");
}

/// The processes of a toucher, those with the same command together.
void Page::put_whose(const Toucher& toucher) {
  std::map<std::string, size_t> places;
  std::vector<std::pair<std::string, std::vector<uint32_t>>> commands;
  for (const size_t i : toucher.processes) {
    if (i >= findings_.processes.size()) continue;
    const ObservedProcess& process = findings_.processes[i];
    const auto [place, is_new] = places.try_emplace(process.command, commands.size());
    if (is_new) commands.push_back({process.command, {}});
    commands[place->second].second.push_back(process.pid);
  }
  const size_t count = toucher.processes.size();
  put(count > 1 ? "<details><summary>In " : "<p class=\"whose\">In ", counted(count, "process"),
      count > 1 ? "</summary>\n<ul class=\"whose\">\n" : ": ");
  for (size_t i = 0; i < std::min(commands.size(), kListed); ++i) {
    const size_t alike = commands[i].second.size();
    put(count > 1 ? "<li>" : "");
    if (alike > 1) put(grouped(alike), " \u00d7 ");
    put("<code>", commands[i].first, "</code> <span class=\"pid\">", ranges(commands[i].second),
        "</span>", count > 1 ? "</li>\n" : "");
  }
  if (commands.size() > kListed)
    put("<li>and ", counted(commands.size() - kListed, "more command"), "</li>\n");
  put(count > 1 ? "</ul></details>\n" : "</p>\n");
}

std::string Page::where(const Toucher& toucher) const {
  std::set<std::string> hosts;
  for (const size_t i : toucher.processes) {
    if (i < findings_.processes.size()) hosts.insert(findings_.processes[i].host);
  }
  hosts.erase("");
  if (hosts.empty()) return "";
  return hosts.size() == 1 ? ", on " + *hosts.begin() : ", on " + counted(hosts.size(), "host");
}

// --- How sure
// --------------------------------------------------------------------------------------

void Page::put_how_sure() {
  const TreeTruth& tree = verdict_->tree;
  put("<section id=\"sure\">\n<h2>How sure this is</h2>\n<p>");
  const std::string seen = counted(tree.seen.size(), "process");
  if (tree.value == TreeTruth::Value::kAllGuarded) {
    put("<strong>All guarded.</strong> Every start of a program in the tree was watched "
        "(--trace): ",
        seen, ", each of them guarded.");
  } else if (tree.value == TreeTruth::Value::kNoneSeen) {
    put("<strong>None unguarded seen.</strong> ", counted(tree.hello, "process"),
        " reported to be guarded; ", seen,
        " were seen by looking from time to time. One that lived "
        "only between two looks may have been missed: <code>--trace</code> watches every start.");
  } else {
    put("<strong>", counted(tree.unguarded.size(), "process"), " not guarded.</strong> ",
        counted(tree.hello, "process"), " reported to be guarded; ", seen, " were seen",
        tree.traced ? ", every start watched (--trace)." : " by looking from time to time.");
  }
  put("</p>\n");
  for (const std::string& doubt : tree.doubts) {
    put("<p class=\"caution\"><strong>In doubt:</strong> ", Long{doubt}, ".</p>\n");
  }
  if (!tree.left.empty()) put("<p class=\"note\">Not waited for: ", Long{tree.left}, "</p>\n");
  if (!tree.unguarded.empty()) {
    put("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Processes that were not "
        "guarded\">"
        "<table>\n<thead><tr><th scope=\"col\">Not guarded</th><th scope=\"col\" "
        "class=\"number\">pid"
        "</th><th scope=\"col\">Why</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < std::min(tree.unguarded.size(), kTableRows); ++i) {
      const TreeTruth::Unguarded& one = tree.unguarded[i];
      put("<tr><th scope=\"row\"><code>", one.command, "</code></th><td class=\"number\">", one.pid,
          "</td><td>", one.reason);
      if (one.has_driver) put(" <strong class=\"tag fail\">has NVIDIA's driver open</strong>");
      put("</td></tr>\n");
    }
    put("</tbody></table></div>\n");
    if (tree.unguarded.size() > kTableRows) {
      put("<p class=\"note\">", counted(tree.unguarded.size() - kTableRows, "more process"),
          ", left out here.</p>\n");
    }
  }
  put("</section>\n");
}

// --- Tables
// ----------------------------------------------------------------------------------------

/// "initialised CUDA by libtorch.so; context on 0, 1; worked".
std::string deeds_of(const ObservedProcess& process) {
  std::vector<std::string> deeds;
  if (process.initialised) {
    deeds.push_back("initialised CUDA" + (process.by.empty() ? "" : " by " + process.by));
  }
  if (!process.contexts.empty()) {
    std::vector<std::string> devices;
    for (const int device : process.contexts) devices.push_back(std::to_string(device));
    deeds.push_back("context on " + joined(devices, ", "));
  }
  if (process.worked) deeds.emplace_back("worked");
  if (process.nvml) deeds.emplace_back("used NVML");
  for (const auto& [list, start] :
       {std::pair(&process.tried, ""), {&process.refused, "refused: "}}) {
    for (size_t i = 0; i < std::min<size_t>(list->size(), 3); ++i)
      deeds.push_back(start + (*list)[i]);
    if (list->size() > 3) deeds.push_back("and " + grouped(list->size() - 3) + " more");
  }
  if (process.found_none && process.tried.empty()) deeds.emplace_back("found no GPU");
  if (process.failed && process.tried.empty()) deeds.emplace_back("was told of an error");
  return joined(deeds, "; ");
}

void Page::put_processes() {
  struct Row {
    const ObservedProcess* process;
    std::string deeds;
    std::vector<uint32_t> pids;
  };
  const bool hosts = count_of(host_of) > 1;
  const bool users = count_of(user_of) > 1;
  std::vector<Row> rows;
  std::map<std::tuple<std::string, std::string, std::string, uint32_t>, size_t> places;
  for (const ObservedProcess& process : findings_.processes) {
    if (!process.asked()) continue;
    const std::string deeds = deeds_of(process);
    const auto [place, is_new] =
        places.try_emplace({process.command, deeds, process.host, process.uid}, rows.size());
    if (is_new) rows.push_back({&process, deeds, {}});
    rows[place->second].pids.push_back(process.pid);
  }
  if (rows.empty()) return;
  put("<section>\n<h2>Processes that asked</h2>\n<div class=\"wide\" tabindex=\"0\" "
      "role=\"region\" "
      "aria-label=\"Processes that asked\"><table>\n<thead><tr><th scope=\"col\">Process</th>"
      "<th scope=\"col\">pid</th>",
      hosts ? "<th scope=\"col\">Host</th>" : "", users ? "<th scope=\"col\">User</th>" : "",
      "<th scope=\"col\">What it did</th></tr></thead>\n<tbody>\n");
  size_t left = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (i >= kTableRows) {
      left += row.pids.size();
      continue;
    }
    put("<tr><th scope=\"row\">");
    if (row.pids.size() > 1)
      put("<span class=\"count\">", grouped(row.pids.size()), " \u00d7</span> ");
    put("<code>", row.process->command, "</code></th><td class=\"pids\">", ranges(row.pids),
        "</td>");
    if (hosts) put("<td>", row.process->host, "</td>");
    if (users) put("<td>", user_of(*row.process), "</td>");
    put("<td>", row.deeds, "</td></tr>\n");
  }
  put("</tbody></table></div>\n");
  if (left != 0) put("<p class=\"note\">", counted(left, "more process"), ", left out here.</p>\n");
  put("</section>\n");
}

void Page::put_lines() {
  struct Row {
    size_t number = 0;
    std::set<std::string> apis;
    std::set<std::string> hosts;
    std::set<size_t> processes;
    bool denied = false;
    bool let_in = false;
    double last = 0;
  };
  std::map<std::string, Row> lines;
  for (size_t i = 0; i < findings_.touchers.size(); ++i) {
    const Toucher& toucher = findings_.touchers[i];
    Row& row = lines[who(findings_, toucher)];
    if (const size_t number = shown_[i].number;
        number != 0 && (row.number == 0 || number < row.number))
      row.number = number;
    row.apis.insert(toucher.api);
    (toucher.denied ? row.denied : row.let_in) = true;
    row.last = std::max(row.last, toucher.first);
    for (const double at : toucher.at) row.last = std::max(row.last, at);
    for (const size_t one : toucher.processes) {
      if (one >= findings_.processes.size()) continue;
      row.processes.insert(one);
      row.hosts.insert(findings_.processes[one].host);
    }
  }
  std::vector<const std::pair<const std::string, Row>*> rows;
  for (const auto& line : lines) rows.push_back(&line);
  std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
    return a->second.processes.size() > b->second.processes.size();
  });
  if (rows.empty()) return;
  put("<section>\n<h2>Which line asked</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Which line asked\"><table>\n<thead><tr><th scope=\"col\">Line</th>"
      "<th scope=\"col\">Asked</th><th scope=\"col\">Answer</th><th scope=\"col\" "
      "class=\"number\">Processes</th>"
      "<th scope=\"col\" class=\"number\">Hosts</th><th scope=\"col\">Last, "
      "UTC</th></tr></thead>\n<tbody>\n");
  const double most = static_cast<double>(std::max<size_t>(rows[0]->second.processes.size(), 1));
  for (size_t i = 0; i < std::min(rows.size(), kTableRows); ++i) {
    const Row& row = rows[i]->second;
    put("<tr><th scope=\"row\">");
    if (row.number != 0)
      put("<a class=\"chip\" href=\"#t", row.number, "\" aria-label=\"stack ", row.number, "\">",
          row.number, "</a> ");
    put("<code>", rows[i]->first, "</code></th><td><code>",
        joined({row.apis.begin(), row.apis.end()}, ", "), "</code></td><td>",
        !row.denied  ? "let in"
        : row.let_in ? "refused, let in"
                     : "refused",
        "</td><td class=\"number share\" style=\"--p:",
        percent(static_cast<double>(row.processes.size()) / most), "\">",
        grouped(row.processes.size()), "</td><td class=\"number\">", grouped(row.hosts.size()),
        "</td><td class=\"time\">", time_of(row.last), "</td></tr>\n");
  }
  put("</tbody></table></div>\n");
  if (rows.size() > kTableRows)
    put("<p class=\"note\">", counted(rows.size() - kTableRows, "more line"),
        ", left out here.</p>\n");
  put("</section>\n");
}

/// One table of counts; nothing where all are one.
void Page::put_by(const char* title, const char* what, std::string (*key)(const ObservedProcess&)) {
  constexpr size_t kMost = 20;
  struct Row {
    size_t processes = 0;
    size_t refused = 0;
    size_t initialised = 0;
  };
  std::map<std::string, Row> all;
  for (const ObservedProcess& process : findings_.processes) {
    if (!process.asked()) continue;
    Row& row = all[key(process)];
    row.processes += 1;
    row.refused += process.refused.empty() ? 0 : 1;
    row.initialised += process.initialised ? 1 : 0;
  }
  if (all.size() < 2) return;
  std::vector<std::pair<std::string, Row>> rows(all.begin(), all.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.processes > b.second.processes;
  });
  put("<section>\n<h2>", title, "</h2>\n<table>\n<thead><tr><th scope=\"col\">", what,
      "</th><th scope=\"col\" class=\"number\">Asked</th><th scope=\"col\" "
      "class=\"number\">Refused</th>"
      "<th scope=\"col\" class=\"number\">Initialised</th></tr></thead>\n<tbody>\n");
  size_t left = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [name, row] = rows[i];
    if (i >= kMost) {
      left += row.processes;
      continue;
    }
    put("<tr><th scope=\"row\">", name.empty() ? std::string("not known") : name,
        "</th><td class=\"number share\" style=\"--p:",
        percent(static_cast<double>(row.processes) / static_cast<double>(rows[0].second.processes)),
        "\">", grouped(row.processes), "</td><td class=\"number\">", grouped(row.refused),
        "</td><td class=\"number\">", grouped(row.initialised), "</td></tr>\n");
  }
  put("</tbody></table>\n");
  if (rows.size() > kMost) {
    put("<p class=\"note\">", grouped(rows.size() - kMost), " more with ", counted(left, "process"),
        ", left out here.</p>\n");
  }
  put("</section>\n");
}

/// How many asked, from the first to the last.
void Page::put_when() {
  std::vector<double> times;
  for (const Toucher& toucher : findings_.touchers) {
    for (size_t i = 0; i < toucher.processes.size(); ++i) {
      times.push_back(i < toucher.at.size() ? toucher.at[i] : toucher.first);
    }
  }
  std::erase_if(times, [](double time) { return !(time > 0); });
  if (times.size() < 2) return;
  const auto [first, last] = std::minmax_element(times.begin(), times.end());
  const double begin = *first;
  const double all = *last - begin;
  if (!(all > 0)) return;
  std::vector<size_t> counts(kColumnsOfTime);
  for (const double time : times) {
    const double share = (time - begin) / all * kColumnsOfTime;
    counts[std::min(static_cast<size_t>(share), kColumnsOfTime - 1)] += 1;
  }
  const size_t most = *std::max_element(counts.begin(), counts.end());
  put("<section>\n<h2>When</h2>\n<p class=\"note\">Each column is ", span_of(all / kColumnsOfTime),
      "; the highest has ", counted(most, "request"),
      ".</p>\n<div class=\"columns\" role=\"img\" aria-label=\"", counted(times.size(), "request"),
      " from ", time_of(begin), " to ", time_of(begin + all), " UTC\">");
  for (const size_t count : counts) {
    put("<i style=\"height:", percent(static_cast<double>(count) / static_cast<double>(most)),
        "\"></i>");
  }
  put("</div>\n<p class=\"ends\"><span>", time_of(begin), "</span> <span>", time_of(begin + all),
      " UTC</span></p>\n</section>\n");
}

// --- The two pages
// ---------------------------------------------------------------------------------

std::string Page::end() {
  put("<footer>\n<p>", counted(findings_.records, "record"), " read");
  if (findings_.torn != 0) {
    put("; ", counted(findings_.torn, "torn record"), ", whose writer was killed while it wrote");
  }
  if (findings_.not_understood != 0) {
    put("; ", counted(findings_.not_understood, "line"), " that no guard has written, left out");
  }
  put(". cudaguard " CUDAGUARD_VERSION "</p>\n</footer>\n</main>\n</body>\n</html>\n");
  return out_.markup();
}

std::string Page::of_verdict() {
  begin((verdict_->passed() ? "PASS: " : "FAIL: ") + headline_of(*verdict_));
  put_headline();
  put_touchers();
  put("<section>\n<h2>Over time</h2>\n<p class=\"legend\"><span><i class=\"bar\"></i> "
      "guarded</span> "
      "<span><i class=\"bar not\"></i> not guarded</span> <span><i class=\"mark fail\"></i> asked, "
      "not allowed</span> "
      "<span><i class=\"mark\"></i> asked, allowed</span></p>\n",
      timeline(findings_, &verdict_->tree, shown_, verdict_->started, verdict_->ended),
      "</section>\n");
  put_how_sure();
  put_processes();
  return end();
}

std::string Page::of_records(const std::string& title) {
  const size_t processes = asked();
  const size_t hosts = count_of(host_of);
  const std::string headline =
      processes == 0 ? "No process asked for CUDA"
                     : counted(processes, "process") +
                           (hosts > 1 ? " on " + counted(hosts, "host") : "") + " asked for CUDA";
  begin(headline);
  put("<header class=\"verdict\">\n<p class=\"kicker\">cudaguard report</p>\n<h1>", headline,
      "</h1>\n<p class=\"command\"><code>", Long{title}, "</code></p>\n<dl class=\"facts\">\n");
  double first = 0;
  double last = 0;
  for (const ObservedProcess& process : findings_.processes) {
    if (process.first > 0) first = first > 0 ? std::min(first, process.first) : process.first;
    last = std::max(last, process.last);
  }
  put_fact("First record", time_of(first) + " UTC");
  put_fact("Last record", time_of(last) + " UTC");
  put_fact("Processes", grouped(findings_.processes.size()));
  put_fact("Hosts", grouped(hosts));
  put_fact("Users", grouped(count_of(user_of)));
  put_fact("Jobs", grouped(count_of(job_of)));
  put("</dl>\n</header>\n");
  put_lines();
  if (hosts <= 1 && findings_.processes.size() <= kInTree && !findings_.processes.empty()) {
    put("<section>\n<h2>Over time</h2>\n<p class=\"note\">Each bar goes from a process's first "
        "record to its last.</p>\n",
        timeline(findings_, nullptr, shown_, first, last), "</section>\n");
  } else {
    put_when();
  }
  put("<div class=\"tables\">\n");
  put_by("By host", "Host", host_of);
  put_by("By user", "User", user_of);
  put_by("By job", "Job", job_of);
  put_by("By program", "Program", program_of);
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
