// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "policy/driver_api.h"
#include "policy/user_code.h"

namespace cudaguard {
namespace {

TEST(DriverApi, CallDecidesTheApi) {
  for (const char* api : {"cuInit", "cudaGetDeviceCount", "cudaSetDevice", ""}) {
    EXPECT_EQ(driver_api_of(api, ""), DriverApi::kCuda) << api;
  }
  for (const char* api : {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlDeviceGetCount"}) {
    EXPECT_EQ(driver_api_of(api, ""), DriverApi::kNvml) << api;
  }
}

TEST(DriverApi, LibraryDecidesTheApiOfADlopen) {
  const struct {
    const char* object;
    DriverApi asked;
  } cases[] = {{"libcuda.so.1", DriverApi::kCuda},
               {"/usr/lib/libcuda.so", DriverApi::kCuda},
               {"libnvidia-ml.so.1", DriverApi::kNvml},
               {"libnvidia-cfg.so.1", DriverApi::kNvml},
               {"nvidia--libnvidia-opencl.so.1-x86_64-linux-gnu", DriverApi::kOpenCl},
               {"/usr/lib/libnvidia-opencl.so.535.261.03", DriverApi::kOpenCl},
               {"/x/libonnxruntime_providers_cuda.so", DriverApi::kCuda},
               {"libonnxruntime_providers_tensorrt.so", DriverApi::kCuda},
               {"", DriverApi::kCuda}};
  for (const auto& one : cases)
    EXPECT_EQ(driver_api_of("dlopen", one.object), one.asked) << one.object;
}

TEST(UserCode, RuntimeFunctionsAreRecognised) {
  for (const char* name : {"cudaGetDeviceCount", "libcudart_static_418eebf4e9b7463362b8",
                           "__cudaGetKernel", "__device_stub__Z3addPi(int*)"}) {
    EXPECT_TRUE(is_runtime_function(name)) << name;
  }
  for (const char* name : {"main", "", "cuda", "cudaguard_attempt_v1", "cuda_setup", "my::cudaInit",
                           "__cuda", "__cuda_setup"}) {
    EXPECT_FALSE(is_runtime_function(name)) << name;
  }
}

TEST(NvmlRefusal, IsDriverNotLoadedButForNvmlInitWithoutAVersion) {
  EXPECT_EQ(nvml_refusal("nvmlInit_v2"), 9);
  EXPECT_EQ(nvml_refusal("nvmlInitWithFlags"), 9);
  EXPECT_EQ(nvml_refusal("nvmlInit"), 0);
}

}  // namespace
}  // namespace cudaguard
