// SPDX-License-Identifier: Apache-2.0
// Functions with names that ask the CUDA runtime for its devices. The default is a program; FORK
// makes it ask in a child. PLUGIN makes a library, and ON_LOAD one that asks while it is loaded.
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#define NOINLINE __attribute__((noinline))

namespace train {

volatile int answer;

struct Settings {
  std::string name;  // a C++ program has libstdc++ and therefore the unwinder
};

NOINLINE int device_count() {
  int count = -1;
  const int error = cudaGetDeviceCount(&count);
  return error * 1000 + count;
}

NOINLINE int begin(const Settings& settings) {
  return device_count() + std::stoi(settings.name);  // the addition prevents a tail call
}

}  // namespace train

#if defined(ON_LOAD)
namespace {
__attribute__((constructor)) void on_load() { train::answer = train::begin({"1"}); }
}  // namespace
#elif defined(PLUGIN)
extern "C" int plugin_begin() { return train::begin({"1"}) + 1; }
#else
int main() {
#ifdef FORK
  const pid_t child = fork();
  if (child == 0) _exit(train::begin({"1"}) == 12345);
  waitpid(child, nullptr, 0);
#else
  train::answer = train::begin({"1"});
#endif
}
#endif
