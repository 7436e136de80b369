// SPDX-License-Identifier: Apache-2.0
// Does what its arguments say, one after the other, and prints key=value for what it found. A
// library that was closed is not only gone: nothing can be read at its addresses any more.
//
//   open:NAME, space:NAME   dlopen with RTLD_GLOBAL, or dlmopen in a new namespace
//   init:FUNCTION           calls FUNCTION(0) of the library that was opened last
//   count:FUNCTION          the same for FUNCTION(&count)
//   run:FUNCTION            the same for FUNCTION(), whose code makes the calls
//   own                     the program itself calls the runtime
//   close                   closes that library, and lets nothing else come to its addresses
//   setenv:NAME=VALUE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// ld.so binds this to a runtime that the program has opened, at the first call.
__attribute__((weak)) int cudaGetDeviceCount(int* count);

enum { kMost = 4096 };

struct range {
  unsigned long from;
  unsigned long to;
};

static unsigned read_maps(struct range* ranges) {
  unsigned count = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) exit(97);
  char line[8192];
  while (count < kMost && fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%lx-%lx", &ranges[count].from, &ranges[count].to) == 2) ++count;
  }
  fclose(maps);
  return count;
}

// Without stdio's buffer, which could come to a free address.
static void print_line(const char* key, int value) {
  printf("%s=%d\n", key, value);
  fflush(stdout);
}

static void close_for_good(void* handle) {
  static struct range before[kMost];
  const unsigned count = read_maps(before);
  if (dlclose(handle) != 0) exit(96);
  int blocked = 0;
  for (unsigned i = 0; i < count; ++i) {
    void* at = (void*)before[i].from;
    // This fails if anything is still mapped there.
    blocked += mmap(at, before[i].to - before[i].from, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at;
  }
  print_line("blocked", blocked);
}

int main(int argc, char** argv) {
  static char buffer[4096];
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  void* handle = NULL;
  for (int i = 1; i < argc; ++i) {
    char* value = strchr(argv[i], ':');
    if (value != NULL) *value++ = '\0';
    const char* step = argv[i];
    if (strcmp(step, "close") == 0) {
      close_for_good(handle);
    } else if (strcmp(step, "own") == 0) {
      int count = 0;
      print_line("own", cudaGetDeviceCount(&count));
    } else if (strcmp(step, "setenv") == 0) {
      if (putenv(value) != 0) return 95;
    } else if (strcmp(step, "open") == 0 || strcmp(step, "space") == 0) {
      handle = *step == 'o' ? dlopen(value, RTLD_NOW | RTLD_GLOBAL)
                            : dlmopen(LM_ID_NEWLM, value, RTLD_NOW);
      if (handle == NULL) {
        print_line(step, -1);
        return 94;
      }
    } else {
      void* function = dlsym(handle, value);
      unsigned count = 0;
      if (function == NULL) return 93;
      if (strcmp(step, "init") == 0) {
        print_line(value, ((int (*)(unsigned))function)(0));
      } else if (strcmp(step, "count") == 0) {
        print_line(value, ((int (*)(unsigned*))function)(&count));
        print_line("counted", (int)count);
      } else {
        print_line(value, ((int (*)(void))function)());
      }
    }
  }
  return 0;
}
