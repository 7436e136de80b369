// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>

#include "policy/nvidia_requests.h"

namespace cudaguard::launcher {

namespace {

#if defined(__x86_64__)
constexpr uint32_t kNative = AUDIT_ARCH_X86_64;
constexpr uint32_t kOlder = AUDIT_ARCH_I386;
constexpr uint32_t kX32Bit = 0x40000000;  // in the number; kernels differ in which table it means
constexpr uint32_t kX32Ioctl = 514;
#elif defined(__aarch64__)
constexpr uint32_t kNative = AUDIT_ARCH_AARCH64;
constexpr uint32_t kOlder = AUDIT_ARCH_ARM;
constexpr uint32_t kX32Bit = 0;
constexpr uint32_t kX32Ioctl = __NR_ioctl;
#endif
constexpr uint32_t kOlderIoctl = 54;

// Where a jump goes: to the next one, or out of here.
constexpr uint8_t kNext = 0;
constexpr uint8_t kPass = 0xfe;
constexpr uint8_t kFence = 0xff;

constexpr uint32_t kLow = offsetof(seccomp_data, args[1]);  // little-endian

}  // namespace

std::vector<sock_filter> fence_filter(uint32_t answer) {
  const auto word = [](uint32_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
  };
  const auto jump = [](uint16_t comparison, uint32_t value, uint8_t if_true, uint8_t if_false) {
    return sock_filter BPF_JUMP(static_cast<uint16_t>(BPF_JMP | BPF_K | comparison), value, if_true,
                                if_false);
  };
  const auto request = [](NumberRange range, bool first) {
    return kNvidiaType << 8 | (first ? range.first : range.last);
  };
  constexpr uint32_t kNr = offsetof(seccomp_data, nr);
  // Up to the load of the request there is nothing that depends on an argument: so the kernel knows
  // once and for all which system calls always pass (Linux 5.11 and later), and asks no more.
  std::vector<sock_filter> program = {
      word(offsetof(seccomp_data, arch)),
      jump(BPF_JEQ, kNative, 3, kNext),
      jump(BPF_JEQ, kOlder, kNext, kPass),
      word(kNr),
      jump(BPF_JEQ, kOlderIoctl, 4, kPass),
      word(kNr),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~kX32Bit),
      jump(BPF_JEQ, __NR_ioctl, 1, kNext),
      jump(BPF_JEQ, kX32Ioctl, kNext, kPass),
      // The upper half of the argument is not looked at: nor does the kernel.
      word(kLow),
      jump(BPF_JEQ, kUvmInitialize, kFence, kNext),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 30),
      jump(BPF_JEQ, kOnlyWrites, kPass, kNext),
      jump(BPF_JEQ, kOnlyReads, kPass, kNext),
      word(kLow),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
      jump(BPF_JGE, request(kResourceManager, true), kNext, kPass),
      jump(BPF_JGT, request(kResourceManager, false), kNext, kFence),
      jump(BPF_JGE, request(kFrontEnd, true), kNext, kPass),
      jump(BPF_JGT, request(kFrontEnd, false), kPass, kFence),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, answer),
  };
  const size_t fence = program.size() - 1;
  for (size_t i = 0; i < program.size(); ++i) {
    for (uint8_t* way : {&program[i].jt, &program[i].jf}) {
      if (*way == kPass) *way = static_cast<uint8_t>(fence - 1 - i - 1);
      if (*way == kFence) *way = static_cast<uint8_t>(fence - i - 1);
    }
  }
  return program;
}

}  // namespace cudaguard::launcher
