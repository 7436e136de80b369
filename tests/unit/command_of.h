// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "shim/launcher/findings/command.h"

namespace cudaguard::launcher {

/// The command of a text whose words have no blanks.
inline Command command_of(std::string words) {
  std::replace(words.begin(), words.end(), ' ', '\0');
  return {words};
}

}  // namespace cudaguard::launcher
