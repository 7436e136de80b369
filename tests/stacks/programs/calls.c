// SPDX-License-Identifier: Apache-2.0
// Ways to call a function that Python's ctypes does not have. Each takes cuInit's address.
#include <pthread.h>
#include <unistd.h>

typedef int (*Init)(unsigned);

int call_here(Init init) { return init(0); }

static void* run(void* init) {
  ((Init)init)(0);
  return NULL;
}

/// In a thread that Python has never seen.
int call_in_thread(Init init) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, (void*)init) != 0) return -1;
  return pthread_join(thread, NULL);
}

/// After so long. (Called by CDLL the interpreter goes on meanwhile, or ends.)
int call_later(Init init, unsigned milliseconds) {
  usleep(milliseconds * 1000);
  return init(0);
}

/// By a function of Python's own.
int call_back(int (*function)(int)) { return function(0) + 1; }
