// SPDX-License-Identifier: Apache-2.0
// The processes as a tree, each with its bar in time and a mark where it asked.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "shim/launcher/report/html.h"
#include "shim/launcher/report/model.h"

namespace cudaguard::launcher {

/// One toucher on the page.
struct Shown {
  size_t number = 0;           ///< 0: it has none
  std::set<size_t> forbidden;  ///< of its processes
};

/// A list, with its axis. `tree`: null where nobody has watched. Processes that look alike are one
/// row, which can be unfolded; how many were left out is said. `begin`, `end`: of the program.
Html timeline(const Findings& findings, const TreeTruth* tree, const std::vector<Shown>& touchers,
              double begin, double end);

}  // namespace cudaguard::launcher
