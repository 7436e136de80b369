// SPDX-License-Identifier: Apache-2.0
// Stops at a known place of a known stack and sends itself SIGUSR1, for which a tracer waits.
//   scenarios NAME
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

extern "C" {

// Each function does something after its call, because a tail call would replace its frame.
NOINLINE void stop_here() {
  raise(SIGUSR1);
  asm volatile("");
}

NOINLINE void user_function() {
  stop_here();
  asm volatile("");
}

NOINLINE void deep(int depth) {
  if (depth == 0) {
    user_function();
  } else {
    deep(depth - 1);
  }
  asm volatile("");
}

/// This function needs a frame pointer and a cleanup.
NOINLINE void with_array(size_t size) {
  std::vector<std::string> texts(size, "text");
  auto* room = static_cast<volatile char*>(__builtin_alloca(size * 16));
  room[size] = 1;
  user_function();
  asm volatile("" : : "r"(room));
}

/// This function realigns the stack.
NOINLINE void realigned(size_t size) {
  alignas(64) volatile char room[64] = {};
  room[size % 64] = 1;
  with_array(size);
  asm volatile("" : : "r"(room));
}

int compare_items(const void* /*one*/, const void* /*other*/) {
  static bool done = false;
  if (!done) {
    done = true;
    realigned(10);
  }
  return 0;
}

NOINLINE void sort_items() {
  int items[] = {3, 2, 1};
  qsort(items, 3, sizeof *items, compare_items);
  asm volatile("");
}

void on_signal(int /*number*/) { user_function(); }

NOINLINE void faulting(volatile int* nowhere) {
  *nowhere = 1;
  asm volatile("");
}

// NOLINTBEGIN(clang-analyzer-*): the child does what a child of vfork should not do.
NOINLINE void vfork_here() {
  if (vfork() == 0) {
    user_function();
    _exit(0);
  }
}
// NOLINTEND(clang-analyzer-*)

ucontext_t main_context;
ucontext_t coroutine;
void in_coroutine() { user_function(); }

NOINLINE void run_coroutine() {
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = malloc(65536);
  coroutine.uc_stack.ss_size = 65536;
  coroutine.uc_link = &main_context;
  makecontext(&coroutine, in_coroutine, 0);
  swapcontext(&main_context, &coroutine);
}

NOINLINE void run_generated() {
#if defined(__x86_64__)
  const unsigned char code[] = {0x48, 0x83, 0xec, 0x08,  // sub $8, %rsp
                                0xff, 0xd7,              // call *%rdi
                                0x48, 0x83, 0xc4, 0x08,  // add $8, %rsp
                                0xc3};                   // ret
#elif defined(__aarch64__)
  const unsigned code[] = {0xa9bf7bfd,   // stp x29, x30, [sp, #-16]!
                           0xd63f0000,   // blr x0
                           0xa8c17bfd,   // ldp x29, x30, [sp], #16
                           0xd65f03c0};  // ret
#endif
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(static_cast<char*>(page), static_cast<char*>(page) + sizeof code);
  reinterpret_cast<void (*)(void (*)())>(page)(user_function);
  asm volatile("");
}

NOINLINE void change_root() {
  char directory[] = "/tmp/unwind-root-XXXXXX";
  if (mkdtemp(directory) == nullptr) _exit(1);
  if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) _exit(77);
  const int changed = chdir(directory) | rmdir(directory) | chroot(".");
  if (changed != 0) _exit(77);
  user_function();
}

}  // extern "C"

int main(int count, char** words) {
  auto* nowhere = reinterpret_cast<volatile int*>(8L * count);
  const std::string name = words[1];
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  if (name == "plain") user_function();
  if (name == "sort") sort_items();
  if (name == "deep") deep(200);
  if (name == "thread") std::thread(sort_items).join();
  if (name == "signal") faulting(nowhere);
  if (name == "alternate") {
    stack_t stack = {};
    stack.ss_sp = malloc(65536);
    stack.ss_size = 65536;
    sigaltstack(&stack, nullptr);
    faulting(nowhere);
  }
  if (name == "vfork") vfork_here();
  if (name == "coroutine") run_coroutine();
  if (name == "generated") run_generated();
  if (name == "chroot") change_root();
  if (name == "deleted" && unlink(words[0]) == 0) user_function();
  return 0;
}
