// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/filter.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "policy/nvidia_requests.h"
#include "shim/guard/text/beacon.h"

namespace cudaguard::launcher {

namespace {

static_assert(kThisArchitecture.ioctl == __NR_ioctl && kThisArchitecture.getpid == __NR_getpid);
static_assert(kThisArchitecture.openat == __NR_openat);
static_assert(kThisArchitecture.open_by_handle_at == __NR_open_by_handle_at);
static_assert(kThisArchitecture.execs[0] == __NR_execve);
static_assert(kThisArchitecture.execs[1] == __NR_execveat);

// Targets of a jump: the next instruction, or one of the two ends of the filter.
constexpr uint8_t kNext = 0;
constexpr uint8_t kBeyond = 0xfd;  // what follows the two ends
constexpr uint8_t kPass = 0xfe;
constexpr uint8_t kFence = 0xff;

constexpr uint32_t kNr = offsetof(seccomp_data, nr);
// Both architectures are little-endian. The upper half is ignored, as in the kernel.
constexpr uint32_t kRequest = offsetof(seccomp_data, args[1]);
constexpr uint32_t kFirstArgument = offsetof(seccomp_data, args[0]);
constexpr uint32_t kNoCall = ~0U;
// Older headers lack these. They are the same on every architecture.
constexpr uint32_t kIoUringSetup = 425;
constexpr uint32_t kIoUringRegister = 427;  // between the two: io_uring_enter
constexpr uint32_t kOpenat2 = 437;
constexpr uint32_t kUpperHalf = 0xffff0000;

sock_filter word(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter jump(uint16_t comparison, uint32_t value, uint8_t if_true, uint8_t if_false) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | BPF_K | comparison), value, if_true, if_false);
}

/// Adds the two ends, the second of which is `answer`, and sets the jumps to them.
std::vector<sock_filter> with_ends(std::vector<sock_filter> program, uint32_t answer) {
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, answer));
  const size_t fence = program.size() - 1;
  for (size_t i = 0; i < program.size(); ++i) {
    for (uint8_t* way : {&program[i].jt, &program[i].jf}) {
      if (*way == kBeyond) *way = static_cast<uint8_t>(fence - i);
      if (*way == kPass) *way = static_cast<uint8_t>(fence - 1 - i - 1);
      if (*way == kFence) *way = static_cast<uint8_t>(fence - i - 1);
    }
  }
  return program;
}

}  // namespace

std::vector<sock_filter> fence_filter(uint32_t answer, const Architecture& machine, bool execs) {
  const auto if_execs = [&](uint32_t number) { return execs ? number : kNoCall; };
  const bool listens = answer == SECCOMP_RET_USER_NOTIF;
  const auto type_and = [](uint32_t number) { return kNvidiaType << 8 | number; };
  // Nothing before the load of the ioctl's number depends on an argument. Linux 5.11 and later
  // therefore skip the filter for system calls that always pass.
  std::vector<sock_filter> program = {
      word(offsetof(seccomp_data, arch)),
      jump(BPF_JEQ, machine.architecture, 5, kNext),
      jump(BPF_JEQ, machine.older, kNext, kPass),
      word(kNr),
      jump(BPF_JEQ, if_execs(machine.execs[4]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[5]), kFence, kNext),
      jump(BPF_JEQ, machine.older_ioctl, 13, kPass),
      word(kNr),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~machine.x32_bit),
      jump(BPF_JEQ, machine.ioctl, 10, kNext),
      jump(BPF_JEQ, machine.x32_ioctl, 9, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[0]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[1]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[2]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[3]), kFence, kNext),
      jump(BPF_JEQ, listens ? machine.getpid : kNoCall, kNext, kPass),
      word(kFirstArgument),
      jump(BPF_JEQ, static_cast<uint32_t>(kBeaconMagic), kNext, kPass),
      word(kFirstArgument + sizeof(uint32_t)),
      jump(BPF_JEQ, static_cast<uint32_t>(kBeaconMagic >> 32), kFence, kPass),
      word(kRequest),
      jump(BPF_JEQ, kUvmInitialize, kFence, kNext),
      // The direction is in the uppermost bits, above the size: "at least" tests for both ways.
      jump(BPF_JGE, kBothWays << 30, kNext, kPass),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~kUpperHalf),
      jump(BPF_JGE, type_and(kFrontEnd.first), kNext, 1),
      jump(BPF_JGT, type_and(kFrontEnd.last), kPass, kFence),
      jump(BPF_JGE, type_and(kResourceManager.first), kNext, kPass),
      jump(BPF_JGT, type_and(kResourceManager.last), kPass, kNext),
      word(kRequest),
      jump(BPF_JGE, nvidia_request(0, kSmallestOfResourceManager) & kUpperHalf, kFence, kPass),
  };
  return with_ends(std::move(program), answer);
}

std::vector<sock_filter> open_filter(const std::vector<sock_filter>& others, bool openat2,
                                     const Architecture& machine) {
  constexpr uint32_t kThirdArgument = offsetof(seccomp_data, args[2]);
  std::vector<sock_filter> program = with_ends(
      {
          word(offsetof(seccomp_data, arch)),
          jump(BPF_JEQ, machine.architecture, 5, kNext),
          jump(BPF_JEQ, machine.older, kNext, kBeyond),
          word(kNr),
          jump(BPF_JEQ, machine.older_openat, 13, kNext),
          jump(BPF_JEQ, machine.older_open_by_handle_at, 12, kNext),
          jump(BPF_JEQ, machine.older_open, 9, 5),
          word(kNr),
          BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~machine.x32_bit),
          jump(BPF_JEQ, machine.openat, 8, kNext),
          jump(BPF_JEQ, machine.open_by_handle_at, 7, kNext),
          jump(BPF_JEQ, machine.open, 4, kNext),
          jump(BPF_JEQ, openat2 ? kNoCall : kOpenat2, 2, kNext),
          jump(BPF_JGE, kIoUringSetup, kNext, kBeyond),
          jump(BPF_JGT, kIoUringRegister, kBeyond, kNext),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
          word(kRequest),
          BPF_STMT(BPF_JMP | BPF_JA, 1),
          word(kThirdArgument),
          BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE),
          jump(BPF_JEQ, O_ACCMODE, kFence, kPass),
      },
      SECCOMP_RET_ERRNO | EACCES);
  program.insert(program.end(), others.begin(), others.end());
  return program;
}

}  // namespace cudaguard::launcher
