// SPDX-License-Identifier: Apache-2.0
// A program of the CUDA runtime. There is one for each major version, linked to it shared and
// static.
//   do=list      the count, each device's UUID from its properties, a copy there and back; then
//   what
//                NVML and the driver report in the same process (first=nvml: NVML comes first, as
//                in
//                PyTorch)
//   do=index     every call that takes a device index, with index=, and the last error after it
//   do=calls     nanoseconds per cudaSetDevice(0)
#include <cuda_runtime_api.h>

#include "gpu.h"

static const char* copy_there_and_back(int device) {
  static char failed[32];
  static unsigned char in[4096];
  static unsigned char out[4096];
  void* memory = NULL;
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (unsigned char)(i * 7 + (size_t)device);
  memset(out, 0, sizeof out);
  if (cudaSetDevice(device) != cudaSuccess || cudaMalloc(&memory, sizeof in) != cudaSuccess ||
      cudaMemcpy(memory, in, sizeof in, cudaMemcpyHostToDevice) != cudaSuccess ||
      cudaMemcpy(out, memory, sizeof out, cudaMemcpyDeviceToHost) != cudaSuccess) {
    snprintf(failed, sizeof failed, "error%d", (int)cudaGetLastError());
    return failed;
  }
  cudaFree(memory);
  return memcmp(in, out, sizeof in) == 0 ? "right" : "wrong";
}

static void print_driver(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    printf("driver.cuInit=null ");
    return;
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  int (*get_count)(int*) = (int (*)(int*))dlsym(library, "cuDeviceGetCount");
  int (*get)(int*, int) = (int (*)(int*, int))dlsym(library, "cuDeviceGet");
  int (*get_uuid)(void*, int) = (int (*)(void*, int))dlsym(library, "cuDeviceGetUuid");
  int count = 0;
  printf("driver.cuInit=%d ", init(0));
  const int answer = get_count(&count);
  printf("driver.countRc=%d driver.count=%d ", answer, count);
  for (int i = 0; i < count; ++i) {
    unsigned char uuid[16] = {0};
    int device = -7;
    if (get(&device, i) == 0 && get_uuid(uuid, device) == 0) print_uuid("driver.uuid", i, uuid);
  }
}

static void list(void) {
  static struct cudaDeviceProp properties;
  int count = -7;
  if (is("first", "nvml")) print_nvml("nvml.");
  const uint64_t start = now_ns();
  const int answer = cudaGetDeviceCount(&count);
  printf("cudaGetDeviceCount=%d firstNs=%llu count=%d ", answer,
         (unsigned long long)(now_ns() - start), count);
  for (int i = 0; answer == 0 && i < count; ++i) {
    const int got = cudaGetDeviceProperties(&properties, i);
    printf("properties%d=%d ", i, got);
    if (got == 0) {
      print_uuid("uuid", i, &properties.uuid);
      printf("pci%d=%08X:%02X:%02X ", i, properties.pciDomainID, properties.pciBusID,
             properties.pciDeviceID);
    }
    if (!is("copy", "0")) printf("copy%d=%s ", i, copy_there_and_back(i));
  }
  if (!is("first", "nvml")) print_nvml("nvml.");
  print_driver();
}

static void print_call(const char* name, int answer) {
  // The program asks twice, because an error must be there only once.
  const int last = cudaGetLastError();
  const int again = cudaGetLastError();
  printf("%s=%d %s.last=%d %s.again=%d ", name, answer, name, last, name, again);
}

static void index_calls(int index) {
  static struct cudaDeviceProp properties;
  int value = -7;
  int current = -7;
  int count = -7;
  const int answer = cudaGetDeviceCount(&count);
  printf("cudaGetDeviceCount=%d count=%d ", answer, count);
  print_call("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, index));
  print_uuid("propertiesUuid", 0, &properties.uuid);
  print_call("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, index));
  printf("attribute=%d ", value);
#if CUDART_VERSION >= 12000
  print_call("cudaInitDevice",
             cudaInitDevice(index, cudaDeviceMapHost, cudaInitDeviceFlagsAreValid));
#endif
  print_call("cudaSetDevice", cudaSetDevice(index));
  const int got = cudaGetDevice(&current);
  printf("cudaGetDevice=%d current=%d ", got, current);
}

int main(int argc, char** argv) {
  g_argc = argc;
  g_argv = argv;
  const char* what = option("do", "list");
  if (strcmp(what, "index") == 0) {
    index_calls(number("index", 99));
  } else if (strcmp(what, "calls") == 0) {
    const int answer = cudaSetDevice(0);
    printf("cudaSetDevice=%d ", answer);
    if (answer == 0) TIME_CALLS(cudaSetDevice(0));
  } else {
    list();
  }
  printf("\n");
  return 0;
}
