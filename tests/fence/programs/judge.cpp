// SPDX-License-Identifier: Apache-2.0
// Prints 1 for each request on the standard input that is one of NVIDIA's, and 0 for each other
// one.
#include <cstdio>
#include <cstdlib>

#include "policy/nvidia_requests.h"

int main() {
  char line[64];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    const auto request = static_cast<unsigned>(strtoul(line, nullptr, 16));
    putchar(cudaguard::is_nvidia_request(request) ? '1' : '0');
  }
}
