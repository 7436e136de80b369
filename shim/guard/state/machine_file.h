// SPDX-License-Identifier: Apache-2.0
// The machine's file, /etc/cudaguard.conf, with the files of /etc/cudaguard.conf.d. It counts only
// if root alone can write it. A process reads it once, when it is made ready, and what its rules
// say holds for its forked children, too. No lock, no malloc; thread-safe, async-signal-safe.
#pragma once

#include "policy/decision.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns what the file says about this process; null if there is no file. The launcher's probe
/// has none, because it asks about the driver, for programs to which the file may allow CUDA.
const MachineRuling* machine_ruling();

/// decide() with the facts that the rules of the environment ask for, and with the file. A forked
/// child keeps what these rules have given its parent, although its command line, user or cgroup
/// may be another one.
Decision decide_with_rules(const Environment& environment, const ProcessIdentity& process);

}  // namespace cudaguard
