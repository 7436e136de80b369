// SPDX-License-Identifier: Apache-2.0
// What a "#!/usr/bin/env ..." line makes of its words (coreutils env.c). Pure.
#pragma once

#include <string>
#include <string_view>

namespace cudaguard::launcher {

/// The program that `env ARGUMENT` starts: "python3", or of "-S VAR=x python3 -u". Empty: not that
/// simple.
std::string started_by_env(std::string_view argument);

/// Does it start it without our LD_PRELOAD: "-S -i", "-S LD_PRELOAD= python3"?
bool env_takes_preload(std::string_view argument);

}  // namespace cudaguard::launcher
