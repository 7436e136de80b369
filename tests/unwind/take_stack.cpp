// SPDX-License-Identifier: Apache-2.0
// Starts a program and prints the native stack of its first thread that gets SIGUSR1. Like the
// launcher, it uses only the registers that a called function must preserve.
//   take_stack [--names-from FILE] PROGRAM WORD...
#include <cstring>

#include "tests/unwind/printed.h"
#include "tests/unwind/traced.h"

using namespace cudaguard::launcher;

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
