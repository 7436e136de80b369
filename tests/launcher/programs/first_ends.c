// SPDX-License-Identifier: Apache-2.0
// The first thread ends, and another one asks for CUDA.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
static void* run(void* unused) {
  usleep(50000);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = NULL;
  if (driver != NULL) *(void**)&init = dlsym(driver, "cuInit");
  const int answer = init == NULL ? -1 : init(0);
  usleep(500000);
  _exit(answer < 0);
  return unused;
}
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) != 0) return 8;
  pthread_exit(NULL);
}
