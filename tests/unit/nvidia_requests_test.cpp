// SPDX-License-Identifier: Apache-2.0
// Compares the definition of NVIDIA's requests with a plain list over the whole range of requests.
#include "policy/nvidia_requests.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <set>
#include <string>

namespace cudaguard {
namespace {

constexpr uint32_t kSizes[] = {0, 1, 4, 8, 15, 16, 17, 32, 0x200, 0x1000, 0x3fff};

TEST(NvidiaRequests, OnlyNvidiasRangesMatchInTheWholeSpace) {
  std::set<uint32_t> any_size;
  std::set<uint32_t> from_sixteen;
  for (uint32_t number = 200; number <= 218; ++number) any_size.insert('F' * 256U + number);
  for (uint32_t number = 0x27; number <= 0x5f; ++number) from_sixteen.insert('F' * 256U + number);
  size_t ours = 0;
  for (uint32_t low = 0; low <= 0xffff; ++low) {
    for (const uint32_t direction : {_IOC_NONE, _IOC_READ, _IOC_WRITE, _IOC_READ | _IOC_WRITE}) {
      for (const uint32_t size : kSizes) {
        const uint32_t request = _IOC(direction, low >> 8, low & 0xff, size);
        const bool wanted =
            direction == (_IOC_READ | _IOC_WRITE) &&
            (any_size.count(low) != 0 || (size >= 16 && from_sixteen.count(low) != 0));
        ours += wanted ? 1 : 0;
        ASSERT_EQ(is_nvidia_request(request), wanted) << std::hex << request;
      }
    }
  }
  EXPECT_EQ(ours, 19 * 11 + 57 * 6);
  EXPECT_TRUE(is_nvidia_request(0x30000001));
  for (const uint32_t other : {0x30000000, 0x30000002, 0x30000003, 0x20000001, 0x70000001, 1}) {
    EXPECT_FALSE(is_nvidia_request(other)) << std::hex << other;
  }
}

TEST(NvidiaRequests, EveryListedRequestMatchesAndHasAName) {
  int before = -1;
  for (const NvidiaRequest& one : kNvidiaRequests) {
    SCOPED_TRACE(one.name);
    EXPECT_GT(one.number, before);  // the list is sorted and has no duplicates
    before = one.number;
    for (const uint32_t size : {16U, 32U, 0xa00U, 0x3fffU}) {
      const uint32_t request = nvidia_request(one.number, size);
      EXPECT_EQ(request, _IOC(_IOC_READ | _IOC_WRITE, 'F', one.number, size));
      EXPECT_TRUE(is_nvidia_request(request));
      EXPECT_STREQ(name_of_request(request), one.name);
    }
  }
  EXPECT_EQ(std::size(kNvidiaRequests), 27U + 14U);
  EXPECT_STREQ(name_of_request(kUvmInitialize), "UVM_INITIALIZE");
  EXPECT_STREQ(name_of_request(nvidia_request(202, 16)), "request");
}

TEST(NvidiaRequests, RequestsOfDriver535Match) {
  // libcuda 535 sends RM_CONTROL, RM_FREE, RM_ALLOC, CARD_INFO, REGISTER_FD, SYS_PARAMS and
  // CHECK_VERSION_STR.
  for (const uint32_t request :
       {0xc020462a, 0xc0104629, 0xc030462b, 0xca0046c8, 0xc00446c9, 0xc00846d6, 0xc04846d2}) {
    EXPECT_TRUE(is_nvidia_request(request)) << std::hex << request;
  }
}

TEST(NvidiaRequests, UnusedRequestMatchesAndHasNoSize) {
  EXPECT_TRUE(is_nvidia_request(kNobodysRequest));
  EXPECT_EQ(size_of(kNobodysRequest), 0U);
}

// Drivers of electronic paper have these and similar requests among NVIDIA's numbers: NXP's mxcfb.h
// with the versions of Kobo, PocketBook and reMarkable, and MediaTek's hwtcon.
struct Marker {
  uint32_t update;
  uint32_t collision_test;
};
struct UpdateData {
  uint32_t words[18];
};
struct Modes {
  int modes[6];
};
struct Named {
  const char* name;
  uint32_t request;
};
#define NAMED(name, request) \
  Named { #name, static_cast < uint32_t>(request) }
constexpr Named kFramebuffers[] = {
    NAMED(MXCFB_SET_LOC_ALP_BUF, _IOW('F', 0x27, unsigned long)),
    NAMED(MXCFB_SET_GAMMA, _IOW('F', 0x28, UpdateData)),
    NAMED(MXCFB_GET_FB_IPU_DI, _IOR('F', 0x29, uint32_t)),
    NAMED(MXCFB_GET_DIFMT, _IOR('F', 0x2a, uint32_t)),
    NAMED(MXCFB_SET_WAVEFORM_MODES, _IOW('F', 0x2b, Modes)),
    NAMED(MXCFB_SET_TEMPERATURE, _IOW('F', 0x2c, int32_t)),
    NAMED(MXCFB_CSC_UPDATE, _IOW('F', 0x2d, UpdateData)),
    NAMED(MXCFB_SEND_UPDATE, _IOW('F', 0x2e, UpdateData)),
    NAMED(MXCFB_WAIT_FOR_UPDATE_COMPLETE_V2, _IOWR('F', 0x2f, uint32_t)),
    NAMED(MXCFB_WAIT_FOR_UPDATE_COMPLETE, _IOWR('F', 0x2f, Marker)),
    NAMED(MXCFB_GET_WORK_BUFFER, _IOWR('F', 0x34, unsigned long)),
    NAMED(MXCFB_DISABLE_EPDC_ACCESS, _IO('F', 0x35)),
    NAMED(MXCFB_WAIT_FOR_UPDATE_COMPLETE_ANDROID, _IOWR('F', 0x35, Marker)),
    NAMED(HWTCON_GET_TEMPERATURE, _IOR('F', 0x38, int32_t)),
    NAMED(HWTCON_SET_CFA_MODE, _IOW('F', 0x50, uint32_t)),
};
#undef NAMED

TEST(NvidiaRequests, FramebufferRequestsDoNotMatch) {
  for (const Named& one : kFramebuffers) {
    EXPECT_FALSE(is_nvidia_request(one.request)) << one.name << std::hex << " " << one.request;
  }
  // The kernel's list reserves these for framebuffers, whatever their size and direction.
  for (uint32_t upper = 0; upper <= 0xffff; ++upper) {
    for (uint32_t number = 0; number <= 0x26; ++number) {
      ASSERT_FALSE(is_nvidia_request(upper << 16 | 'F' << 8 | number));
    }
    for (uint32_t number = 0x60; number < 200; ++number) {
      ASSERT_FALSE(is_nvidia_request(upper << 16 | 'F' << 8 | number));
    }
    for (uint32_t number = 219; number <= 0xff; ++number) {
      ASSERT_FALSE(is_nvidia_request(upper << 16 | 'F' << 8 | number));
    }
  }
}

}  // namespace
}  // namespace cudaguard
