// SPDX-License-Identifier: Apache-2.0
// asks STEP...: speaks to NVIDIA's driver, to a file of another kind.
//   ask          RM_CONTROL, and prints the answer: "4711 ENODEV"
//   thread       the same from a thread: its process's number, as always
//   loop=N       N times
//   sizes=N      N sizes of it, as versions of the driver have them
//   timer        from here on a signal each millisecond; in the end there must have been some
//   restart, no-restart  its handler alone, with SA_RESTART and without
//   wait=FILE    until there is such a file
//   exec         the steps that follow, in a new program of this process
//   map=LIBRARY  loads it (not where it is static)
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#define RM_CONTROL 0xc020462a

static int ask(unsigned long request) {
  static int file = -1;
  if (file < 0) file = open("/dev/null", O_RDWR | O_CLOEXEC);
  return ioctl(file, request, NULL) == 0 ? 0 : errno;
}

static void* print_answer(void* unused) {
  printf("%d %s\n", (int)getpid(), strerrorname_np(ask(RM_CONTROL)));
  fflush(stdout);
  return unused;
}

static volatile sig_atomic_t signals = -1;  // -1: no timer

static void count_signal(int unused) {
  (void)unused;
  ++signals;
}

static void handle_signals(int flags) {
  const struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
  signals = 0;
  sigaction(SIGALRM, &action, NULL);
}

static void start_timer(void) {
  const struct itimerval millisecond = {{0, 1000}, {0, 1000}};
  handle_signals(SA_RESTART);
  setitimer(ITIMER_REAL, &millisecond, NULL);
}

static int number(const char* step) { return atoi(strchr(step, '=') + 1); }

int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const char* step = words[i];
    if (strcmp(step, "ask") == 0) {
      print_answer(NULL);
    } else if (strcmp(step, "thread") == 0) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, print_answer, NULL) != 0) return 3;
      pthread_join(thread, NULL);
    } else if (strncmp(step, "loop=", 5) == 0) {
      for (int n = number(step); n > 0; --n) {
        if (ask(RM_CONTROL) != ENODEV) return 4;
      }
    } else if (strncmp(step, "sizes=", 6) == 0) {
      for (unsigned n = (unsigned)number(step); n > 0; --n) {
        if (ask(0xc000462a | n << 16) != ENODEV) return 4;
      }
    } else if (strcmp(step, "timer") == 0) {
      start_timer();
    } else if (strcmp(step, "restart") == 0) {
      handle_signals(SA_RESTART);
    } else if (strcmp(step, "no-restart") == 0) {
      handle_signals(0);
    } else if (strncmp(step, "wait=", 5) == 0) {
      while (access(step + 5, F_OK) != 0) usleep(10000);
    } else if (strcmp(step, "exec") == 0) {
      words[i] = words[0];
      execv(words[0], words + i);
      return 5;
#ifdef CAN_MAP
    } else if (strncmp(step, "map=", 4) == 0) {
      if (dlopen(step + 4, RTLD_NOW) == NULL) return 6;
    } else if (strncmp(step, "call=", 5) == 0) {
      void* library = dlopen(step + 5, RTLD_NOW);
      if (library == NULL) return 6;
      ((void (*)(void))dlsym(library, "send_ioctl"))();
#endif
    } else {
      return 2;
    }
  }
  return signals == 0 ? 7 : 0;
}
