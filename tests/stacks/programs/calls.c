// SPDX-License-Identifier: Apache-2.0
// Ways to call a function that Python's ctypes does not have. Each takes cuInit's address.
#include <pthread.h>
#include <unistd.h>

typedef int (*Init)(unsigned);

static void* run(void* init) {
  ((Init)init)(0);
  return NULL;
}

/// Calls it in a thread that Python does not know.
int call_in_thread(Init init) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, (void*)init) != 0) return -1;
  return pthread_join(thread, NULL);
}

/// Sets `state` to 1, waits until `go` is set, calls the function and sets `state` to 2. If CDLL
/// calls this, the interpreter can end meanwhile.
int call_when(Init init, volatile int* go, volatile int* state) {
  *state = 1;
  while (*go == 0) usleep(1000);
  const int answer = init(0);
  *state = 2;
  return answer;
}

/// Passes cuInit to one of Python's own functions, which calls it.
int call_back(int (*function)(int)) { return function(0) + 1; }
