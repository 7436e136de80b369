// SPDX-License-Identifier: Apache-2.0
// Prints how many nanoseconds the first cuInit of this process takes, a few frames deep in a
// program with an unwinder (libstdc++ brings libgcc_s).
#include <dlfcn.h>

#include <chrono>
#include <iostream>

namespace {

using Init = int (*)(unsigned);

[[gnu::noinline]] long deep(Init init, int frames) {
  if (frames > 0) {
    const long spent = deep(init, frames - 1);
    asm volatile("" ::: "memory");  // prevents a tail call
    return spent;
  }
  const auto start = std::chrono::steady_clock::now();
  init(0);
  return (std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto init = driver != nullptr ? reinterpret_cast<Init>(dlsym(driver, "cuInit")) : nullptr;
  if (init == nullptr) return 1;
  std::cout << deep(init, 12) << "\n";
}
