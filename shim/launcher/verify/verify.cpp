// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/verify/verify.h"

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

int verify(const Options& /*options*/, const char* const* /*environment*/) {
  throw Refusal(kRefused, "verify: not built yet");
}

}  // namespace cudaguard::launcher
