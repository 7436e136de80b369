// SPDX-License-Identifier: Apache-2.0
// The beacon: a system call by which a guard reports a CUDA attempt to the launcher. It is getpid
// with arguments, because sandboxes allow that call. The seccomp filter of `cudaguard verify` hands
// a call with the magic number to the launcher. Without a listener the call returns the process id.
#pragma once

#include <cstdint>

namespace cudaguard {

/// The first argument. The second is a Beacon, the fourth the address of a BeaconMessage or 0. The
/// third is the caller's return address, or for kStart the process's Policy plus 1, so that a start
/// can be counted without a look at the process's memory.
inline constexpr uint64_t kBeaconMagic = 0x63756461'67756172;  // "cudaguar"
/// The listener's answer, an errno value: ENOTUNIQ, because no known sandbox answers with it.
inline constexpr int kHeard = 76;

/// The kind of event. A first beacon without a message announces it, and that alone counts as an
/// attempt under verify. A second beacon carries the message, or withdraws the announcement.
enum class Beacon : uint64_t {
  kStart = 1,
  kCuda,
  kNvml,
  kOpenCl,
  kAllowed,
  kWithdrawn,  ///< this thread's announced attempt is recorded, or was reported before
  kRefused,    ///< a file of cudaguard could not be used, so the guard has refused a load
  kExposed,    ///< look-ups by dlsym may find the functions of NVIDIA's library
  kContext,    ///< a context was allowed
  kNoContext,  ///< a context was refused
};

/// Lies in the memory of the calling thread. The launcher unwinds the stack from the registers.
struct BeaconMessage {
#if defined(__x86_64__)
  static constexpr int kRegisters = 8;  ///< rip rsp rbp rbx r12 r13 r14 r15
#else
  static constexpr int kRegisters = 14;  ///< pc sp x19 to x30
#endif
  uint64_t text;    ///< the address of one record of the report format
  uint64_t length;  ///< in bytes
  uint64_t registers[kRegisters];
};

}  // namespace cudaguard
