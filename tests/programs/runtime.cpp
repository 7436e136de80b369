// SPDX-License-Identifier: Apache-2.0
// One program for each CUDA runtime (11, 12.2, 12, 13; shared, static). Arguments:
//   count            cudaGetDeviceCount alone
//   sample           every call of the sample, with cudaGetLastError after each
//   only NAME        one call of the sample as the first that the process makes
//   list             the names of the sample
//   entry            cudaGetDriverEntryPoint("cuInit")
//   driver           the program's own cuInit, if it is linked to the driver, too
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cctype>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

void kernel() {}

struct Call {
  const char* name;
  cudaError_t (*run)();
};

int g_count = -7;

const Call sample_calls[] = {
    {"cudaGetDeviceCount", [] { return cudaGetDeviceCount(&g_count); }},
    {"cudaSetDevice", [] { return cudaSetDevice(0); }},
    {"cudaGetDevice",
     [] {
       int device = -7;
       return cudaGetDevice(&device);
     }},
    {"cudaGetDeviceProperties",
     [] {
       static cudaDeviceProp properties;
       return cudaGetDeviceProperties(&properties, 0);
     }},
    {"cudaDeviceGetAttribute",
     [] {
       int value = 0;
       return cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0);
     }},
    {"cudaMalloc",
     [] {
       void* memory = nullptr;
       return cudaMalloc(&memory, 64);
     }},
    {"cudaMallocHost",
     [] {
       void* memory = nullptr;
       return cudaMallocHost(&memory, 64);
     }},
    {"cudaMemGetInfo",
     [] {
       size_t left = 0;
       size_t total = 0;
       return cudaMemGetInfo(&left, &total);
     }},
    {"cudaStreamCreate",
     [] {
       cudaStream_t stream = nullptr;
       return cudaStreamCreate(&stream);
     }},
    {"cudaEventCreate",
     [] {
       cudaEvent_t event = nullptr;
       return cudaEventCreate(&event);
     }},
    {"cudaLaunchKernel",
     [] {
       return cudaLaunchKernel(reinterpret_cast<const void*>(&kernel), dim3(1), dim3(1), nullptr, 0,
                               nullptr);
     }},
    {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
    {"cudaFree", [] { return cudaFree(nullptr); }},
    {"cudaDeviceReset", [] { return cudaDeviceReset(); }},
};

std::string underlined(std::string text) {
  for (char& letter : text) {
    if (std::isspace(static_cast<unsigned char>(letter)) != 0) letter = '_';
  }
  return text;
}

void run(const Call& call) {
  const cudaError_t answer = call.run();
  const cudaError_t last = cudaGetLastError();
  std::printf("%s=%d %s.last=%d text=%s name=%s count=%d\n", call.name, answer, call.name, last,
              underlined(cudaGetErrorString(answer)).c_str(), cudaGetErrorName(answer), g_count);
}

int ask_entry_point() {
  void* function = nullptr;
#if CUDART_VERSION >= 13000
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t answer = cudaGetDriverEntryPointByVersion("cuInit", &function, CUDART_VERSION,
                                                              cudaEnableDefault, &status);
#else
  const cudaError_t answer = cudaGetDriverEntryPoint("cuInit", &function, cudaEnableDefault);
#endif
  std::printf("entry=%d function=%s ", answer, function == nullptr ? "null" : "set");
  if (function != nullptr) {
    std::printf("cuInit=%d", reinterpret_cast<int (*)(unsigned)>(function)(0));
  }
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "count";
  if (what == "entry") return ask_entry_point();
  if (what == "driver") {
    auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(RTLD_DEFAULT, "cuInit"));
    if (init == nullptr) {
      std::printf("cuInit=null\n");
    } else {
      std::printf("cuInit=%d\n", init(0));
    }
    return 0;
  }
  for (const Call& call : sample_calls) {
    if (what == "list") {
      std::printf("%s\n", call.name);
    } else if (what == "sample" || (what == "count" && &call == sample_calls) ||
               (what == "only" && argc > 2 && std::strcmp(argv[2], call.name) == 0)) {
      run(call);
    }
  }
  return 0;
}
