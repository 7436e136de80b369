/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads make the first request of a process, the main thread first. The program then prints
 * which library the hooks have loaded in place of the driver. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void* second(void* unused) {
  usleep(100 * 1000); /* the first thread is delayed in the middle of its request */
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
