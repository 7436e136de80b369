// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/page.h"

namespace cudaguard::launcher {

std::string page(const Verdict& verdict) { return page(verdict.findings, ""); }

std::string page(const Findings& /*findings*/, const std::string& /*title*/) { return {}; }

}  // namespace cudaguard::launcher
