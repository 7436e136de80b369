// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/decide.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"
#include "shim/launcher/options.h"

namespace cudaguard::launcher {

namespace {

/// False for a script of which no line is known: "cu.lsp".
bool has_number(std::string_view line) {
  const std::string_view number = tail(line, line.find_last_of(": ") + 1);
  return number.size() < line.size() && !number.empty() &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

constexpr int kAsked = 1;
constexpr int kProgramFailed = 2;
constexpr int kIncomplete = 3;

DriverApi asked_of(std::string_view word) {
  for (const DriverApi one : kDriverApis) {
    if (word == denied_word_of(one)) return one;
  }
  throw Refusal(kRefused, "--deny " + in_quotes(word) +
                              " is not accepted (accepted: " + kDeniedWords + ")" +
                              (word == "cuda" || word == "CUDA" ? "; did you mean init?" : ""));
}

}  // namespace

std::set<DriverApi> denied_words(const std::vector<std::string>& lists) {
  std::set<DriverApi> result;
  for (const std::string& list : lists) {
    std::string_view rest = list;
    for (bool last = false; !last;) result.insert(asked_of(take_entry(rest, last)));
  }
  if (result.empty()) result.insert(DriverApi::kCuda);
  return result;
}

namespace {

/// True if the call site is in PyTorch, which caches the answer.
bool is_torch(const CallSite& site) {
  return site.library == "libc10_cuda.so" || site.library.starts_with("libtorch");
}

/// CUDA's runtime calls the driver for its own caller, a different call site at the same place.
/// Returns the processes in which all of these callers are allowed.
std::set<size_t> runtime_may(const Verdict& verdict, const Place& place) {
  std::set<size_t> may;
  std::set<size_t> may_not;
  for (const size_t number : place.sites) {
    const CallSite& site = verdict.findings.sites[number];
    if (!site.counts || site.passes_on) continue;
    (is_code_allowed(verdict.allow, site) ? may : may_not)
        .insert(site.processes.begin(), site.processes.end());
  }
  for (const size_t process : may_not) may.erase(process);
  return may;
}

void decide_place(Verdict& verdict, Place& place) {
  place.counts = false;
  std::set<size_t> forbidden;
  const std::set<size_t> with_caller = runtime_may(verdict, place);
  for (const size_t number : place.sites) {
    CallSite& site = verdict.findings.sites[number];
    place.counts |= site.counts;
    if (!site.counts || is_code_allowed(verdict.allow, site)) continue;
    for (const size_t process : site.processes) {
      if (site.passes_on && with_caller.contains(process)) continue;
      if (is_allowed(verdict.allow, verdict.findings.processes[process].command)) continue;
      site.forbidden.push_back(process);
    }
    forbidden.insert(site.forbidden.begin(), site.forbidden.end());
  }
  place.forbidden.assign(forbidden.begin(), forbidden.end());
  if (place.forbidden.empty()) return;
  ++verdict.places;
  if (has_number(place.line)) ++verdict.lines;
}

void decide_places(Verdict& verdict) {
  verdict.torch_asked = false;
  for (CallSite& site : verdict.findings.sites) {
    site.forbidden.clear();
    site.counts = verdict.deny.contains(site.asked);
    verdict.torch_asked |= site.counts && is_torch(site);
  }
  group_by_place(verdict.findings);
  verdict.places = verdict.lines = 0;
  for (Place& place : verdict.findings.places) decide_place(verdict, place);
}

/// Without /proc a process does not know its command, but the launcher may have seen it. Otherwise
/// its own record is right: the launcher may have seen what ran before execve.
const Command& command_of(const Verdict& verdict, const ObservedProcess& process) {
  if (!process.command.text.empty() && process.command.text != "?") return process.command;
  const auto& all = verdict.tree.seen;
  const auto seen = std::find_if(all.begin(), all.end(), [&](const TreeTruth::Seen& one) {
    return one.pid == process.pid && one.since == process.since;
  });
  return seen == all.end() ? process.command : seen->command;
}

/// Returns the name of the first of the libraries that --deny names, or an empty string. A context
/// is CUDA's.
std::string first_denied(const Verdict& verdict, const std::set<DriverApi>& libraries) {
  const auto one = std::find_if(libraries.begin(), libraries.end(), [&](DriverApi asked) {
    return verdict.deny.contains(asked) || (asked == DriverApi::kCuda && verdict.queries());
  });
  return one == libraries.end() ? "" : std::string(name_of(*one));
}

/// Returns why a process whose guard cannot work is not guarded, or an empty string.
std::string why_unguarded(const TreeTruth& tree, const ObservedProcess& process) {
  const auto one = std::find_if(tree.unguarded.begin(), tree.unguarded.end(), [&](const auto& any) {
    return any.pid == process.pid && any.since == process.since;
  });
  return process.not_loaded.empty() || one == tree.unguarded.end() ? "" : one->reason;
}

/// How the user can get the guard into a program, with a comma; empty if there is no simple way.
std::string_view remedy_for(std::string_view reason) {
  constexpr std::pair<std::string_view, std::string_view> kRemedies[] = {
      {"its environment", "keep cudaguard's variables in its environment, "},
      {"its LD_PRELOAD", "keep cudaguard's variables in its environment, "},
      {"static", "link it dynamically with glibc, "},
      {"musl", "build it for glibc, "}};
  const auto* const found = std::ranges::find_if(
      kRemedies, [reason](const auto& row) { return reason.starts_with(row.first); });
  return found == std::end(kRemedies) ? "" : found->second;
}

/// Adds what the records themselves say about missing attempts.
void add_doubts(Verdict& verdict) {
  const Findings& found = verdict.findings;
  if (const uint64_t damaged = found.torn + found.not_understood; damaged != 0) {
    verdict.tree.doubts.push_back(counted(damaged, "record") +
                                  (damaged == 1 ? " is damaged" : " are damaged"));
  }
  for (const ObservedProcess& process : verdict.findings.processes) {
    const bool in_vain = verdict.queries() && process.in_vain && !process.initialised;
    if (!process.last_place && process.not_loaded.empty() && process.exposed.empty() && !in_vain) {
      continue;
    }
    const Command& command = command_of(verdict, process);
    const std::string program(command.program());
    const std::string name = program + " (" + std::to_string(process.pid) + ") ";
    std::vector<std::string>& doubts = verdict.tree.doubts;
    if (process.last_place) doubts.push_back(name + "asked from more places than a guard records");
    if (is_allowed(verdict.allow, command)) continue;
    if (in_vain && process.not_loaded.empty()) {
      std::string what = *(process.tried.empty() ? process.refused : process.tried).front();
      // Without the details, it is not known whether the call was refused.
      if (process.tried.empty() && what.find(" or the like") == std::string::npos) {
        what.insert(0, "was refused ");
      }
      doubts.push_back(name + "got no CUDA (" + what + "), so it could make no context");
    }
    const std::string why = why_unguarded(verdict.tree, process);
    if (const std::string library = first_denied(verdict, process.not_loaded);
        !library.empty() && !why.empty()) {
      doubts.push_back(name + "asked for NVIDIA's " + library + " library, and is not guarded: ");
      const std::string_view remedy = remedy_for(why);
      doubts.back().append(why).append("; ").append(remedy);
      doubts.back().append(remedy.empty() ? "to accept" : "or accept").append(" this: --allow ");
      doubts.back().append(shell_quoted(program));
    } else if (!library.empty()) {
      doubts.push_back(name + "was refused NVIDIA's ");
      doubts.back().append(library).append(" library, because a file of cudaguard cannot be used");
    }
    if (const std::string library = first_denied(verdict, process.exposed); !library.empty()) {
      doubts.push_back(name + "could call NVIDIA's ");
      doubts.back().append(library).append(
          " library by dlsym, because the guard could not change the library's symbols");
    }
  }
}

/// True if the file of a program names the driver, which could be used unseen. No fence reports the
/// ioctls if queries may pass.
bool may_be_unseen(const Verdict& verdict, const TreeTruth::Unguarded& program) {
  return program.names_nvidia && (!verdict.ioctls_tell || verdict.queries());
}

/// Sets what a started program that no guard was in means for the result.
void decide_program(const Verdict& verdict, bool is_known, TreeTruth::Unguarded& program) {
  const bool denied = !program.only_nvml || verdict.deny.contains(DriverApi::kNvml);
  const bool may_ask = is_allowed(verdict.allow, program.command);
  // With --deny=context, it may only have queried the driver.
  const bool may_query = verdict.queries() && !program.only_nvml;
  program.fails = program.has_driver && denied && !may_ask && !may_query;
  const bool seen = std::ranges::any_of(verdict.findings.processes, [&](const auto& one) {
    return one.pid == program.pid && one.since == program.since && !one.not_loaded.empty();
  });
  const bool unseen =
      (program.has_driver && may_query) || (may_be_unseen(verdict, program) && !seen);
  program.in_doubt = !program.fails && !may_ask && (!is_known || verdict.strict || unseen) &&
                     !is_program_allowed(verdict.allow, name_of(program));
}

/// Why the programs of this group are in doubt, and what the user can do.
std::string doubt_of(const Verdict& verdict, const ProgramGroup& group) {
  const TreeTruth::Unguarded& program = *group.first;
  const std::string name = name_of(program);
  const std::string accept = " it: --allow " + shell_quoted(pattern_of_program(name));
  if (!group.known) return name + " may not be guarded; to accept" + accept;
  std::string text = name + " is not guarded";
  std::string remedy(remedy_for(program.reason));
  if (program.has_driver && !program.only_nvml && verdict.queries()) {
    text += ", and it has the driver open, so it may have made a context unseen";
  } else if (may_be_unseen(verdict, program)) {
    text += ", and its file names NVIDIA's driver, so it may have asked unseen";
    if (!verdict.devices_fenced && !verdict.queries())
      remedy += "run verify on a machine with a GPU, ";
  } else {
    text += " (--strict)";
  }
  return text + "; " + remedy + (remedy.empty() ? "to accept" : "or accept") + accept;
}

void add_program_doubts(Verdict& verdict) {
  constexpr size_t kMost = 5;
  size_t count = 0;
  for (const ProgramGroup& group : groups_of(verdict.tree)) {
    if (!group.first->in_doubt || ++count > kMost) continue;
    verdict.tree.doubts.push_back(doubt_of(verdict, group));
  }
  if (count <= kMost) return;
  verdict.tree.doubts.push_back("more programs in doubt: " + grouped(count - kMost));
}

}  // namespace

void decide(Verdict& verdict) {
  TreeTruth& tree = verdict.tree;
  using Key = std::pair<uint32_t, uint64_t>;  // process ids are reused
  std::set<Key> all;
  std::set<Key> heard;
  std::set<Key> asked;
  std::set<Key> allowed;
  const auto& processes = verdict.findings.processes;
  for (const ObservedProcess& process : processes) {
    all.insert(Key(process.pid, process.since));
    // A forked child sends no start beacon.
    const bool has_started = process.since != 0 && !process.policy.empty();
    if (has_started || process.by_guard) {
      heard.insert(Key(process.pid, process.since));
    }
  }
  for (const TreeTruth::Seen& process : tree.seen) {
    all.insert(Key(process.pid, process.since));
    if (process.heard) heard.insert(Key(process.pid, process.since));
  }
  add_doubts(verdict);
  decide_places(verdict);
  for (const CallSite& site : verdict.findings.sites) {
    if (!site.counts) continue;
    for (const size_t number : site.processes) {
      allowed.insert(Key(processes[number].pid, processes[number].since));
    }
    for (const size_t number : site.forbidden) {
      asked.insert(Key(processes[number].pid, processes[number].since));
    }
  }
  for (const ObservedProcess& process : processes) {
    if (!why_unguarded(tree, process).empty()) heard.erase(Key(process.pid, process.since));
  }
  // Unlike other doubts, this one is not accepted by --allow-incomplete.
  bool strict = verdict.strict && tree.value == TreeTruth::Value::kNotWatched;
  if (strict) tree.doubts.emplace_back("the started programs are not known (--strict)");
  for (auto* programs : {&tree.unguarded, &tree.unknown}) {
    for (TreeTruth::Unguarded& program : *programs) {
      const Key key(program.pid, program.since);
      all.insert(key);
      decide_program(verdict, programs == &tree.unguarded, program);
      if (program.fails) asked.insert(key);
      strict |= verdict.strict && program.in_doubt;
    }
  }
  add_program_doubts(verdict);
  for (const Key& process : asked) allowed.erase(process);
  verdict.processes = all.size();
  verdict.heard = heard.size();
  verdict.asked = asked.size();
  verdict.allowed = allowed.size();
  using Result = Verdict::Result;
  const bool failed = !asked.empty() || verdict.status != 0;
  const bool in_doubt = strict || (verdict.is_in_doubt() && !verdict.allow_incomplete);
  verdict.result = failed ? Result::kFail : in_doubt ? Result::kIncomplete : Result::kPass;
  verdict.exit_code = !asked.empty()        ? kAsked
                      : verdict.status != 0 ? kProgramFailed
                      : in_doubt            ? kIncomplete
                                            : 0;
  using Value = TreeTruth::Value;
  if (tree.value != Value::kNotWatched) {
    tree.value = !tree.unguarded.empty() ? Value::kUnguarded
                 : !tree.unknown.empty() ? Value::kUnknown
                                         : Value::kAllGuarded;
  }
}

}  // namespace cudaguard::launcher
