// SPDX-License-Identifier: Apache-2.0
// Measures the cost of one call in a process as scripts/bench sets it up (nothing, an empty
// library, or the guard preloaded). CG_BENCH_NULL_DRIVERS=DIR loads the two null drivers as the
// guard would.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

// NOLINTBEGIN(clang-analyzer-deadcode.DeadStores): Google Benchmark's loop variable

extern "C" [[gnu::weak]] int cuInit(unsigned flags);  // null without the guard

using Init = int (*)(unsigned);

void load_null_drivers() {
  const char* directory = std::getenv("CG_BENCH_NULL_DRIVERS");
  if (directory == nullptr) return;
  for (const char* file : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    if (dlopen((std::string(directory) + "/" + file).c_str(), RTLD_LAZY) == nullptr) std::abort();
  }
}

void call_init(benchmark::State& state, Init init) {
  if (init == nullptr) {
    state.SkipWithError("no cuInit");
    return;
  }
  benchmark::DoNotOptimize(init(0));
  for (auto _ : state) benchmark::DoNotOptimize(init(0));
}

/// Calls the guard's own export, as a linked program does.
void cu_init_linked(benchmark::State& state) { call_init(state, &cuInit); }
BENCHMARK(cu_init_linked);

/// Calls the function of the driver's handle, as all other programs do.
void cu_init_opened(benchmark::State& state) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  call_init(state, driver ? reinterpret_cast<Init>(dlsym(driver, "cuInit")) : nullptr);
}
BENCHMARK(cu_init_opened);

/// Calls a function of a library that does nothing else.
void cu_init_by_hand(benchmark::State& state) {
  void* plugin = dlopen(std::getenv("CG_BENCH_PLUGIN"), RTLD_LAZY);
  call_init(state, plugin ? reinterpret_cast<Init>(dlsym(plugin, "cg_bench_empty")) : nullptr);
}
BENCHMARK(cu_init_by_hand);

void open_and_close(benchmark::State& state, const char* given) {
  // The name always has the same alignment. ld.so compares it with every library's name, and strcmp
  // takes half as long again if the alignments differ.
  alignas(64) static char name[4096];
  std::snprintf(name, sizeof name, "%s", given);
  void* held = dlopen(name, RTLD_LAZY);
  if (held == nullptr) {
    state.SkipWithError(dlerror());
    return;
  }
  for (auto _ : state) dlclose(dlopen(name, RTLD_LAZY));
}

/// This library was loaded before the null drivers.
void dlopen_early(benchmark::State& state) { open_and_close(state, "libm.so.6"); }
BENCHMARK(dlopen_early);

/// This library was loaded after the null drivers, so ld.so passes them on its list.
void dlopen_late(benchmark::State& state) { open_and_close(state, std::getenv("CG_BENCH_PLUGIN")); }
BENCHMARK(dlopen_late);

void dlsym_handle(benchmark::State& state) {
  void* libm = dlopen("libm.so.6", RTLD_LAZY);
  for (auto _ : state) benchmark::DoNotOptimize(dlsym(libm, "cos"));
}
BENCHMARK(dlsym_handle);

void dlsym_default(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(dlsym(RTLD_DEFAULT, "cos"));
}
BENCHMARK(dlsym_default);

/// The fence allows this system call whatever its arguments are.
void kernel_getppid(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(syscall(SYS_getppid));
}
BENCHMARK(kernel_getppid);

/// Three directories deep, as a Landlock domain looks at each of them.
void kernel_open(benchmark::State& state) {
  for (auto _ : state) close(open("/usr/lib/os-release", O_RDONLY | O_CLOEXEC));
}
BENCHMARK(kernel_open);

void ask(benchmark::State& state, unsigned long request) {
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  termios answer = {};
  for (auto _ : state) benchmark::DoNotOptimize(ioctl(file, request, &answer));
  close(file);
}

/// The fence checks the request of this system call.
void kernel_ioctl(benchmark::State& state) { ask(state, TCGETS); }
BENCHMARK(kernel_ioctl);

/// The fence refuses this request, which is NVIDIA's RM_CONTROL.
void kernel_refused(benchmark::State& state) { ask(state, 0xc020462a); }
BENCHMARK(kernel_refused);

// NOLINTEND(clang-analyzer-deadcode.DeadStores)

}  // namespace

int main(int argc, char** argv) {
  load_null_drivers();
  dlopen(nullptr, RTLD_LAZY);  // the guard's first dlopen
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
