// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/record/beacon.h"

#include <cerrno>
#include <cstddef>

#include "shim/guard/sys/system.h"

namespace cudaguard {

namespace {

/// Makes the system call, and stores this function's registers in the message.
[[gnu::noinline]] long call(Beacon what, const void* caller, BeaconMessage* message) {
  BeaconMessage none;
  BeaconMessage* const to = message == nullptr ? &none : message;
#if defined(__x86_64__)
  long result = SYS_getpid;
  register const BeaconMessage* argument asm("r10") = message;
  asm volatile(
      "lea 0f(%%rip), %%rcx\n\t"
      "mov %%rcx, 0(%[to])\n\t"
      "mov %%rsp, 8(%[to])\n\t"
      "mov %%rbp, 16(%[to])\n\t"
      "mov %%rbx, 24(%[to])\n\t"
      "mov %%r12, 32(%[to])\n\t"
      "mov %%r13, 40(%[to])\n\t"
      "mov %%r14, 48(%[to])\n\t"
      "mov %%r15, 56(%[to])\n\t"
      "0: syscall"
      : "+a"(result)
      : "D"(kBeaconMagic), "S"(what), "d"(caller), "r"(argument), [to] "r"(to->registers)
      : "rcx", "r11", "memory");
  return result;
#else
  register long number asm("x8") = SYS_getpid;
  register uint64_t result asm("x0") = kBeaconMagic;
  register Beacon second asm("x1") = what;
  register const void* third asm("x2") = caller;
  register const BeaconMessage* fourth asm("x3") = message;
  asm volatile(
      "adr x9, 0f\n\t"
      "mov x10, sp\n\t"
      "stp x9, x10, [%[to]]\n\t"
      "stp x19, x20, [%[to], 16]\n\t"
      "stp x21, x22, [%[to], 32]\n\t"
      "stp x23, x24, [%[to], 48]\n\t"
      "stp x25, x26, [%[to], 64]\n\t"
      "stp x27, x28, [%[to], 80]\n\t"
      "stp x29, x30, [%[to], 96]\n\t"
      "0: svc 0"
      : "+r"(result)
      : "r"(number), "r"(second), "r"(third), "r"(fourth), [to] "r"(to->registers)
      : "x9", "x10", "memory");
  return static_cast<long>(result);
#endif
}

/// A signal interrupts the call (EINTR) until the launcher has received it, and before Linux 5.19
/// until the answer. So that a timer cannot interrupt it each time, the repetition blocks signals.
bool send(Beacon what, const void* caller, BeaconMessage* message) {
  long answer = call(what, caller, message);
  if (answer == -EINTR) {
    const uint64_t all = ~uint64_t{0};
    uint64_t before = 0;
    const long held = sys::call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, sys::word(&all),
                                sys::word(&before), sizeof before);
    do answer = call(what, caller, message);
    while (answer == -EINTR && held == 0);
    if (held == 0) sys::call(SYS_rt_sigprocmask, 2, sys::word(&before), 0, sizeof before);
  }
  return answer == -kHeard;
}

}  // namespace

bool announce(Beacon what, const void* caller) { return send(what, caller, nullptr); }

bool send_beacon(Beacon what, const void* caller, std::string_view record) {
  BeaconMessage message;
  message.text = reinterpret_cast<uint64_t>(record.data());
  message.length = record.size();
  return send(what, caller, &message);
}

}  // namespace cudaguard
