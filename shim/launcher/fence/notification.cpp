// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/notification.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "shim/guard/text/beacon.h"
#include "shim/launcher/fence/filter.h"

namespace cudaguard::launcher {

bool is_exec(const seccomp_data& call) {
  const Architecture& machine = kThisArchitecture;
  auto number = static_cast<uint32_t>(call.nr);
  if (call.arch == machine.older) {
    return number == machine.execs[4] || number == machine.execs[5];
  }
  number &= ~machine.x32_bit;
  return call.arch == machine.architecture &&
         std::find(machine.execs.begin(), machine.execs.begin() + 4, number) !=
             machine.execs.begin() + 4;
}

bool has_call(int listener) {
  pollfd one = {listener, POLLIN, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
}

int receive_call(int listener, seccomp_notif& to) {
  if (!has_call(listener)) return EAGAIN;
  to = {};  // the kernel wants zeros there
  return ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &to) == 0 ? 0 : errno;
}

bool still_waits(int listener, const seccomp_notif& call) {
  /// SECCOMP_IOCTL_NOTIF_ID_VALID as Linux before 5.9 has declared it. Newer ones know it, too.
  constexpr unsigned long kIdValid = SECCOMP_IOR(2, uint64_t);
  uint64_t id = call.id;
  return ioctl(listener, kIdValid, &id) == 0;
}

bool answer_call(int listener, const seccomp_notif& call) {
  seccomp_notif_resp answer = {};
  answer.id = call.id;
  if (is_exec(call.data)) {
    answer.flags = kContinue;
  } else {
    answer.error = call.data.nr == SYS_getpid ? -kHeard : -ENODEV;
  }
  return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0;
}

}  // namespace cudaguard::launcher
