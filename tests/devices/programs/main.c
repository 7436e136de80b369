// SPDX-License-Identifier: Apache-2.0
// Takes the steps given as arguments, in order; each prints one line.
//   cu.* nv.* rt.*         driver, NVML and the runtime that this program is linked to
//   rt12.* rt13.*          a runtime that a plug-in in this program's directory is linked to
//   linked.cu.* linked.nv.*   the same of a plug-in that is linked to the driver, to NVML
//   deep.cu.* deep.nv.*    of such a plug-in loaded with RTLD_DEEPBIND
//   nvidia.cu.*            of a plug-in named libnvidia-*.so that opens the driver
//   setenv=VAR=VALUE unsetenv=VAR getenv=VAR setpid=VAR clearenv   the environment
//   fork=LABEL STEP... end     in a child; this process waits and continues after `end`
//   spawn=LABEL STEP... end    the same in a fresh program
//   thread=LABEL STEP... end   the same in a thread
//   exec                   the rest in a program that replaces this one
//   title                  wipes what /proc shows of the arguments and the environment
//   maps                   the files that are mapped here
//   lib.open=NAME lib.noload=NAME lib.close=NAME lib.default=SYMBOL   ld.so's answers
//   nofile=N               allows no more than N open files from here on
//   raise=N                sends this signal to itself
//   context=NAME           finds the symbol with RTLD_DEFAULT and calls it as cuCtxCreate_v4
//   kept=STEP              makes a dlopen fail, sets errno to 77 and takes a step of the driver;
//                          prints its answer, errno and dlerror
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops.h"

extern char** environ;

static __thread const char* g_label = "";
static char g_self[4096];

static void print_value(const char* name, const char* text) {
  char line[kMostText + 256];
  const int size =
      snprintf(line, sizeof line, "%s%s%s=%s\n", g_label, *g_label == '\0' ? "" : ".", name, text);
  const ssize_t written = write(1, line, (size_t)size < sizeof line ? (size_t)size : sizeof line);
  (void)written;
}

static void print_number(const char* name, int number) {
  char text[32];
  snprintf(text, sizeof text, "%d", number);
  print_value(name, text);
}

// Plug-ins in this program's directory take these steps.
static struct plugin {
  const char* prefix;  // begins the step's name; the plug-in does not see it
  const char* own;     // the plug-in sees this prefix instead
  const char* file;
  const char* function;
  int mode;
  step_function step;
} g_plugins[] = {
    {"rt12.", "rt.", "runtime_12.so", "runtime_step", RTLD_LOCAL, NULL},
    {"rt13.", "rt.", "runtime_13.so", "runtime_step", RTLD_LOCAL, NULL},
    {"linked.cu.", "cu.", "linked_cuda.so", "driver_step", RTLD_LOCAL, NULL},
    {"linked.nv.", "nv.", "linked_nvml.so", "nvml_step", RTLD_LOCAL, NULL},
    {"deep.cu.", "cu.", "linked_cuda.so", "driver_step", RTLD_LOCAL | RTLD_DEEPBIND, NULL},
    {"deep.nv.", "nv.", "linked_nvml.so", "nvml_step", RTLD_LOCAL | RTLD_DEEPBIND, NULL},
    {"nvidia.cu.", "cu.", "libnvidia-bypass.so.1", "driver_step", RTLD_LOCAL, NULL},
};

static void load_plugin(struct plugin* plugin) {
  char path[4200];
  snprintf(path, sizeof path, "%s", g_self);
  char* slash = strrchr(path, '/');
  snprintf(slash + 1, 64, "%s", plugin->file);
  void* handle = dlopen(path, RTLD_NOW | plugin->mode);
  if (handle == NULL) {
    print_value("plugin", dlerror());
  } else {
    plugin->step = (step_function)dlsym(handle, plugin->function);
  }
}

static int plugin_step(const char* name, const char* value, struct answer* out) {
  for (size_t i = 0; i < sizeof g_plugins / sizeof *g_plugins; ++i) {
    struct plugin* plugin = &g_plugins[i];
    const size_t size = strlen(plugin->prefix);
    if (strncmp(name, plugin->prefix, size) != 0) continue;
    char own[80];
    snprintf(own, sizeof own, "%s%s", plugin->own, name + size);
    if (plugin->step == NULL) load_plugin(plugin);
    return plugin->step == NULL ? 0 : plugin->step(own, value, out);
  }
  return 0;
}

static void print_maps(void) {
  struct answer out = {.used = 0};
  char line[4400];
  char last[4400] = "";
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    char* path = strchr(line, '/');
    if (path == NULL) continue;
    path[strcspn(path, "\n")] = '\0';
    if (strcmp(path, last) != 0) put(&out, "%s%s", out.used == 0 ? "" : ",", path);
    snprintf(last, sizeof last, "%s", path);
  }
  if (maps != NULL) fclose(maps);
  print_value("maps", out.text);
}

// Holds up to eight opened libraries. Each is opened as often as lib.open requests it.
static struct {
  const char* name;
  void* handle;
} g_libraries[8];

static int library_step(const char* name, const char* value) {
  const char* text = "null";
  if (strcmp(name, "lib.default") == 0) {
    text = dlsym(RTLD_DEFAULT, value) == NULL ? "null" : "set";
  } else if (strcmp(name, "lib.noload") == 0) {
    dlopen("/no/such/library", RTLD_NOW);  // an error that a successful call takes away
    void* handle = dlopen(value, RTLD_NOW | RTLD_NOLOAD);
    text = dlerror() != NULL ? "error" : handle != NULL ? "set" : "null";
    if (handle != NULL) dlclose(handle);
  } else if (strcmp(name, "lib.open") == 0) {
    void* handle = dlopen(value, RTLD_NOW | RTLD_LOCAL);
    text = handle != NULL ? "set" : dlerror();
    for (int i = 0; handle != NULL && i < 8; ++i) {
      if (g_libraries[i].handle == handle) text = "again";
      if (g_libraries[i].name != NULL && strcmp(g_libraries[i].name, value) != 0) continue;
      g_libraries[i].name = value;
      g_libraries[i].handle = handle;
      break;
    }
  } else if (strcmp(name, "lib.close") == 0) {
    for (int i = 0; i < 8; ++i) {
      if (g_libraries[i].name == NULL || strcmp(g_libraries[i].name, value) != 0) continue;
      text = dlclose(g_libraries[i].handle) == 0 ? "0" : "-1";
    }
  } else {
    return 0;
  }
  print_value(name, text);
  return 1;
}

static void set_variable(const char* text) {
  char name[4096];
  const char* equals = strchr(text, '=');
  if (equals == NULL || (size_t)(equals - text) >= sizeof name) abort();
  snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
  setenv(name, equals + 1, 1);
}

// Wipes the variables as setproctitle does, after moving them to another place.
static void wipe_title(void) {
  for (char** entry = environ; *entry != NULL; ++entry) {
    char* old = *entry;
    *entry = strdup(old);
    memset(old, 0, strlen(old));
  }
}

static void keep(const char* step) {
  struct answer own = {.used = 0};
  struct answer out = {.used = 0};
  if (dlopen("no-such-library.so", RTLD_NOW) != NULL) return;
  errno = 77;
  const int known = driver_step(step, "", &own);
  const int error = errno;
  const char* text = dlerror();
  put(&out, "%d:%s:%d:", known, own.text, error);
  put_word(&out, text == NULL ? "null" : text);
  print_value("kept", out.text);
}

static void make_context(const char* name) {
  int (*create)(void**, void*, unsigned, int) =
      (int (*)(void**, void*, unsigned, int))dlsym(RTLD_DEFAULT, name);
  void* context = NULL;
  if (create == NULL) {
    print_value("context", "null");
  } else {
    print_number("context", create(&context, NULL, 0, 0));
  }
}

static int general_step(const char* name, const char* value) {
  if (strcmp(name, "setenv") == 0) {
    set_variable(value);
  } else if (strcmp(name, "unsetenv") == 0) {
    unsetenv(value);
  } else if (strcmp(name, "clearenv") == 0) {
    clearenv();
  } else if (strcmp(name, "setpid") == 0) {
    char number[32];
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv(value, number, 1);
  } else if (strcmp(name, "getenv") == 0) {
    const char* found = getenv(value);
    print_value(value, found == NULL ? "(unset)" : found);
  } else if (strcmp(name, "pid") == 0) {
    print_number("pid", (int)getpid());
  } else if (strcmp(name, "title") == 0) {
    wipe_title();
  } else if (strcmp(name, "maps") == 0) {
    print_maps();
  } else if (strcmp(name, "nofile") == 0) {
    const struct rlimit limit = {(rlim_t)atoi(value), (rlim_t)atoi(value)};
    print_number(name, setrlimit(RLIMIT_NOFILE, &limit));
  } else if (strcmp(name, "raise") == 0) {
    print_number(name, raise(atoi(value)));
  } else if (strcmp(name, "kept") == 0) {
    keep(value);
  } else if (strcmp(name, "context") == 0) {
    make_context(value);
  } else {
    return 0;
  }
  return 1;
}

static int take_steps(char** steps, char** last);

struct block {
  char** steps;
  char** last;
  const char* label;
};

static void* take_block(void* argument) {
  const struct block* block = argument;
  g_label = block->label;
  return (void*)(intptr_t)take_steps(block->steps, block->last);
}

// This program's command with these steps.
static char** command_of(const char* label, char** step, char** last) {
  static char* words[512];
  size_t used = 0;
  words[used++] = g_self;
  if (label != NULL) {
    words[used++] = "label";
    words[used++] = (char*)label;
  }
  while (step < last && used < 511) words[used++] = *step++;
  words[used] = NULL;
  return words;
}

static int run_block(const char* kind, struct block block) {
  if (strcmp(kind, "thread") == 0) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_block, &block) != 0) abort();
    pthread_join(thread, NULL);
    return 0;
  }
  int status = 0;
  pid_t child = 0;
  if (strcmp(kind, "fork") == 0) {
    child = fork();
    if (child == 0) _exit((int)(intptr_t)take_block(&block));
  } else if (posix_spawn(&child, g_self, NULL, NULL,
                         command_of(block.label, block.steps, block.last), environ) != 0) {
    return 1;
  }
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  if (status != 0) {
    print_number(block.label, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return 0;
}

// Returns the `end` of the block that starts here.
static char** find_end(char** step, char** last) {
  int depth = 1;
  for (; step < last; ++step) {
    if (strncmp(*step, "fork=", 5) == 0 || strncmp(*step, "spawn=", 6) == 0 ||
        strncmp(*step, "thread=", 7) == 0) {
      ++depth;
    }
    if (strcmp(*step, "end") == 0 && --depth == 0) break;
  }
  return step;
}

static int take_steps(char** step, char** last) {
  for (; step < last; ++step) {
    char name[64];
    const size_t size = strcspn(*step, "=");
    if (size >= sizeof name) return 2;
    snprintf(name, sizeof name, "%.*s", (int)size, *step);
    const char* value = (*step)[size] == '=' ? *step + size + 1 : "";
    if (strcmp(name, "exec") == 0) {
      execve(g_self, command_of(NULL, step + 1, last), environ);
      abort();
    }
    if (strcmp(name, "fork") == 0 || strcmp(name, "spawn") == 0 || strcmp(name, "thread") == 0) {
      const struct block block = {step + 1, find_end(step + 1, last), value};
      if (run_block(name, block) != 0) return 3;
      step = block.last;
      continue;
    }
    if (general_step(name, value) || library_step(name, value)) continue;
    struct answer out = {.used = 0};
    if (!driver_step(name, value, &out) && !nvml_step(name, value, &out) &&
        !runtime_step(name, value, &out) && !plugin_step(name, value, &out)) {
      print_value("unknown", *step);
      return 2;
    }
    print_value(name, out.text);
  }
  return 0;
}

int main(int argc, char** argv) {
  const ssize_t size = readlink("/proc/self/exe", g_self, sizeof g_self - 1);
  if (size <= 0) return 4;
  int first = 1;
  if (argc > 2 && strcmp(argv[1], "label") == 0) {
    g_label = argv[2];
    first = 3;
  }
  return take_steps(argv + first, argv + argc);
}
