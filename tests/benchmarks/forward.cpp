// SPDX-License-Identifier: Apache-2.0
// Measures the cost of a call that is forwarded to the driver or to the runtime. Both are small
// libraries of these benchmarks (forward_driver.c, forward_runtime.c), found by LD_LIBRARY_PATH.
//   bench_forward [Google Benchmark's options]
//   bench_forward where      prints the files of the driver's functions in this process
// With FORWARD_LINKED the program is linked to the driver and calls it as the linker bound it.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
int cudaSetDevice(int device);
int forward_user_set_device(int device, long times);
#ifdef FORWARD_LINKED
int cuInit(unsigned flags);
int cuDeviceGet(int* device, int ordinal);
#endif
}

namespace {

// NOLINTBEGIN(clang-analyzer-deadcode.DeadStores): Google Benchmark's loop variable

using Init = int (*)(unsigned);
using Get = int (*)(int*, int);
using Attribute = int (*)(int*, int, int);

void check(benchmark::State& state, int answer) {
  if (answer != 0) state.SkipWithError("a call failed");
}

#ifdef FORWARD_LINKED

void device_get_linked(benchmark::State& state) {
  int device = 0;
  check(state, cuInit(0));
  check(state, cuDeviceGet(&device, 3));
  for (auto _ : state) benchmark::DoNotOptimize(cuDeviceGet(&device, 3));
}
BENCHMARK(device_get_linked);

#else

void* driver() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (handle == nullptr) std::abort();
  return handle;
}

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(driver(), name));
}

template <typename... Arguments>
std::atomic<int (*)(Arguments...)> next_definition;

/// The least that a library between the program and the driver must do.
template <typename... Arguments>
int by_hand(Arguments... arguments) {
  const auto next = next_definition<Arguments...>.load(std::memory_order_acquire);
  return next == nullptr ? 500 : next(arguments...);
}

template <typename... Arguments>
auto forwarder(int (*next)(Arguments...)) {
  next_definition<Arguments...> = next;
  auto* function = &by_hand<Arguments...>;
  benchmark::DoNotOptimize(function);  // otherwise the compiler inlines it
  return function;
}

void set_device_by_hand(benchmark::State& state) {
  const auto set = forwarder(&cudaSetDevice);
  check(state, set(3));
  for (auto _ : state) benchmark::DoNotOptimize(set(3));
}
BENCHMARK(set_device_by_hand);

void set_device(benchmark::State& state) {
  check(state, cudaSetDevice(3));
  for (auto _ : state) benchmark::DoNotOptimize(cudaSetDevice(3));
}
BENCHMARK(set_device);

/// The caller is a library.
void set_device_library(benchmark::State& state) {
  constexpr long kBatch = 1000;
  int answer = 0;
  while (state.KeepRunningBatch(kBatch)) answer |= forward_user_set_device(3, kBatch);
  check(state, answer);
}
BENCHMARK(set_device_library);

void device_get(benchmark::State& state) {
  const auto get = find<Get>("cuDeviceGet");
  int device = 0;
  check(state, find<Init>("cuInit")(0));
  check(state, get(&device, 3));
  for (auto _ : state) benchmark::DoNotOptimize(get(&device, 3));
}
BENCHMARK(device_get);

void device_get_by_hand(benchmark::State& state) {
  const auto get = forwarder(find<Get>("cuDeviceGet"));
  int device = 0;
  check(state, get(&device, 3));
  for (auto _ : state) benchmark::DoNotOptimize(get(&device, 3));
}
BENCHMARK(device_get_by_hand);

/// This name is not guarded.
void device_attribute(benchmark::State& state) {
  const auto get = find<Attribute>("cuDeviceGetAttribute");
  int value = 0;
  check(state, get(&value, 1, 3));
  for (auto _ : state) benchmark::DoNotOptimize(get(&value, 1, 3));
}
BENCHMARK(device_attribute);

void print_where(const char* name) {
  Dl_info info = {};
  void* function = dlsym(driver(), name);
  if (function == nullptr || dladdr(function, &info) == 0) std::abort();
  std::printf(
      "%s %s+%#zx\n", name, std::strrchr(info.dli_fname, '/') + 1,
      static_cast<size_t>(static_cast<char*>(function) - static_cast<char*>(info.dli_fbase)));
}

#endif

// NOLINTEND(clang-analyzer-deadcode.DeadStores)

}  // namespace

int main(int argc, char** argv) {
#ifndef FORWARD_LINKED
  if (argc > 1 && std::strcmp(argv[1], "where") == 0) {
    print_where("cuDeviceGet");
    print_where("cuDeviceGetAttribute");
    return 0;
  }
#endif
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
