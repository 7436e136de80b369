// SPDX-License-Identifier: Apache-2.0
// Interprets the words of a "#!/usr/bin/env ..." line (coreutils env.c). Pure.
#pragma once

#include <string>
#include <string_view>

namespace cudaguard::launcher {

/// The program that `env ARGUMENT` starts: "python3", also for "-S VAR=x python3 -u". Empty if the
/// line is not that simple.
std::string started_by_env(std::string_view argument);

/// True if env removes our LD_PRELOAD: "-S -i", "-S LD_PRELOAD= python3".
bool env_takes_preload(std::string_view argument);

}  // namespace cudaguard::launcher
