// SPDX-License-Identifier: Apache-2.0
// Shapes of a process that asks for CUDA. argv: the shape, and "attempt" or another word.
// test_beacon.py reads the names of the shapes from this file.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
extern char** environ;
static int (*init)(unsigned);
static int attempts;
static void load(void) {
  if (attempts) init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
}
/* Not a tail call: it is the user's frame of every stack. */
__attribute__((noinline)) static void ask(void) {
  if (attempts) init(0);
  __asm__ volatile("");
}
static void attempt(void) {
  load();
  ask();
}
static void do_nothing(int number) { (void)number; }
static void* attempt_in_thread(void* none) {
  attempt();
  return none;
}
static int attempt_in_clone(void* none) {
  (void)none;
  attempt();
  _exit(0);
}
static void limit(int which, rlim_t to) {
  struct rlimit one = {to, to};
  setrlimit(which, &one);
}
static void refuse(int number, int answer) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {4, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, 2, &program) != 0) abort();
}
static void child(void (*work)(void)) {
  const pid_t pid = fork();
  if (pid == 0) {
    work();
    _exit(0);
  }
  waitpid(pid, NULL, 0);
}
static void clear_and_attempt(void) {
  clearenv();
  attempt();
}
static ucontext_t caller_context, coroutine;
static void on_stack(void* stack, size_t size) {
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = stack;
  coroutine.uc_stack.ss_size = size;
  coroutine.uc_link = &caller_context;
  makecontext(&coroutine, attempt, 0);
  swapcontext(&caller_context, &coroutine);
}
static char inner[1 << 18] __attribute__((aligned(16)));
#define SHAPE(name) else if (strcmp(words[1], #name) == 0)
int main(int count, char** words) {
  if (count < 3) return 9;
  attempts = strcmp(words[2], "attempt") == 0;
  if (strcmp(words[1], "") == 0) return 8;
  SHAPE(plain) attempt();
  SHAPE(clearenv) clear_and_attempt();
  SHAPE(zeroed) {
    for (char** one = environ; *one; ++one) memset(*one, 0, strlen(*one));
    attempt();
  }
  SHAPE(forked_clear) child(clear_and_attempt);
  SHAPE(grandchild) {
    if (fork() == 0) {
      setsid();
      if (fork() == 0) {
        usleep(200000);
        attempt();
      }
      _exit(0);
    }
  }
  SHAPE(vfork) {
    if (vfork() == 0) {
      attempt();
      _exit(0);
    }
    wait(NULL);
  }
  SHAPE(clone_vm) {
    clone(attempt_in_clone, (char*)malloc(1 << 20) + (1 << 20), CLONE_VM | SIGCHLD, NULL);
    wait(NULL);
  }
  SHAPE(thread) {
    pthread_t one;
    pthread_create(&one, NULL, attempt_in_thread, NULL);
    pthread_join(one, NULL);
  }
  SHAPE(coroutine) on_stack(inner, sizeof inner);
  SHAPE(at_exit) atexit(attempt);
  SHAPE(no_files) {
    load();
    limit(RLIMIT_NOFILE, 0);
    ask();
  }
  SHAPE(no_memory) {
    load();
    limit(RLIMIT_AS, 1 << 20);
    ask();
  }
  SHAPE(chroot) {
    load();
    if (chroot("/proc/self/fdinfo") != 0) return 7;
    ask();
  }
  SHAPE(nobody) {
    if (setgid(65534) != 0 || setuid(65534) != 0) return 7;
    attempt();
  }
  SHAPE(not_dumpable) {
    prctl(PR_SET_DUMPABLE, 0);
    attempt();
  }
  SHAPE(kills_write) {
    load();
    refuse(SYS_write, SECCOMP_RET_KILL_PROCESS);
    ask();
  }
  SHAPE(refuses_ioctl) {
    load();
    refuse(SYS_ioctl, SECCOMP_RET_KILL_PROCESS);
    ask();
  }
  SHAPE(refuses_getpid) {
    load();
    refuse(SYS_getpid, SECCOMP_RET_ERRNO | 1);
    ask();
  }
  SHAPE(killed) {
    attempt();
    kill(getpid(), SIGKILL);
  }
  SHAPE(timer) {
    struct itimerval every = {{0, 50}, {0, 50}};
    signal(SIGALRM, SIG_IGN);
    struct sigaction action = {.sa_handler = do_nothing};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    attempt();
    setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
  }
  SHAPE(new_user) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 7;
    attempt();
  }
  SHAPE(new_pids) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 7;
    child(attempt);
  }
  SHAPE(execs_unguarded) {
    char preload[4096] = "LD_PRELOAD=", path[4096] = "LD_LIBRARY_PATH=";
    strncat(preload, getenv("LD_PRELOAD"), 4000);
    if (getenv("LD_LIBRARY_PATH")) strncat(path, getenv("LD_LIBRARY_PATH"), 4000);
    char* unguarded[] = {preload, path, NULL};
    char* again[] = {words[0], "plain", words[2], NULL};
    execve(words[0], again, unguarded);
  }
  else if (strcmp(words[1], "execs under a filter") == 0) {
    refuse(SYS_getpid, SECCOMP_RET_ERRNO | 1);
    execv(words[0], (char*[]){words[0], "plain", words[2], NULL});
  }
  else return 8;
  return 0;
}
