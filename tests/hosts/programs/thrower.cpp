// SPDX-License-Identifier: Apache-2.0
// A C++ library whose threads permanently throw and catch.
#include <stdexcept>
#include <thread>

extern "C" void begin() {
  for (int i = 0; i < 2; ++i)
    std::thread([] {
      for (;;) {
        try {
          throw std::runtime_error("x");
        } catch (const std::exception&) {
        }
      }
    }).detach();
}
