// SPDX-License-Identifier: Apache-2.0
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/model.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr char kLibrary[] = "lib:";
constexpr std::string_view kModule = "module:";
constexpr char kLine[] = "line:";
constexpr std::string_view kProgram = "program:";

/// An empty text matches nothing: it is the base name of "dir/", or a line that is not known.
bool matches(const std::string& pattern, const std::string& text) {
  return !text.empty() && fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool is_for_code(std::string_view pattern) {
  return pattern.starts_with(kLibrary) || pattern.starts_with(kModule) ||
         pattern.starts_with(kLine);
}

bool is_for_process(std::string_view pattern) {
  return !is_for_code(pattern) && !pattern.starts_with(kProgram);
}

/// The end of a file's path that may name its module: from its own directory on, or from the first
/// directory that does not also hold the script's directory. "src/models/net.py" for
/// "/home/u/src/models/net.py", if the script is "/home/u/src/train.py".
std::string_view part_below(std::string_view file, std::string_view script) {
  const std::string above = std::string(directory_of(directory_of(script))) + "/";
  const auto differs = std::ranges::mismatch(above, file).in1;
  const std::string_view shared = head(above, static_cast<size_t>(differs - above.begin()));
  const size_t nearest = directory_of(file).rfind('/') + 1;  // 0 without a '/'
  std::string_view part = tail(file, std::min(nearest, shared.rfind('/') + 1));
  while (part.starts_with('/')) part.remove_prefix(1);
  return part;
}

/// True if the file is the module or a module in it: "tensordict.nn" for
/// ".../site-packages/tensordict/nn/__init__.py". Outside of packages it is not known from which
/// directory Python has imported it, so the name may begin at any: "src.models.net", "models.net"
/// or "net". `script` is the outermost frame's file.
bool is_module(const std::string& pattern, std::string_view file, std::string_view script) {
  const std::string_view packaged = in_packages(file);
  const bool in_package = packaged.data() != nullptr;
  std::string_view part = in_package ? packaged : part_below(file, script);
  if (part.ends_with(".py")) part.remove_suffix(3);
  if (part.ends_with("/__init__")) part = directory_of(part);
  for (;;) {
    std::string name(part);
    std::replace(name.begin(), name.end(), '/', '.');
    if (matches(pattern, name) || matches(pattern + ".*", name)) return true;
    const size_t slash = part.find('/');
    if (in_package || slash == std::string_view::npos) return false;
    part = tail(part, slash + 1);
  }
}

/// Searches the stack from the call outwards up to the user's line.
bool is_on_stack(const std::string& pattern, const CallSite& site) {
  const PythonFrame* own = own_frame(site.stack);
  for (const PythonFrame& frame : site.stack.python) {
    if (is_module(pattern, frame.file, site.stack.python.back().file)) return true;
    if (&frame == own) break;
  }
  return false;
}

/// "train.py:12", or with directories before it: "src/train.py:12".
bool is_line(const std::string& pattern, const CallSite& site) {
  if (matches(pattern, site.line)) return true;
  const PythonFrame* own = own_frame(site.stack);
  const NativeFrame* native = own_frame(site.stack.native);
  const bool is_native = site.stack.python.empty() && native != nullptr;
  const std::string place = own != nullptr ? file_and_line(*own) : is_native ? native->line : "";
  return matches(pattern, place) || matches("*/" + pattern, place);
}

/// A pattern for exactly this text: the special characters of a glob lose their meaning. A
/// character that cannot be printed becomes "*".
std::string literal(std::string_view text) {
  std::string pattern;
  while (!text.empty()) {
    const char first = text.front();
    const std::string_view character = take_printable(text);
    if (std::string_view("*?[\\").find(first) != std::string_view::npos) pattern += '\\';
    pattern += character == "?" && first != '?' ? "*" : character;
  }
  return pattern;
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

/// Adds a pattern for the program, if one matches: the command may be unknown.
void add_program(std::vector<std::string>& patterns, const Command& command) {
  const std::string pattern = literal(command.program());
  if (!is_allowed({pattern}, command)) return;
  add_once(patterns, pattern);
}

/// The failing call sites of a place that a pattern must match. What a library only passes on is
/// allowed with its callers in the same process.
std::vector<const CallSite*> sites_to_match(const Findings& findings, const Place& place) {
  std::vector<const CallSite*> all;
  std::set<size_t> callers;
  for (const size_t number : place.sites) {
    const CallSite& site = findings.sites[number];
    if (site.forbidden.empty()) continue;
    all.push_back(&site);
    if (!site.passes_on) callers.insert(site.forbidden.begin(), site.forbidden.end());
  }
  std::erase_if(all, [&](const CallSite* site) {
    return site->passes_on && std::ranges::all_of(site->forbidden, [&](size_t process) {
             return callers.contains(process);
           });
  });
  return all;
}

/// Adds a pattern for the line or the library that fails the run, otherwise one for each program.
void add_place(std::vector<std::string>& patterns, const Findings& findings, const Place& place) {
  const std::vector<const CallSite*> sites = sites_to_match(findings, place);
  if (sites.empty()) return;
  const auto line_of = [](const CallSite* site) { return kLine + literal(site->line); };
  if (std::ranges::all_of(
          sites, [&](const CallSite* site) { return is_code_allowed({line_of(site)}, *site); })) {
    // A file may have several names.
    for (const CallSite* site : sites) add_once(patterns, line_of(site));
    return;
  }
  const std::string library = kLibrary + literal(sites.front()->library);
  if (std::ranges::all_of(
          sites, [&](const CallSite* site) { return is_code_allowed({library}, *site); })) {
    add_once(patterns, library);
    return;
  }
  for (const size_t process : place.forbidden) {
    add_program(patterns, findings.processes[process].command);
  }
}

bool matches_something(const std::string& pattern, const Verdict& verdict) {
  const std::vector<std::string> patterns = {pattern};
  if (is_for_code(pattern)) {
    return std::ranges::any_of(verdict.findings.sites, [&](const CallSite& site) {
      return site.counts && is_code_allowed(patterns, site);
    });
  }
  const auto is_program = [&](const TreeTruth::Unguarded& one) {
    return is_program_allowed(patterns, name_of(one));
  };
  if (!is_for_process(pattern)) {
    return std::ranges::any_of(verdict.tree.unguarded, is_program) ||
           std::ranges::any_of(verdict.tree.unknown, is_program);
  }
  const auto is_named = [&](const auto& process) { return is_allowed(patterns, process.command); };
  return std::ranges::any_of(verdict.findings.processes, is_named) ||
         std::ranges::any_of(verdict.tree.seen, is_named) ||
         std::ranges::any_of(verdict.tree.unguarded, is_named);
}

/// Messages name code without the word that --allow needs before it.
std::string suggestion_for(const std::string& pattern, const Verdict& verdict) {
  if (!is_for_process(pattern)) return "";
  for (const std::string_view kind : {kLine, kLibrary}) {
    const std::string other = std::string(kind) + pattern;
    if (matches_something(other, verdict)) return "; did you mean " + in_quotes(other) + "?";
  }
  return "";
}

}  // namespace

void check_patterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool process = is_for_process(pattern);
    if (!pattern.empty() && (process || !pattern.ends_with(":"))) continue;
    throw Refusal(kRefused, "--allow " + in_quotes(pattern) +
                                " is not accepted (accepted: a pattern for a process, lib:PATTERN, "
                                "module:PATTERN, line:FILE:NUMBER, program:PATTERN)");
  }
}

bool is_allowed(const std::vector<std::string>& patterns, const Command& command) {
  std::vector<std::string_view> words = command.words();
  const size_t directories = words[0].size() - base_name(words[0]).size();
  std::string whole = command.text;
  std::replace(whole.begin(), whole.end(), '\0', ' ');
  const std::string wholes[] = {whole, whole.substr(directories)};
  if (command.is_cut) words.pop_back();
  std::vector<std::string> texts;
  for (const std::string_view word : words) {
    texts.emplace_back(word);
    texts.emplace_back(base_name(word));
  }
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const auto is_match = [&](const std::string& text) { return matches(pattern, text); };
    if (!is_for_process(pattern)) return false;
    if (std::ranges::any_of(texts, is_match)) return true;
    const bool takes_any_end = pattern.ends_with("*") && !pattern.ends_with("\\*");
    return (takes_any_end || !command.is_cut) && std::ranges::any_of(wholes, is_match);
  });
}

std::string pattern_of_program(std::string_view file) {
  return std::string(kProgram) + literal(base_name(file));
}

bool is_program_allowed(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (!pattern.starts_with(kProgram)) return false;
    const std::string rest = pattern.substr(kProgram.size());
    return matches(rest, name) || matches(rest, std::string(base_name(name)));
  });
}

bool is_code_allowed(const std::vector<std::string>& patterns, const CallSite& site) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const std::string rest = pattern.substr(std::min(pattern.size(), pattern.find(':') + 1));
    if (pattern.starts_with(kLibrary)) return matches(rest, site.library);
    if (pattern.starts_with(kModule)) return is_on_stack(rest, site);
    return pattern.starts_with(kLine) && is_line(rest, site);
  });
}

std::vector<std::string> patterns_for(const Verdict& verdict) {
  std::vector<std::string> patterns;
  for (const Place& place : verdict.findings.places) {
    if (!place.forbidden.empty()) add_place(patterns, verdict.findings, place);
  }
  for (const TreeTruth::Unguarded& process : verdict.tree.unguarded) {
    if (process.fails) add_program(patterns, process.command);
  }
  return patterns;
}

std::vector<std::string> unused_patterns(const Verdict& verdict) {
  std::vector<std::string> unused;
  for (const std::string& pattern : verdict.allow) {
    if (!matches_something(pattern, verdict)) {
      add_once(unused, "--allow " + in_quotes(pattern) + " matched no " +
                           (is_for_code(pattern)      ? "call"
                            : is_for_process(pattern) ? "process"
                                                      : "unguarded program") +
                           suggestion_for(pattern, verdict));
    }
  }
  return unused;
}

}  // namespace cudaguard::launcher
