/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads make the first request of a process, the main thread first; then it says whether a
 * library is one that the hooks have put in the driver's place. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void* second(void* unused) {
  usleep(100 * 1000); /* the first one is held up meanwhile, in the middle */
  return dlopen(NULL, RTLD_NOW) == NULL ? unused : NULL;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, second, NULL);
  dlopen(NULL, RTLD_NOW);
  pthread_join(thread, NULL);
  struct link_map* map = dlopen("libcuda.so.1", RTLD_NOW);
  puts(map == NULL ? "none" : strrchr(map->l_name, '/') + 1);
  return 0;
}
