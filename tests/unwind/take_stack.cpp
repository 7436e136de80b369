// SPDX-License-Identifier: Apache-2.0
// Starts a program and prints the native stack of its first thread that gets SIGUSR1, as the
// launcher takes it: from those registers alone that a called function must preserve.
//   take_stack [--names-from FILE] PROGRAM WORD...
// Lines: FILE+0xOFFSET NAME; at the end "complete" or "cut: REASON".
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "shim/launcher/print/symbols.h"
#include "shim/launcher/unwind/unwind.h"
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
  const NativeStack stack = unwind(process, registers_of(thread));
  Symbols symbols;
  for (NativeFrame frame : stack.frames) {
    printf("%s+0x%llx ", frame.module.c_str(), static_cast<unsigned long long>(frame.offset));
    if (names != nullptr && frame.module.find("scenarios") != std::string::npos) {
      frame.module = names;
    }
    printf("%s\n", symbols.name_of(frame).c_str());
  }
  if (stack.cut == nullptr) {
    puts("complete");
  } else {
    printf("cut: %s\n", stack.cut);
  }
  return 0;  // PTRACE_O_EXITKILL ends the program.
}
