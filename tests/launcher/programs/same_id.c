// SPDX-License-Identifier: Apache-2.0
// A thread announces an attempt and ends the process. A child that then gets the thread's id
// announces NVML and takes that back.
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t* id;
static void send(unsigned long kind) { syscall(SYS_getpid, 0x6375646167756172ul, kind, 0ul, 0ul); }
static void* ask_and_end(void* none) {
  *id = gettid();
  send(2);
  _exit(0);
  return none;
}
int main(void) {
  id = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (fork() == 0) {
    pthread_t thread;
    pthread_create(&thread, 0, ask_and_end, 0);
    pause();
  }
  wait(0);
  struct clone_args same = {
      .exit_signal = SIGCHLD, .set_tid = (unsigned long)id, .set_tid_size = 1};
  long child = -1;
  while (child < 0) {
    child = syscall(SYS_clone3, &same, sizeof same);
    if (child < 0 && errno != EEXIST) return 9;
  }
  if (child == 0) {
    send(3);
    send(6);
    _exit(0);
  }
  wait(0);
  return 0;
}
