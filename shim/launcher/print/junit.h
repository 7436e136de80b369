// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// One test suite with the same three tests each time. `text` is the text report (text.h).
std::string junit_of(const Verdict& verdict, const std::string& text);

}  // namespace cudaguard::launcher
