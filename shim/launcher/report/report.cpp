// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/report.h"

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

int report(const Options& /*options*/) { throw Refusal(kRefused, "report: not built yet"); }

}  // namespace cudaguard::launcher
