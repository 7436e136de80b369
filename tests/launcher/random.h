// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// splitmix64: the same inputs on every machine.
class Random {
 public:
  uint64_t below(uint64_t limit) {
    state_ += 0x9e3779b97f4a7c15U;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  uint64_t state_ = 1;
};
