// SPDX-License-Identifier: Apache-2.0
// Loads two plug-ins with RTLD_LOCAL that are linked to runtimes of different major versions:
//   together A B   both stay loaded and are called in turn
//   replace A B    A, call, dlclose, B (perhaps at A's address), call, dlclose; three times
//   tail A B       both loaded; their call of the runtime is in tail position
//   threads A B    both loaded; eight threads call them in turn
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include "probe.h"

typedef void (*probe_function)(int);
typedef int (*tail_function)(int*);

static void* load(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) probe_print(1, "open=null error=%s\n", dlerror());
  return handle;
}

static void call(void* handle) { ((probe_function)dlsym(handle, "plugin_probe"))(1); }

static void* call_both(void* handles) {
  for (int i = 0; i < 50; ++i) {
    call(((void**)handles)[0]);
    call(((void**)handles)[1]);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  if (strcmp(argv[1], "replace") == 0) {
    void* last = NULL;
    for (int i = 0; i < 6; ++i) {
      void* handle = load(argv[2 + i % 2]);
      if (handle == NULL) return 1;
      struct link_map* map = NULL;
      dlinfo(handle, RTLD_DI_LINKMAP, &map);
      probe_print(2, "sameAddress=%d\n", last == (void*)map->l_addr);
      last = (void*)map->l_addr;
      call(handle);
      dlclose(handle);
    }
    return 0;
  }
  void* handles[2] = {load(argv[2]), load(argv[3])};
  if (handles[0] == NULL || handles[1] == NULL) return 1;
  if (strcmp(argv[1], "tail") == 0) {
    for (int i = 0; i < 4; ++i) {
      int count = -7;
      const int answer = ((tail_function)dlsym(handles[i % 2], "plugin_tail"))(&count);
      probe_print(1, "tail=%d:%d\n", answer, count);
    }
  } else if (strcmp(argv[1], "threads") == 0) {
    pthread_t threads[8];
    for (int i = 0; i < 8; ++i) {
      if (pthread_create(&threads[i], NULL, call_both, handles) != 0) return 1;
    }
    for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  } else {
    for (int i = 0; i < 4; ++i) call(handles[i % 2]);
  }
  return 0;
}
