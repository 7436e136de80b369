// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include "shim/launcher/findings/symbols.h"
#include "shim/launcher/unwind/unwind.h"

/// Prints lines of the form FILE+0xOFFSET NAME, then "complete" or "cut: REASON". `names` is the
/// file that has the names of the scenarios, or null.
inline void print_stack(const cudaguard::launcher::NativeStack& stack, const char* names) {
  cudaguard::launcher::Symbols symbols;
  for (cudaguard::launcher::NativeFrame frame : stack.frames) {
    printf("%s+0x%llx ", frame.module.c_str(), static_cast<unsigned long long>(frame.offset));
    const bool is_scenarios = frame.module.find("/scenarios") != std::string::npos;
    if (names != nullptr && is_scenarios) frame.module = names;
    printf("%s\n", symbols.name_of(frame).c_str());
  }
  printf("%s%s\n", stack.cut.empty() ? "complete" : "cut: ", stack.cut.c_str());
}
