// SPDX-License-Identifier: Apache-2.0
#include "policy/asked.h"

#include <gtest/gtest.h>

#include "policy/user_code.h"

namespace cudaguard {
namespace {

TEST(Asked, ByTheCall) {
  for (const char* api : {"cuInit", "cudaGetDeviceCount", "cudaSetDevice", ""}) {
    EXPECT_EQ(asked_for(api, ""), Asked::kCuda) << api;
  }
  for (const char* api : {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlDeviceGetCount"}) {
    EXPECT_EQ(asked_for(api, ""), Asked::kNvml) << api;
  }
}

TEST(Asked, ALibraryCountsAsWhatItWouldDo) {
  const struct {
    const char* object;
    Asked asked;
  } cases[] = {{"libcuda.so.1", Asked::kCuda},
               {"/usr/lib/libcuda.so", Asked::kCuda},
               {"libnvidia-ml.so.1", Asked::kNvml},
               {"libnvidia-cfg.so.1", Asked::kNvml},
               {"/usr/lib/libnvidia-opencl.so.535.261.03", Asked::kOpenCl},
               {"/x/libonnxruntime_providers_cuda.so", Asked::kCuda},
               {"libonnxruntime_providers_tensorrt.so", Asked::kCuda},
               {"", Asked::kCuda}};
  for (const auto& one : cases) EXPECT_EQ(asked_for("dlopen", one.object), one.asked) << one.object;
}

TEST(Asked, ARequestToTheDriver) {
  EXPECT_EQ(asked_for(kRequestApi, "0xc020462a RM_CONTROL"), Asked::kCuda);
  EXPECT_EQ(asked_for(kRequestApi, "0xc020462a RM_CONTROL (NVML)"), Asked::kNvml);
}

TEST(UserCode, TheRuntimesOwnFunctions) {
  for (const char* name : {"cudaGetDeviceCount", "libcudart_static_418eebf4e9b7463362b8"}) {
    EXPECT_TRUE(is_runtime_function(name)) << name;
  }
  for (const char* name :
       {"main", "", "cuda", "cudaguard_touch_v1", "cuda_setup", "my::cudaInit"}) {
    EXPECT_FALSE(is_runtime_function(name)) << name;
  }
}

}  // namespace
}  // namespace cudaguard
