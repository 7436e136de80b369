// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/listener.h"

#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "policy/beacon.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

/// The most calls per answer(), because a program that calls in a loop must not delay the signals
/// of the tree.
constexpr int kMostAnswers = 256;
/// SECCOMP_IOCTL_NOTIF_ID_VALID before Linux 5.9, which declared the wrong direction.
constexpr unsigned long kOlderIdValid = SECCOMP_IOR(2, uint64_t);

/// SECCOMP_IOCTL_NOTIF_SET_FLAGS with SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (Linux 6.6): the launcher
/// runs on the caller's processor, so that no idle one has to wake up.
constexpr unsigned long kSetFlags = SECCOMP_IOW(4, uint64_t);
constexpr unsigned long kSyncWakeUp = 1;

/// Memory for a structure that may be longer in this kernel than in our headers.
std::vector<uint64_t> room_for(size_t size) {
  return std::vector<uint64_t>((size + sizeof(uint64_t) - 1) / sizeof(uint64_t));
}

}  // namespace

Listener::Listener(int descriptor, Take request, Take beacon)
    : descriptor_(above_stderr(descriptor)),
      request_(std::move(request)),
      beacon_(std::move(beacon)) {
  if (descriptor_ < 0) throw Refusal(kRefused, std::string("--fence: ") + strerror(errno));
  ioctl(descriptor_, kSetFlags, kSyncWakeUp);
  seccomp_notif_sizes sizes = {};
  syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
  calls_ = room_for(std::max(sizeof(seccomp_notif), size_t{sizes.seccomp_notif}));
  answers_ = room_for(std::max(sizeof(seccomp_notif_resp), size_t{sizes.seccomp_notif_resp}));
}

Listener::~Listener() { close(descriptor_); }

bool Listener::answer() noexcept {
  pollfd waiting = {descriptor_, POLLIN, 0};
  auto* call = reinterpret_cast<seccomp_notif*>(calls_.data());
  auto* answer = reinterpret_cast<seccomp_notif_resp*>(answers_.data());
  for (int i = 0; i < kMostAnswers && poll(&waiting, 1, 0) == 1; ++i) {
    std::fill(calls_.begin(), calls_.end(), 0);  // the kernel wants zeros there
    // ENOENT: the thread was killed meanwhile. The call does not block for the next one.
    if (ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_RECV, call) != 0) {
      if (errno == ENOENT || errno == EINTR) continue;
      close(std::exchange(descriptor_, -1));
      failed_ = true;
      return false;
    }
    const bool is_beacon = call->data.nr == __NR_getpid && call->data.args[0] == kBeaconMagic;
    try {
      (is_beacon ? beacon_ : request_)(*call);
    } catch (const std::exception&) {
      failed_ = true;
    }
    std::fill(answers_.begin(), answers_.end(), 0);
    answer->id = call->id;
    answer->error = is_beacon ? -kHeard : -ENODEV;
    ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_SEND, answer);
  }
  return true;
}

bool Listener::still_waits(const seccomp_notif& call) const {
  uint64_t id = call.id;
  if (ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0) return true;
  return errno != ENOENT && ioctl(descriptor_, kOlderIdValid, &id) == 0;
}

}  // namespace cudaguard::launcher
