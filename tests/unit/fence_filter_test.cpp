// SPDX-License-Identifier: Apache-2.0
// Interprets the filter's program for every architecture, because this kernel can run only one.
#include <gtest/gtest.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>

#include "policy/nvidia_requests.h"
#include "shim/guard/text/beacon.h"
#include "shim/launcher/fence/filter.h"
#include "shim/launcher/fence/notification.h"

namespace cudaguard::launcher {
namespace {

constexpr uint32_t kAnswer = SECCOMP_RET_ERRNO | ENODEV;
constexpr uint32_t kX32 = 0x40000000;

/// Returns the program's answer. With `blind`, `data.args` is not available, so only an answer for
/// all arguments counts. This function handles exactly the instructions of the kernel's
/// seccomp_is_const_allow(), so that it finds the same constant answers.
std::optional<uint32_t> answer_of(const std::vector<sock_filter>& program, const seccomp_data& data,
                                  bool blind = false) {
  uint32_t value = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const sock_filter& one = program[at];
    const auto jump = [&](bool condition) { at += condition ? one.jt : one.jf; };
    switch (one.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (blind && one.k != offsetof(seccomp_data, nr) && one.k != offsetof(seccomp_data, arch))
          return std::nullopt;
        memcpy(&value, reinterpret_cast<const char*>(&data) + one.k, sizeof value);
        break;
      case BPF_JMP | BPF_JA:
        at += one.k;
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        value &= one.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(value == one.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(value >= one.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        jump(value > one.k);
        break;
      case BPF_RET | BPF_K:
        return one.k;
      default:
        ADD_FAILURE() << "instruction " << at << " is none that the kernel sees through";
        return std::nullopt;
    }
  }
  ADD_FAILURE() << "it runs past its end";
  return std::nullopt;
}

seccomp_data call(uint32_t architecture, uint32_t number, uint64_t request = 0) {
  seccomp_data data = {};
  data.arch = architecture;
  data.nr = static_cast<int>(number);
  data.args[0] = 0xffffffff;
  data.args[1] = request;
  data.args[2] = 0xc020462a;  // another argument does not count
  return data;
}

/// The number of ioctl in the kernel's own tables.
struct IoctlNumber {
  const char* name;
  Architecture machine;
  uint32_t architecture;
  uint32_t number;
};
constexpr IoctlNumber kIoctlNumbers[] = {
    {"x86-64", kX86, 0xc000003e, 16},
    {"x32", kX86, 0xc000003e, 514 | kX32},
    {"x32, x86-64's number", kX86, 0xc000003e, 16 | kX32},
    {"x32, as older kernels", kX86, 0xc000003e, 514},
    {"i386", kX86, 0x40000003, 54},
    {"AArch64", kArm, 0xc00000b7, 29},
    {"32-bit Arm", kArm, 0x40000028, 54},
};

TEST(FenceFilter, RefusesOnlyNvidiasRequests) {
  for (const IoctlNumber& row : kIoctlNumbers) {
    SCOPED_TRACE(row.name);
    const std::vector<sock_filter> program = fence_filter(kAnswer, row.machine);
    for (const uint32_t upper : {0x0000U, 0x3000U, 0x4008U, 0x7fffU, 0x8008U, 0xbfffU, 0xc000U,
                                 0xc008U, 0xc00fU, 0xc010U, 0xc020U, 0xffffU}) {
      for (uint32_t low = 0; low <= 0xffff; ++low) {
        const uint32_t request = upper << 16 | low;
        // The filter compares with bounds, so the requests on both sides of each bound count.
        const bool is_bound = is_nvidia_request(request - 1) != is_nvidia_request(request) ||
                              is_nvidia_request(request) != is_nvidia_request(request + 1);
        if (low % 61 != 0 && !is_bound) continue;
        const uint32_t wanted = is_nvidia_request(request) ? kAnswer : SECCOMP_RET_ALLOW;
        ASSERT_EQ(answer_of(program, call(row.architecture, row.number, request)), wanted)
            << std::hex << request;
      }
    }
  }
}

TEST(FenceFilter, WithoutIoctlsEachOfThemPasses) {
  for (const IoctlNumber& row : kIoctlNumbers) {
    SCOPED_TRACE(row.name);
    const std::vector<sock_filter> program = fence_filter(kAnswer, row.machine, false, false);
    for (const uint32_t request : {0xc020462aU, 0x30000001U, 0x5401U}) {
      EXPECT_EQ(answer_of(program, call(row.architecture, row.number, request)), SECCOMP_RET_ALLOW);
    }
  }
}

TEST(FenceFilter, ListenerWithoutTheFenceGetsTheGuardsIoctlAlone) {
  for (const Architecture& machine : {kX86, kArm}) {
    const std::vector<sock_filter> program =
        fence_filter(SECCOMP_RET_USER_NOTIF, machine, true, false);
    const auto answer = [&](uint64_t descriptor, uint32_t request) {
      seccomp_data data = call(machine.architecture, machine.ioctl, request);
      data.args[0] = descriptor;
      return answer_of(program, data);
    };
    EXPECT_EQ(answer(~uint64_t{0}, kGuardsRequest), SECCOMP_RET_USER_NOTIF);
    EXPECT_EQ(answer(3, kGuardsRequest), SECCOMP_RET_ALLOW);
    for (const uint32_t request : {kNobodysRequest, kGuardsRequest + 1, kUvmInitialize, 0x5401U}) {
      EXPECT_EQ(answer(~uint64_t{0}, request), SECCOMP_RET_ALLOW);
    }
  }
}

TEST(FenceFilter, UpperHalfOfTheRequestDoesNotCount) {
  const std::vector<sock_filter> program = fence_filter(kAnswer, kX86);
  for (const uint64_t upper : {uint64_t{1} << 32, ~uint64_t{0} << 32}) {
    EXPECT_EQ(answer_of(program, call(kX86.architecture, 16, upper | 0xc020462a)), kAnswer);
    EXPECT_EQ(answer_of(program, call(kX86.architecture, 16, upper | 0x5401)), SECCOMP_RET_ALLOW);
  }
}

TEST(FenceFilter, OtherCallsPassWithoutACheckOfTheArguments) {
  for (const IoctlNumber& row : kIoctlNumbers) {
    SCOPED_TRACE(row.name);
    const std::vector<sock_filter> program = fence_filter(kAnswer, row.machine);
    EXPECT_EQ(answer_of(program, call(row.architecture, row.number), true), std::nullopt);
    for (uint32_t number = 0; number < 1024; ++number) {
      for (const uint32_t bit : {0U, kX32, 0x80000000U}) {
        bool is_ioctl = false;
        for (const IoctlNumber& one : kIoctlNumbers) {
          is_ioctl =
              is_ioctl || (one.machine.architecture == row.machine.architecture &&
                           one.architecture == row.architecture && one.number == (number | bit));
        }
        if (is_ioctl) continue;
        // The answer needs no argument, so the kernel does not run this filter for these calls
        // again.
        EXPECT_EQ(answer_of(program, call(row.architecture, number | bit), true), SECCOMP_RET_ALLOW)
            << number << " with " << std::hex << bit;
      }
    }
  }
}

TEST(FenceFilter, OtherArchitecturesPass) {
  for (const Architecture& machine : {kX86, kArm}) {
    const std::vector<sock_filter> program = fence_filter(kAnswer, machine);
    for (const uint32_t other :
         {0U, 1U, AUDIT_ARCH_RISCV64, AUDIT_ARCH_PPC64LE, AUDIT_ARCH_S390X,
          machine.architecture == kX86.architecture ? kArm.architecture : kX86.architecture}) {
      for (uint32_t number = 0; number < 600; ++number) {
        EXPECT_EQ(answer_of(program, call(other, number, 0xc020462a)), SECCOMP_RET_ALLOW);
      }
    }
  }
}

TEST(FenceFilter, ListenerGetsBeaconsAndNoOtherGetpid) {
  constexpr struct {
    Architecture machine;
    uint32_t architecture;
    uint32_t getpid;
    bool heard;
  } kCalls[] = {{kX86, 0xc000003e, 39, true},  {kX86, 0xc000003e, 39 | kX32, true},
                {kX86, 0xc000003e, 38, false}, {kX86, 0x40000003, 20, false},
                {kX86, 0x40000003, 39, false}, {kArm, 0xc00000b7, 172, true},
                {kArm, 0xc00000b7, 39, false}};
  for (const auto& one : kCalls) {
    SCOPED_TRACE(one.getpid);
    seccomp_data data = call(one.architecture, one.getpid);
    const auto answer = [&](uint32_t filter, uint64_t argument) {
      data.args[0] = argument;
      return answer_of(fence_filter(filter, one.machine), data);
    };
    const uint32_t heard = one.heard ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
    EXPECT_EQ(answer(SECCOMP_RET_USER_NOTIF, kBeaconMagic), heard);
    EXPECT_EQ(answer(kAnswer, kBeaconMagic), SECCOMP_RET_ALLOW);
    for (int bit = 0; bit < 64; ++bit) {
      EXPECT_EQ(answer(SECCOMP_RET_USER_NOTIF, kBeaconMagic ^ uint64_t{1} << bit),
                SECCOMP_RET_ALLOW);
    }
  }
}

TEST(FenceFilter, ListenerGetsEachExecve) {
  struct Numbers {
    Architecture machine;
    uint32_t architecture;
    std::set<uint32_t> execs;
  };
  const Numbers kTables[] = {
      {kX86, 0xc000003e, {59, 322, 59 | kX32, 322 | kX32, 520, 545, 520 | kX32, 545 | kX32}},
      {kX86, 0x40000003, {11, 358}},
      {kArm, 0xc00000b7, {221, 281}},
      {kArm, 0x40000028, {11, 387}},
      {kX86, 0xc00000b7, {}},
      {kArm, 0xc000003e, {}}};
  for (const Numbers& table : kTables) {
    const std::vector<sock_filter> with = fence_filter(SECCOMP_RET_USER_NOTIF, table.machine, true);
    const std::vector<sock_filter> without = fence_filter(SECCOMP_RET_USER_NOTIF, table.machine);
    for (uint32_t number = 0; number < 1024; ++number) {
      for (const uint32_t bit : {0U, kX32, 0x80000000U}) {
        SCOPED_TRACE(testing::Message() << std::hex << table.architecture << ' ' << (number | bit));
        const seccomp_data data = call(table.architecture, number | bit);
        const bool execs = table.execs.contains(number | bit);
        ASSERT_EQ(answer_of(with, data), execs ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW);
        ASSERT_EQ(answer_of(without, data), SECCOMP_RET_ALLOW);
        if (table.machine.architecture == kThisArchitecture.architecture) {
          ASSERT_EQ(is_exec(data), execs);
        }
      }
    }
  }
}

TEST(OpenFilter, RefusesMode3OfCallsThatHaveItInARegister) {
  constexpr uint32_t kRefused = SECCOMP_RET_ERRNO | EACCES;
  constexpr struct {
    Architecture machine;
    uint32_t architecture;
    uint32_t number;
    int flags;  // which argument has them; -1: this is another call
  } kCalls[] = {
      {kX86, 0xc000003e, 2, 1},   {kX86, 0xc000003e, 2 | kX32, 1},   {kX86, 0xc000003e, 257, 2},
      {kX86, 0xc000003e, 5, -1},  {kX86, 0xc000003e, 257 | kX32, 2}, {kX86, 0xc000003e, 342, -1},
      {kX86, 0xc000003e, 304, 2}, {kX86, 0xc000003e, 304 | kX32, 2}, {kX86, 0x40000003, 342, 2},
      {kX86, 0x40000003, 5, 1},   {kX86, 0x40000003, 295, 2},        {kX86, 0x40000003, 2, -1},
      {kArm, 0xc00000b7, 56, 2},  {kArm, 0xc00000b7, 2, -1},         {kArm, 0x40000028, 5, 1},
      {kArm, 0xc00000b7, 265, 2}, {kArm, 0x40000028, 371, 2},        {kX86, 0x40000003, 304, -1},
      {kArm, 0x40000028, 322, 2}, {kArm, 0x40000028, 56, -1},        {kX86, 0xc00000b7, 56, -1}};
  for (const auto& one : kCalls) {
    SCOPED_TRACE(testing::Message() << std::hex << one.architecture << ' ' << one.number);
    const std::vector<sock_filter> program =
        open_filter(fence_filter(kAnswer, one.machine), true, one.machine);
    for (const uint64_t flags : {0ULL, 1ULL, 2ULL, 3ULL, 0x80003ULL, 0x80002ULL, 3ULL << 32}) {
      seccomp_data data = call(one.architecture, one.number);
      std::fill(std::begin(data.args), std::end(data.args), one.flags < 0 ? 3 : 0);
      if (one.flags >= 0) data.args[one.flags] = flags;
      EXPECT_EQ(answer_of(program, data),
                one.flags >= 0 && (flags & 3) == 3 ? kRefused : SECCOMP_RET_ALLOW)
          << flags;
    }
    if (one.flags < 0) {
      EXPECT_EQ(answer_of(program, call(one.architecture, one.number), true), SECCOMP_RET_ALLOW);
    }
  }
}

TEST(OpenFilter, HasNoIoUringAndPerhapsNoOpenat2) {
  constexpr uint32_t kAbsent = SECCOMP_RET_ERRNO | ENOSYS;
  for (const IoctlNumber& row : kIoctlNumbers) {
    for (const bool openat2 : {false, true}) {
      SCOPED_TRACE(row.name);
      const std::vector<sock_filter> program =
          open_filter(fence_filter(kAnswer, row.machine), openat2, row.machine);
      for (uint32_t number = 400; number < 500; ++number) {
        // openat2, and io_uring's setup, enter and register.
        const bool absent = (number == 437 && !openat2) || (number >= 425 && number <= 427);
        const uint32_t x32 = row.number & kX32;
        EXPECT_EQ(answer_of(program, call(row.architecture, number | x32), true),
                  absent ? kAbsent : SECCOMP_RET_ALLOW)
            << number;
      }
      EXPECT_EQ(answer_of(program, call(0, 426)), SECCOMP_RET_ALLOW);
    }
  }
}

TEST(OpenFilter, OtherCallsHaveTheAnswerOfTheOtherFilter) {
  for (const IoctlNumber& row : kIoctlNumbers) {
    SCOPED_TRACE(row.name);
    const std::vector<sock_filter> others = fence_filter(kAnswer, row.machine);
    const std::vector<sock_filter> program = open_filter(others, false, row.machine);
    for (const uint32_t request : {0xc020462aU, 0x5401U}) {
      const seccomp_data data = call(row.architecture, row.number, request);
      EXPECT_EQ(answer_of(program, data), answer_of(others, data)) << std::hex << request;
    }
    EXPECT_EQ(answer_of(program, call(row.architecture, 1), true), SECCOMP_RET_ALLOW);
  }
}

}  // namespace
}  // namespace cudaguard::launcher
