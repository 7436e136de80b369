// SPDX-License-Identifier: Apache-2.0
// Prints how many nanoseconds the first cuInit of this process takes, a few frames deep in a
// program with an unwinder (libstdc++ brings libgcc_s), and how many a read of its memory map
// takes.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

namespace {

using Clock = std::chrono::steady_clock;
using Init = int (*)(unsigned);

[[gnu::noinline]] long deep(Init init, int frames) {
  if (frames > 0) {
    const long spent = deep(init, frames - 1);
    asm volatile("" ::: "memory");  // prevents a tail call
    return spent;
  }
  const auto start = Clock::now();
  init(0);
  return (Clock::now() - start).count();
}

long read_maps() {
  static char text[4096];
  const auto start = Clock::now();
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  while (read(file, text, sizeof text) > 0) continue;
  close(file);
  return (Clock::now() - start).count();
}

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto init = driver != nullptr ? reinterpret_cast<Init>(dlsym(driver, "cuInit")) : nullptr;
  if (init == nullptr) return 1;
  const long spent = deep(init, 12);
  std::cout << spent << " " << read_maps() << "\n";
}
