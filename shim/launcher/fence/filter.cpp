// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/filter.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

#include "policy/nvidia_requests.h"
#include "shim/guard/text/beacon.h"
#include "shim/launcher/fence/labels.h"

namespace cudaguard::launcher {

namespace {

static_assert(kThisArchitecture.ioctl == __NR_ioctl && kThisArchitecture.getpid == __NR_getpid);
static_assert(kThisArchitecture.openat == __NR_openat);
static_assert(kThisArchitecture.open_by_handle_at == __NR_open_by_handle_at);
static_assert(kThisArchitecture.execs[0] == __NR_execve);
static_assert(kThisArchitecture.execs[1] == __NR_execveat);

// Where the answer is known.
constexpr std::string_view kPass = "pass";
constexpr std::string_view kFence = "fence";

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

}  // namespace

std::vector<sock_filter> fence_filter(uint32_t refusal, const Architecture& machine, bool execs,
                                      bool ioctls) {
  const auto if_execs = [&](uint32_t number) { return execs ? number : kNoCall; };
  const auto if_ioctls = [&](uint32_t number) { return ioctls ? number : kNoCall; };
  const bool listens = refusal == SECCOMP_RET_USER_NOTIF;
  const uint32_t own_ioctl = ioctls || listens ? machine.ioctl : kNoCall;
  const auto type_and = [](uint32_t number) { return kNvidiaType << 8 | number; };
  // Nothing before the load of the ioctl's number depends on an argument. Linux 5.11 and later
  // therefore skip the filter for system calls that always pass.
  std::vector<FilterLine> lines = {
      word(offsetof(seccomp_data, arch)),
      jump(BPF_JEQ, machine.architecture, "this architecture", kNext),
      jump(BPF_JEQ, machine.older, kNext, kPass),
      word(kNr),
      jump(BPF_JEQ, if_execs(machine.execs[4]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[5]), kFence, kNext),
      jump(BPF_JEQ, if_ioctls(machine.older_ioctl), "ioctl", kPass),
      label("this architecture"),
      word(kNr),
      keep_bits(~machine.x32_bit),
      jump(BPF_JEQ, own_ioctl, "ioctl", kNext),
      jump(BPF_JEQ, if_ioctls(machine.x32_ioctl), "ioctl", kNext),
      jump(BPF_JEQ, if_execs(machine.execs[0]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[1]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[2]), kFence, kNext),
      jump(BPF_JEQ, if_execs(machine.execs[3]), kFence, kNext),
      jump(BPF_JEQ, listens ? machine.getpid : kNoCall, kNext, kPass),
      word(kFirstArgument),
      jump(BPF_JEQ, static_cast<uint32_t>(kBeaconMagic), kNext, kPass),
      word(kFirstArgument + sizeof(uint32_t)),
      jump(BPF_JEQ, static_cast<uint32_t>(kBeaconMagic >> 32), kFence, kPass),
  };
  const std::vector<FilterLine> nvidias = {
      label("ioctl"),
      word(kRequest),
      jump(BPF_JEQ, kUvmInitialize, kFence, kNext),
      // The direction is in the uppermost bits, above the size: "at least" tests for both ways.
      jump(BPF_JGE, kBothWays << 30, kNext, kPass),
      keep_bits(~kUpperHalf),
      jump(BPF_JGE, type_and(kFrontEnd.first), kNext, "resource manager"),
      jump(BPF_JGT, type_and(kFrontEnd.last), kPass, kFence),
      label("resource manager"),
      jump(BPF_JGE, type_and(kResourceManager.first), kNext, kPass),
      jump(BPF_JGT, type_and(kResourceManager.last), kPass, kNext),
      word(kRequest),
      jump(BPF_JGE, nvidia_request(0, kSmallestOfResourceManager) & kUpperHalf, kFence, kPass),
  };
  const std::vector<FilterLine> guards = {
      label("ioctl"),
      word(kFirstArgument),
      jump(BPF_JEQ, ~0U, kNext, kPass),
      word(kRequest),
      jump(BPF_JEQ, kGuardsRequest, kFence, kPass),
  };
  const std::vector<FilterLine>& handled = ioctls ? nvidias : guards;
  lines.insert(lines.end(), handled.begin(), handled.end());
  lines.insert(lines.end(),
               {label(kPass), answer(SECCOMP_RET_ALLOW), label(kFence), answer(refusal)});
  return assemble(lines);
}

std::vector<sock_filter> open_filter(const std::vector<sock_filter>& others, bool openat2,
                                     const Architecture& machine) {
  constexpr uint32_t kThirdArgument = offsetof(seccomp_data, args[2]);
  return assemble(
      {
          word(offsetof(seccomp_data, arch)),
          jump(BPF_JEQ, machine.architecture, "this architecture", kNext),
          jump(BPF_JEQ, machine.older, kNext, "others"),
          word(kNr),
          jump(BPF_JEQ, machine.older_openat, "third argument", kNext),
          jump(BPF_JEQ, machine.older_open_by_handle_at, "third argument", kNext),
          jump(BPF_JEQ, machine.older_open, "second argument", "newer calls"),
          label("this architecture"),
          word(kNr),
          keep_bits(~machine.x32_bit),
          jump(BPF_JEQ, machine.openat, "third argument", kNext),
          jump(BPF_JEQ, machine.open_by_handle_at, "third argument", kNext),
          jump(BPF_JEQ, machine.open, "second argument", kNext),
          label("newer calls"),
          jump(BPF_JEQ, openat2 ? kNoCall : kOpenat2, "absent", kNext),
          jump(BPF_JGE, kIoUringSetup, kNext, "others"),
          jump(BPF_JGT, kIoUringRegister, "others", kNext),
          label("absent"),
          answer(SECCOMP_RET_ERRNO | ENOSYS),
          label("second argument"),
          word(kRequest),
          go_to("access mode"),
          label("third argument"),
          word(kThirdArgument),
          label("access mode"),
          keep_bits(O_ACCMODE),
          jump(BPF_JEQ, O_ACCMODE, kFence, kPass),
          label(kPass),
          answer(SECCOMP_RET_ALLOW),
          label(kFence),
          answer(SECCOMP_RET_ERRNO | EACCES),
          label("others"),
      },
      others);
}

}  // namespace cudaguard::launcher
