// SPDX-License-Identifier: Apache-2.0
// Calls cuInit while libgcc holds the lock of the unwind tables that were registered with it:
//
//   unwind_tables forks ROUNDS    in children forked while other threads throw
//   unwind_tables signals ROUNDS  in a signal handler that interrupts a throw
//
// A JIT compiler (LLVM's, and so numba's) registers such tables. From then on, libgcc takes its
// lock for each frame of a throw and follows the list of tables under it. With many tables, the
// lock is held most of the time. Prints how many children ended as the first one: with which exit
// code (cuInit's answer), or by which signal. After a child of another kind, it stops.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

extern "C" void __register_frame(void*);

namespace {

constexpr int kPage = 4096;
constexpr int kTables = 2000;
constexpr int kThrowers = 2;
constexpr unsigned kPatience = 30;  // seconds after which an alarm ends a waiting child

int (*g_init)(unsigned);

// A .eh_frame of one CIE and one FDE, for a page of code that never runs.
struct Table {
  unsigned cie_length = 20;
  unsigned cie_id = 0;
  unsigned char version = 1;
  char augmentation = 0;
  unsigned char code_alignment = 1;
  unsigned char data_alignment = 0x78;  // -8
  unsigned char return_register = 16;
  unsigned char cfa[3] = {0x0c, 7, 8};  // DW_CFA_def_cfa rsp 8
  unsigned char padding[8] = {};        // DW_CFA_nop
  unsigned fde_length = 20;
  unsigned to_cie = 28;
  char* code = nullptr;
  unsigned long size = kPage;
  unsigned terminator = 0;
} __attribute__((packed));
static_assert(offsetof(Table, to_cie) == 28 && offsetof(Table, terminator) == 48);

void register_tables() {
  const size_t size = static_cast<size_t>(kTables) * kPage;
  void* code = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (code == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  // The last page comes first, because libgcc sorts the tables, and sorts this order in linear
  // time.
  for (int i = kTables - 1; i >= 0; --i) {
    auto* table = new Table;
    table->code = static_cast<char*>(code) + static_cast<size_t>(i) * kPage;
    __register_frame(table);
  }
}

void throw_once() {
  try {
    throw std::runtime_error("x");
  } catch (const std::exception&) {
  }
}

[[noreturn]] void* throw_always(void*) {
  for (;;) throw_once();
}

void ask_and_exit(int) { _exit(g_init(0)); }

[[noreturn]] void ask_in_handler(int round) {
  signal(SIGVTALRM, ask_and_exit);
  const struct itimerval soon = {{0, 0}, {0, 500 + (round * 37) % 2000}};
  setitimer(ITIMER_VIRTUAL, &soon, nullptr);
  for (;;) throw_once();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool in_signals = strcmp(argv[1], "signals") == 0;
  register_tables();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 3;
  g_init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  throw_once();  // libgcc sorts the tables
  for (int i = 0; i < kThrowers && !in_signals; ++i) {
    pthread_t thread;
    pthread_create(&thread, nullptr, throw_always, nullptr);
  }
  int first = 0;
  int ended = 0;
  for (int status = 0; ended < std::stoi(argv[2]); ++ended) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatience);
      if (in_signals) ask_in_handler(ended);
      _exit(g_init(0));
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 4;
    if (ended == 0) first = status;
    if (status != first) break;
  }
  printf(WIFEXITED(first) ? "%d ended with %d\n" : "%d killed by %d\n", ended,
         WIFEXITED(first) ? WEXITSTATUS(first) : WTERMSIG(first));
  fflush(stdout);
  _exit(0);
}
