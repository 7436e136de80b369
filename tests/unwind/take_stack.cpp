// SPDX-License-Identifier: Apache-2.0
// Starts a program and prints the native stack of its first thread that gets SIGUSR1. Like the
// launcher, it uses only the registers that a called function must preserve.
//   take_stack [--names-from FILE] PROGRAM WORD...
#include <cstdio>
#include <cstring>

#include "shim/launcher/findings/symbols.h"
#include "shim/launcher/unwind/unwind.h"
#include "tests/unwind/traced.h"

using namespace cudaguard::launcher;

/// Prints lines of the form FILE+0xOFFSET NAME, then "complete" or "cut: REASON". `names` is the
/// file that has the names of the scenarios, or null.
static void print_stack(const NativeStack& stack, const char* names) {
  Symbols symbols;
  for (NativeFrame frame : stack.frames) {
    printf("%s+0x%llx ", frame.module.c_str(), static_cast<unsigned long long>(frame.offset));
    const bool is_scenarios = frame.module.find("/scenarios") != std::string::npos;
    if (names != nullptr && is_scenarios) frame.module = names;
    printf("%s\n", symbols.name_of(frame).c_str());
  }
  printf("%s%s\n", stack.cut.empty() ? "complete" : "cut: ", stack.cut.c_str());
}

int main(int count, char** words) {
  const char* names = nullptr;
  if (count > 2 && strcmp(words[1], "--names-from") == 0) {
    names = words[2];
    words += 2;
  }
  const pid_t thread = run_until_signal(words + 1);
  if (thread <= 0) return thread == 0 ? 77 : 1;
  WaitingProcess process(thread);
  print_stack(unwind(process, registers_of(thread)), names);
  return 0;  // PTRACE_O_EXITKILL ends the program.
}
