// SPDX-License-Identifier: Apache-2.0
// The beacon: how a guard tells a launcher that listens of a touch, where a file may be lost. It is
// a system call that nothing refuses and that does nothing, getpid with arguments: the seccomp
// filter of `cudaguard verify` hands those with the magic number to the launcher. Nobody listens:
// the answer is the process's number.
#pragma once

#include <cstdint>

namespace cudaguard {

/// First argument, which getpid does not have. The second says what happened, the third is the
/// caller's return address, the fourth a BeaconMessage or 0.
inline constexpr uint64_t kBeaconMagic = 0x63756461'67756172;  // "cudaguar"
/// The listener's answer, as errno: ENOTUNIQ, which no filter of a sandbox gives.
inline constexpr int kHeard = 76;

/// What a process tells first: this alone counts as a touch. The message that follows says more.
enum class Beacon : uint64_t { kStart = 1, kCuda, kNvml, kOpenCl, kAllowed };

/// What the thread that waits has in its memory. Of these registers its stack can be followed.
struct BeaconMessage {
#if defined(__x86_64__)
  static constexpr int kRegisters = 8;  ///< rip rsp rbp rbx r12 r13 r14 r15
#else
  static constexpr int kRegisters = 14;  ///< pc sp x19 to x30
#endif
  uint64_t text;    ///< the address of a record, as a report has it
  uint64_t length;  ///< in bytes
  uint64_t registers[kRegisters];
};

}  // namespace cudaguard
