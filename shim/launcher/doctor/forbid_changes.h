// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard::launcher {

/// From now on this process and its children make no device node, load no kernel module or other
/// kernel, mount nothing, set neither clock nor names, and make, rename, remove, re-own and re-mark
/// no file (EPERM): what a driver does as root, and nvidia-modprobe for it; a setuid program gains
/// nothing. No sandbox: they may still open(O_CREAT), write and truncate ordinary files (a driver
/// keeps caches below ~/.nv), bind sockets, and talk to devices and other processes. False: this
/// kernel cannot.
bool forbid_changes();

}  // namespace cudaguard::launcher
