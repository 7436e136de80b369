// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/machine.h"

namespace cudaguard::launcher {

MachineReport examine_machine(const Installation&, const Variables&) { return {}; }

}  // namespace cudaguard::launcher
