// SPDX-License-Identifier: Apache-2.0
// policy/nvidia_requests.h, for the tests.
//   model list      all that have a name, "c0104627 RM_ALLOC_MEMORY"
//   model sweep OUTPUT FILE
//                   what FILE (-1: none) answers to many requests, a byte each: the error
//   model expected OUTPUT
//                   for the same requests 1 if they are NVIDIA's, else 0
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "policy/nvidia_requests.h"

using namespace cudaguard;

namespace {

constexpr uint32_t kSizes[] = {0, 4, 8, 16, 32, 0x3fff};

template <typename Answer>
void write_all(Answer answer) {
  for (const uint32_t size : kSizes) {
    for (uint32_t direction = 0; direction < 4; ++direction) {
      for (uint32_t low = 0; low <= 0xffff; ++low)
        putchar(answer(direction << 30 | size << 16 | low));
    }
  }
}

void list() {
  for (const NvidiaRequest& one : kNvidiaRequests)
    printf("%08x %s\n", nvidia_request(one.number, kSmallestOfResourceManager), one.name);
  printf("%08x %s\n", kUvmInitialize, name_of_request(kUvmInitialize));
}

/// Among all requests there are some that root had better not send, such as FIFREEZE.
bool give_up_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  if (what == "list") {
    list();
  } else if (what == "expected" && freopen(words[2], "w", stdout) != nullptr) {
    write_all([](uint32_t request) { return is_nvidia_request(request) ? 1 : 0; });
  } else if (what == "sweep" && freopen(words[2], "w", stdout) != nullptr) {
    const int file = words[3] == std::string_view("-1") ? -1 : open(words[3], O_RDWR);
    if (!give_up_capabilities()) return 2;
    write_all([&](uint32_t request) { return ioctl(file, request, nullptr) < 0 ? errno : 0; });
  } else {
    return 2;
  }
  return 0;
}
