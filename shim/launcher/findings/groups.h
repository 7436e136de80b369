// SPDX-License-Identifier: Apache-2.0
// The findings counted by program, user, host, job or line. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

enum class By : uint8_t { kExe, kUser, kHost, kJob, kLine };
struct ByWord {
  std::string_view word;
  By by;
};
inline constexpr ByWord kByWords[] = {{"exe", By::kExe},
                                      {"user", By::kUser},
                                      {"host", By::kHost},
                                      {"job", By::kJob},
                                      {"line", By::kLine}};

struct Group {
  /// A program's path, a uid, a host, a job; a line with its file's path, or the library that asked
  /// where no line is known. Empty: the records do not say it.
  std::string name;
  size_t processes = 0;
  size_t touching = 0;        ///< of these
  std::set<DriverApi> asked;  ///< by these
  double first = 0;           ///< seconds since 1970-01-01 UTC; 0: not known
  double last = 0;
};

/// Those with the most touching processes first. Of lines: those that asked, and no others.
std::vector<Group> groups_of(const Findings& findings, By by);

/// Fills Findings::places, as --by line has them.
void group_by_place(Findings& findings);

/// Leaves each process once, in the order of their numbers, with its first time.
void keep_first(std::vector<size_t>& processes, std::vector<double>& at);

}  // namespace cudaguard::launcher
