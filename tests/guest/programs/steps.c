// SPDX-License-Identifier: Apache-2.0
// Does what its arguments say, one after the other, and prints key=value for what it found.
//
//   ask, nvml          load the driver (NVML) and call cuInit(0) (nvmlInit_v2)
//   ask:NAME           the same with the library NAME
//   load:NAME          dlopen(NAME) alone
//   grab, libc:NAME    get hold of libc's own dlopen; ask:NAME by it
//   attempts            what cudaguard_attempts() returns
//   watch, watch:PATH  what cudaguard_watch(NULL), cudaguard_watch(PATH) returns
//   fork, end          what lies between is done in a child that is waited for
//   nofile:N           as many descriptors from now on; "max": as many as allowed
//   memory:KIB         that much more address space from now on; "max": as much as allowed
//   setenv:NAME=VALUE  unsetenv:NAME  chdir:DIRECTORY  print:TEXT
//   title:TEXT         the command line from now on, at most as long as the first one
//   user:N             become this user
//   open:PATH:FLAGS    open(2), FLAGS of the letters r w a(ppend) + (both ways) e(CLOEXEC)
//   put:N:TEXT         write TEXT to descriptor N
//   results:PATH       print there from now on, by a descriptor of at least 100
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef OWN_ENVIRON
char** environ = NULL;
#endif

typedef void* (*open_function)(const char*, int);

static int g_results = 1;
static char* g_title;
static size_t g_title_size;
static open_function g_libc_dlopen;

__attribute__((format(printf, 1, 2))) static void print_line(const char* format, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length > 0 && write(g_results, text, (size_t)length) != length) _exit(90);
}

static void attempt_by(open_function open_it, const char* key, const char* library,
                       const char* function) {
  void* handle = open_it(library, RTLD_NOW);
  if (handle == NULL) {
    print_line("%s=unavailable\n", key);
    return;
  }
  int (*call)(unsigned) = (int (*)(unsigned))dlsym(handle, function);
  if (call == NULL) {
    print_line("%s=no-symbol\n", key);
    return;
  }
  print_line("%s=%d\n", key, call(0));
}

static void attempt(const char* key, const char* library, const char* function) {
  attempt_by(dlopen, key, library, function);
}

static void grab(void) {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  g_libc_dlopen = libc == NULL ? NULL : (open_function)dlsym(libc, "dlopen");
  if (g_libc_dlopen == NULL) exit(97);
}

static void limit_files(const char* count) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) exit(98);
  limit.rlim_cur = strcmp(count, "max") == 0 ? limit.rlim_max : (rlim_t)atoi(count);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) exit(98);
}

static void limit_memory(const char* kib) {
  struct rlimit limit;
  long pages = 0;
  FILE* sizes = fopen("/proc/self/statm", "r");
  if (sizes == NULL || fscanf(sizes, "%ld", &pages) != 1) exit(98);
  fclose(sizes);
  if (getrlimit(RLIMIT_AS, &limit) != 0) exit(98);
  limit.rlim_cur = strcmp(kib, "max") == 0
                       ? limit.rlim_max
                       : (rlim_t)(pages * sysconf(_SC_PAGESIZE) + atol(kib) * 1024);
  if (setrlimit(RLIMIT_AS, &limit) != 0) exit(98);
}

static int flags_of(const char* letters) {
  int flags = strchr(letters, '+') ? O_RDWR : strchr(letters, 'r') ? O_RDONLY : O_WRONLY;
  if (strchr(letters, 'r') == NULL) flags |= O_CREAT;
  if (strchr(letters, 'a')) flags |= O_APPEND;
  if (strchr(letters, 'e')) flags |= O_CLOEXEC;
  return flags;
}

static const char* after(const char* step, const char* prefix) {
  const size_t length = strlen(prefix);
  return strncmp(step, prefix, length) == 0 ? step + length : NULL;
}

static void one(char* step) {
  const char* rest;
  if (strcmp(step, "ask") == 0) {
    attempt("cuInit", "libcuda.so.1", "cuInit");
  } else if (strcmp(step, "nvml") == 0) {
    attempt("nvmlInit_v2", "libnvidia-ml.so.1", "nvmlInit_v2");
  } else if ((rest = after(step, "ask:"))) {
    attempt("cuInit", rest, "cuInit");
  } else if ((rest = after(step, "load:"))) {
    print_line("load=%s\n", dlopen(rest, RTLD_LAZY) ? "ok" : "failed");
  } else if (strcmp(step, "grab") == 0) {
    grab();
  } else if ((rest = after(step, "libc:"))) {
    attempt_by(g_libc_dlopen, "cuInit", rest, "cuInit");
  } else if (strcmp(step, "attempts") == 0) {
    int (*attempts)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cudaguard_attempts");
    print_line("attempts=%d\n", attempts ? attempts() : -1);
  } else if (strcmp(step, "watch") == 0 || (rest = after(step, "watch:")) != NULL) {
    int (*watch)(const char*) = (int (*)(const char*))dlsym(RTLD_DEFAULT, "cudaguard_watch");
    print_line("watch=%d\n", watch ? watch(step[5] == ':' ? step + 6 : NULL) : -2);
  } else if ((rest = after(step, "setenv:"))) {
    if (putenv((char*)rest) != 0) exit(91);
  } else if ((rest = after(step, "unsetenv:"))) {
    if (unsetenv(rest) != 0) exit(91);
  } else if ((rest = after(step, "title:"))) {
    memset(g_title, 0, g_title_size);
    strncpy(g_title, rest, g_title_size - 1);
  } else if ((rest = after(step, "user:"))) {
    if (setuid((uid_t)atoi(rest)) != 0) exit(89);
  } else if ((rest = after(step, "nofile:"))) {
    limit_files(rest);
  } else if ((rest = after(step, "memory:"))) {
    limit_memory(rest);
  } else if ((rest = after(step, "chdir:"))) {
    if (chdir(rest) != 0) exit(92);
  } else if ((rest = after(step, "print:"))) {
    print_line("%s\n", rest);
  } else if ((rest = after(step, "open:"))) {
    char* letters = strrchr(step, ':');
    *letters++ = '\0';
    if (open(rest, flags_of(letters), 0666) < 0) exit(93);
  } else if ((rest = after(step, "put:"))) {
    const char* text = strchr(rest, ':') + 1;
    if (write(atoi(rest), text, strlen(text)) < 0) exit(94);
  } else if ((rest = after(step, "results:"))) {
    const int file = open(rest, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    g_results = fcntl(file, F_DUPFD_CLOEXEC, 100);
    if (g_results < 0) exit(95);
    close(file);
  } else {
    print_line("unknown step: %s\n", step);
    exit(96);
  }
}

static char** run(char** step) {
  for (; *step != NULL && strcmp(*step, "end") != 0; ++step) {
    if (strcmp(*step, "fork") != 0) {
      one(*step);
      continue;
    }
    const pid_t child = fork();
    if (child == 0) {
      run(step + 1);
      exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) print_line("child-status=%d\n", status);
    print_line("child=%d\n", (int)child);
    for (int depth = 0; step[1] != NULL; ++step) {
      if (strcmp(step[1], "fork") == 0) ++depth;
      if (strcmp(step[1], "end") == 0 && depth-- == 0) {
        ++step;
        break;
      }
    }
  }
  return step;
}

int main(int argc, char** argv) {
  g_title = argv[0];
  g_title_size = (size_t)(strchr(argv[argc - 1], '\0') - argv[0]) + 1;
  for (int i = 1; i < argc; ++i) argv[i] = strdup(argv[i]);  // a title overwrites the steps
  run(argv + 1);
  return 0;
}
