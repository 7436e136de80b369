// SPDX-License-Identifier: Apache-2.0
// The findings counted by program, user, host, job, rule or line, or by two of these, and the
// started programs that are alike. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policy/driver_api.h"
#include "shim/launcher/findings/verdict.h"

namespace cudaguard::launcher {

enum class By : uint8_t { kExe, kUser, kHost, kJob, kRule, kLine };
struct ByWord {
  std::string_view word;
  By by;
};
inline constexpr ByWord kByWords[] = {{"exe", By::kExe}, {"user", By::kUser}, {"host", By::kHost},
                                      {"job", By::kJob}, {"rule", By::kRule}, {"line", By::kLine}};

/// One or two.
using Keys = std::vector<ByWord>;
/// "job,line"
std::string text_of(const Keys& keys);

struct Group {
  /// A program's path, a user's name or uid, a host, a job, a rule, or a line with its file's path.
  /// If the line is unknown, the calling library. Empty if the records do not have the name.
  std::string name;
  std::optional<std::string> second;  ///< the same for the second key, if there is one
  size_t processes = 0;
  size_t asking = 0;          ///< how many of these have asked()
  std::set<DriverApi> asked;  ///< what these processes asked for
  double first = 0;           ///< seconds since 1970-01-01 UTC; 0: unknown
  double last = 0;
};

/// Sorted by the number of asking processes, largest first. Lists only lines with an attempt.
std::vector<Group> groups_of(const Findings& findings, By by);
/// With two keys: for each pair of values.
std::vector<Group> groups_of(const Findings& findings, const Keys& keys);

/// Started programs that are alike: the same file, with the same reason and the same result.
struct ProgramGroup {
  const TreeTruth::Unguarded* first = nullptr;
  size_t starts = 0;
  bool known = true;  ///< to be unguarded
};

/// The unguarded programs, then those of unknown kind. Of each kind, those that fail come first,
/// then those in doubt, then those with the most starts.
std::vector<ProgramGroup> groups_of(const TreeTruth& tree);

/// "./stat", or the name of the process if its file is not known.
std::string name_of(const TreeTruth::Unguarded& program);

/// Fills Findings::places with the groups of --by line.
void group_by_place(Findings& findings);

/// Keeps each process once, in the order of their numbers, with its first time.
void keep_first(std::vector<size_t>& processes, std::vector<double>& at);

}  // namespace cudaguard::launcher
