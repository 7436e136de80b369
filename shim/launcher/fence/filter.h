// SPDX-License-Identifier: Apache-2.0
// The seccomp filter: of all system calls it looks at ioctl alone, and of those at the request.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace cudaguard::launcher {

/// `answer`: SECCOMP_RET_ERRNO with an error, or SECCOMP_RET_USER_NOTIF, for every request that
/// is_nvidia_request() knows, from programs of this architecture and its older ones (x86-64, x32,
/// i386; AArch64, 32-bit Arm). Whatever else is asked goes on. Pure.
std::vector<sock_filter> fence_filter(uint32_t answer);

}  // namespace cudaguard::launcher
