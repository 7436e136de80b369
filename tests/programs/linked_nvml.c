// SPDX-License-Identifier: Apache-2.0
// A program linked to libnvidia-ml.so.1. Its argument is linked_cuda's.
#include "linked.h"

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "plt";
  if (!probe_found(way, "libnvidia-ml.so.1", probe_nvml)) {
    const int answer = nvmlInit_v2();
    const int answer_old = nvmlInit();
    const int answer_flags = nvmlInitWithFlags(0);
    unsigned count = 77;
    const int count_answer = nvmlDeviceGetCount_v2(&count);
    unsigned count_old = 77;
    nvmlDeviceGetCount(&count_old);
    const int shutdown_answer = nvmlShutdown();
    probe_print(1,
                "nvmlInit=%d nvmlInitOld=%d nvmlInitWithFlags=%d countRc=%d count=%u countOld=%u "
                "shutdown=%d\n",
                answer, answer_old, answer_flags, count_answer, count, count_old, shutdown_answer);
  }
  return 0;
}
