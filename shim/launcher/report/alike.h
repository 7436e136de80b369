// SPDX-License-Identifier: Apache-2.0
// Commands that differ in their numbers only: "worker.py --rank 3". Pure.
#pragma once

#include <string>

namespace cudaguard::launcher {

/// The same for all that are alike: '*' in place of each number.
std::string without_numbers(const std::string& command);
/// Of two that are alike: '*' in place of the numbers that differ.
std::string in_common(const std::string& a, const std::string& b);

}  // namespace cudaguard::launcher
