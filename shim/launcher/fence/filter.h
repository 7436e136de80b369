// SPDX-License-Identifier: Apache-2.0
// The seccomp filter. It examines the number of every ioctl, and with a listener also the first
// argument of getpid, which marks a beacon (shim/guard/text/beacon.h). A listener may get every
// execve, too.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <vector>

namespace cudaguard::launcher {

/// The numbers of execve and execveat in an architecture, in x32 (without x32: again those), and in
/// the older architecture.
using Execs = std::array<uint32_t, 6>;

/// An architecture, its older one whose programs it also runs, and the numbers of ioctl there.
struct Architecture {
  uint32_t architecture;  ///< AUDIT_ARCH_*
  uint32_t ioctl;
  uint32_t older;
  uint32_t older_ioctl;
  /// x32 reports itself as x86-64: its ioctl number, and the bit that its numbers have. Kernels
  /// differ in which table that bit means, so the filter matches both ioctl numbers with and
  /// without the bit. Without x32: ioctl, 0.
  uint32_t x32_ioctl;
  uint32_t x32_bit;
  uint32_t getpid;
  uint32_t open;  ///< without an open: openat
  uint32_t openat;
  uint32_t open_by_handle_at;
  uint32_t older_open;
  uint32_t older_openat;
  uint32_t older_open_by_handle_at;
  Execs execs;
};
inline constexpr Execs kX86Execs = {59, 322, 520, 545, 11, 358};
inline constexpr Execs kArmExecs = {221, 281, 221, 281, 11, 387};
inline constexpr Architecture kX86 = {
    AUDIT_ARCH_X86_64, 16, AUDIT_ARCH_I386, 54, 514, 0x40000000, 39, 2, 257, 304, 5, 295, 342,
    kX86Execs};
inline constexpr Architecture kArm = {
    AUDIT_ARCH_AARCH64, 29, AUDIT_ARCH_ARM, 54, 29, 0, 172, 56, 56, 265, 5, 322, 371, kArmExecs};
#if defined(__x86_64__)
inline constexpr Architecture kThisArchitecture = kX86;
#elif defined(__aarch64__)
inline constexpr Architecture kThisArchitecture = kArm;
#endif

/// `refusal` is SECCOMP_RET_ERRNO with an error, or SECCOMP_RET_USER_NOTIF. It applies to every
/// ioctl that is_nvidia_request() knows, from all programs that the machine runs.
/// SECCOMP_RET_USER_NOTIF applies to beacons as well, and with `execs` to execve and execveat. All
/// other calls pass; without `ioctls`, every ioctl, too, but that of a guard (kGuardsRequest).
/// Pure.
std::vector<sock_filter> fence_filter(uint32_t refusal,
                                      const Architecture& machine = kThisArchitecture,
                                      bool execs = false, bool ioctls = true);

/// Refuses the access mode 3, which is neither reading nor writing, so that Landlock lets it
/// through. A filter cannot read it in the queue of io_uring or in the structure of openat2, so it
/// answers ENOSYS to them, as an older kernel. A ring that a process outside has made can even open
/// files with that process's rights. With `openat2`, this call passes: newer programs, such as
/// Fedora 44's tar, cannot do without it. `others` answers all other calls, because one filter
/// costs less than two. Pure.
std::vector<sock_filter> open_filter(const std::vector<sock_filter>& others, bool openat2,
                                     const Architecture& machine = kThisArchitecture);

}  // namespace cudaguard::launcher
