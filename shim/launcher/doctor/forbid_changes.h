// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard::launcher {

/// From now on this process and its children make, rename, remove and re-own no file, make no
/// device node and load no kernel module (EPERM), and gain no privilege by a setuid program: what a
/// driver does as root, and nvidia-modprobe for it. Returns 0, or errno where this kernel cannot.
int forbid_changes();

}  // namespace cudaguard::launcher
