// SPDX-License-Identifier: Apache-2.0
// The seccomp filter. It examines the request of every ioctl, and with a listener also the first
// argument of getpid, which marks a beacon (policy/beacon.h).
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace cudaguard::launcher {

/// An architecture, the older one whose programs it runs too, and the numbers that ioctl has there.
struct Machine {
  uint32_t architecture;  ///< AUDIT_ARCH_*
  uint32_t ioctl;
  uint32_t older;
  uint32_t older_ioctl;
  /// Of x32, which says that it is x86-64: its number, and the bit that its numbers have. Kernels
  /// differ in which table that bit means, so both numbers are ioctl's with it and without. Where
  /// there is none: ioctl, 0.
  uint32_t x32_ioctl;
  uint32_t x32_bit;
  uint32_t getpid;
};
inline constexpr Machine kX86 = {AUDIT_ARCH_X86_64, 16, AUDIT_ARCH_I386, 54, 514, 0x40000000, 39};
inline constexpr Machine kArm = {AUDIT_ARCH_AARCH64, 29, AUDIT_ARCH_ARM, 54, 29, 0, 172};
#if defined(__x86_64__)
inline constexpr Machine kThisMachine = kX86;
#elif defined(__aarch64__)
inline constexpr Machine kThisMachine = kArm;
#endif

/// `answer`: SECCOMP_RET_ERRNO with an error, or SECCOMP_RET_USER_NOTIF, for every request that
/// is_nvidia_request() knows, from all programs that the machine runs; SECCOMP_RET_USER_NOTIF
/// applies to beacons as well. Whatever else is asked goes on. Pure.
std::vector<sock_filter> fence_filter(uint32_t answer, const Machine& machine = kThisMachine);

}  // namespace cudaguard::launcher
