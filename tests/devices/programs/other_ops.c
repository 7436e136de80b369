// SPDX-License-Identifier: Apache-2.0
// What a program does besides its calls, and must neither bypass the guard with nor lose to it:
//   nofile=N       allows no more than N open files from here on
//   kept=STEP      makes a dlopen fail, sets errno to 77 and takes a step of the driver; prints its
//                  answer, errno and dlerror
//   raise=N        sends this signal to itself
//   context=NAME   finds the symbol with RTLD_DEFAULT and calls it as cuCtxCreate_v4
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "ops.h"

static void limit_files(struct answer* out, int number) {
  const struct rlimit limit = {(rlim_t)number, (rlim_t)number};
  put(out, "%d", setrlimit(RLIMIT_NOFILE, &limit));
}

static void keep(struct answer* out, const char* step) {
  struct answer own = {.used = 0};
  if (dlopen("no-such-library.so", RTLD_NOW) != NULL) return;
  errno = 77;
  const int known = driver_step(step, "", &own);
  const int error = errno;
  const char* text = dlerror();
  put(out, "%d:%s:%d:", known, own.text, error);
  put_word(out, text == NULL ? "null" : text);
}

static void make_context(struct answer* out, const char* name) {
  int (*create)(void**, void*, unsigned, int) =
      (int (*)(void**, void*, unsigned, int))dlsym(RTLD_DEFAULT, name);
  void* context = NULL;
  if (create == NULL) {
    put(out, "null");
  } else {
    put(out, "%d", create(&context, NULL, 0, 0));
  }
}

int other_step(const char* name, const char* value, struct answer* out) {
  if (strcmp(name, "nofile") == 0) {
    limit_files(out, atoi(value));
  } else if (strcmp(name, "kept") == 0) {
    keep(out, value);
  } else if (strcmp(name, "raise") == 0) {
    put(out, "%d", raise(atoi(value)));
  } else if (strcmp(name, "context") == 0) {
    make_context(out, value);
  } else {
    return 0;
  }
  return 1;
}
