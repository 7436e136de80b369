// SPDX-License-Identifier: Apache-2.0
// Tests every policy with every kind of library and index, cell by cell.
#include "policy/policies.h"

#include <gtest/gtest.h>

namespace cudaguard {
namespace {

/// In the order of kPolicies.
using Actions = Action[std::size(kPolicies)];

struct Row {
  const char* request;
  Actions without_list;
  Actions under_list;
};

constexpr Action kPass = Action::kPass;
constexpr Action kNullDriver = Action::kNullDriver;
constexpr Action kProxy = Action::kProxy;
constexpr Action kRefuse = Action::kRefuse;

constexpr Row kTable[] = {
    {"libm.so.6", {kPass, kPass, kPass, kPass, kPass}, {kPass, kPass, kPass, kPass, kPass}},
    {"libcuda.so.1",
     {kNullDriver, kProxy, kProxy, kProxy, kPass},
     {kNullDriver, kProxy, kProxy, kProxy, kPass}},
    {"libnvidia-ml.so.1",
     {kNullDriver, kProxy, kProxy, kProxy, kPass},
     {kNullDriver, kProxy, kProxy, kProxy, kPass}},
    // This library needs no libcuda, so a proxy changes nothing for it.
    {"libnvidia-opencl.so.1",
     {kRefuse, kPass, kPass, kRefuse, kPass},
     {kRefuse, kRefuse, kRefuse, kRefuse, kPass}},
    {"libnvidia-cfg.so.1",
     {kRefuse, kPass, kPass, kPass, kPass},
     {kRefuse, kPass, kPass, kPass, kPass}},
    {"libonnxruntime_providers_cuda.so",
     {kRefuse, kPass, kPass, kPass, kPass},
     {kRefuse, kPass, kPass, kPass, kPass}},
    {"libonnxruntime_providers_tensorrt.so",
     {kRefuse, kPass, kPass, kPass, kPass},
     {kRefuse, kPass, kPass, kPass, kPass}},
};

TEST(Policies, EveryPolicyAndLibraryHasItsAction) {
  for (const Row& row : kTable) {
    const LibraryRequest request = classify(row.request);
    for (size_t i = 0; i < std::size(kPolicies); ++i) {
      const Policy policy = kPolicies[i].policy;
      SCOPED_TRACE(::testing::Message() << row.request << " " << name_of(policy));
      EXPECT_EQ(action_for(policy, false, request), row.without_list[i]);
      EXPECT_EQ(action_for(policy, true, request), row.under_list[i]);
    }
  }
  // The table above has every refused library.
  EXPECT_EQ(std::size(kTable), 3 + std::size(kRefusedLibraries));
}

TEST(Policies, OnlyForceCpuAndOffLeaveTheProxyOut) {
  for (const PolicyRow& row : kPolicies) {
    const bool allows = row.policy != Policy::kForceCpu && row.policy != Policy::kOff;
    EXPECT_EQ(allows_cuda(row.policy), allows) << name_of(row.policy);
    EXPECT_EQ(refuses_contexts(row.policy), row.policy == Policy::kNoContext)
        << name_of(row.policy);
  }
}

TEST(Policies, IndexBeyondTheLastIsClamped) {
  struct Case {
    int asked;
    int count;
    int clamped;
  };
  for (const Case& tried :
       {Case{0, 8, 0}, Case{7, 8, 7}, Case{8, 8, 7}, Case{INT32_MAX, 8, 7}, Case{1, 1, 0},
        Case{-1, 8, -1}, Case{INT32_MIN, 8, INT32_MIN}, Case{3, 0, 3}, Case{3, -1, 3}}) {
    SCOPED_TRACE(::testing::Message() << tried.asked << " of " << tried.count);
    for (const PolicyRow& row : kPolicies) {
      EXPECT_EQ(index_to_use(row.policy, tried.asked, tried.count),
                row.policy == Policy::kClamp ? tried.clamped : tried.asked);
    }
  }
}

}  // namespace
}  // namespace cudaguard
