// SPDX-License-Identifier: Apache-2.0
// One program for all entry points that begin with dlopen. Arguments are key=value:
//   lib=NAME       what is opened: a soname, a path; several with commas (each is probed)
//   plugin=PATH    instead of lib: a plug-in, whose plugin_probe() is called
//   api=cuda|nvml
//   flags=a,b      now|lazy, global|local, deepbind, nodelete, noload
//   via=call|next|default|FILE   where the program gets dlopen itself
//   version=old|new  via=next and via=default use dlvsym with glibc's version; via=FILE the dlvsym
//                  of that file
//   space=base|new dlopen, or dlmopen into a new namespace
//   get=dlsym|default|next|self|proc|proc1|chain   how the entries are found
//   close=1        closes what was opened, twice
//   when=main|thread|threads|signal|fork|atexit|daemon|vfork|spawn|system
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "probe.h"
#include "versions.h"

static int g_argc;
static char** g_argv;
static int g_out = STDOUT_FILENO;

static const char* option(const char* key, const char* fallback) {
  const size_t length = strlen(key);
  for (int i = 1; i < g_argc; ++i) {
    if (strncmp(g_argv[i], key, length) == 0 && g_argv[i][length] == '=') {
      return g_argv[i] + length + 1;
    }
  }
  return fallback;
}

static int is(const char* key, const char* value, const char* fallback) {
  return strcmp(option(key, fallback), value) == 0;
}

static int open_flags(void) {
  const char* text = option("flags", "now");
  int flags = strstr(text, "lazy") != NULL ? RTLD_LAZY : RTLD_NOW;
  if (strstr(text, "global") != NULL) flags |= RTLD_GLOBAL;
  if (strstr(text, "deepbind") != NULL) flags |= RTLD_DEEPBIND;
  if (strstr(text, "nodelete") != NULL) flags |= RTLD_NODELETE;
  if (strstr(text, "noload") != NULL) flags |= RTLD_NOLOAD;
  return flags;
}

typedef void* (*open_function)(const char*, int);
typedef void* (*open_in_function)(Lmid_t, const char*, int);

// Returns libdl's function `name` in the way that the arguments select.
static void* libdl_function(const char* name, void* direct) {
  const char* via = option("via", "call");
  const char* version = option("version", NULL);
  if (strcmp(via, "next") == 0) return look_up(RTLD_NEXT, name, version);
  if (strcmp(via, "default") == 0) return look_up(RTLD_DEFAULT, name, version);
  if (strcmp(via, "call") != 0) {
    void* library = dlopen(via, RTLD_NOW);
    if (library == NULL || version == NULL) return library == NULL ? NULL : dlsym(library, name);
    void* (*by_version)(void*, const char*, const char*) =
        (void* (*)(void*, const char*, const char*))dlsym(library, "dlvsym");
    void* volatile found = by_version(RTLD_DEFAULT, name, glibcs_version(name, version));
    return found;
  }
  return direct;
}

static void* open_library(const char* name) {
  if (is("space", "new", "base")) {
    open_in_function open_in = (open_in_function)libdl_function("dlmopen", (void*)dlmopen);
    return open_in(LM_ID_NEWLM, name, open_flags());
  }
  open_function open_it = (open_function)libdl_function("dlopen", (void*)dlopen);
  return open_it(name, open_flags());
}

typedef int (*proc_function)(const char*, void**, int, uint64_t, int*);
typedef int (*proc1_function)(const char*, void**, int, uint64_t);

static void* find_by_proc(void* context, const char* name) {
  void* result = NULL;
  ((proc_function)context)(name, &result, 13000, 0, NULL);
  return result;
}

static void* find_by_proc1(void* context, const char* name) {
  void* result = NULL;
  ((proc1_function)context)(name, &result, 11030, 0);
  return result;
}

static void* find_by_dlsym(void* context, const char* name) { return dlsym(context, name); }

// Prints cuGetProcAddress's answers to unusual requests.
static void probe_proc(proc_function proc) {
  void* function = (void*)1;
  int status = -7;
  int answer = proc("cuNoSuchFunctionEver", &function, 13000, 0, &status);
  probe_print(g_out, "unknownRc=%d unknownPtr=%s unknownStatus=%d ", answer,
              function == NULL ? "null" : "set", status);
  function = (void*)1;
  status = -7;
  answer = proc("", &function, 13000, 0, &status);
  probe_print(g_out, "emptyRc=%d emptyPtr=%s emptyStatus=%d ", answer,
              function == NULL ? "null" : "set", status);
  function = (void*)1;
  answer = proc("cuNoSuchFunctionEver", &function, 13000, 0, NULL);
  probe_print(g_out, "nostatusRc=%d nostatusPtr=%s ", answer, function == NULL ? "null" : "set");
  function = (void*)1;
  status = -7;
  answer = proc("cuMemAllocAsync", &function, 2000, 0, &status);
  probe_print(g_out, "lowRc=%d lowPtr=%s lowStatus=%d ", answer, function == NULL ? "null" : "set",
              status);
  function = NULL;
  status = -7;
  answer = proc("cuMemAllocAsync", &function, 11020, 0, &status);
  probe_print(g_out, "knownRc=%d knownPtr=%s knownStatus=%d ", answer,
              function == NULL ? "null" : "set", status);
}

static void probe(void* handle) {
  void (*ask)(int, probe_finder, void*) = is("api", "nvml", "cuda") ? probe_nvml : probe_cuda;
  const char* get = option("get", "dlsym");
  if (strcmp(get, "default") == 0) {
    ask(g_out, find_by_dlsym, RTLD_DEFAULT);
  } else if (strcmp(get, "next") == 0) {
    ask(g_out, find_by_dlsym, RTLD_NEXT);
  } else if (strcmp(get, "self") == 0) {
    ask(g_out, find_by_dlsym, dlopen(NULL, RTLD_NOW));
  } else if (strcmp(get, "proc1") == 0) {
    ask(g_out, find_by_proc1, dlsym(handle, "cuGetProcAddress"));
  } else if (strcmp(get, "proc") == 0 || strcmp(get, "chain") == 0) {
    proc_function proc = (proc_function)dlsym(handle, "cuGetProcAddress_v2");
    if (strcmp(get, "chain") == 0) {
      void* chained = NULL;
      int status = -7;
      proc("cuGetProcAddress", &chained, 12000, 0, &status);
      probe_print(g_out, "chainStatus=%d ", status);
      proc = (proc_function)chained;
    }
    probe_proc(proc);
    ask(g_out, find_by_proc, (void*)proc);
  } else {
    ask(g_out, find_by_dlsym, handle);
  }
}

static void go(void) {
  char names[1024];
  const char* plugin = option("plugin", NULL);
  snprintf(names, sizeof names, "%s", plugin != NULL ? plugin : option("lib", "libcuda.so.1"));
  char* rest = names;
  for (char* name; (name = strsep(&rest, ",")) != NULL;) {
    void* handle = open_library(name);
    if (handle == NULL) {
      probe_print(g_out, "open=null error=%s\n", probe_word(dlerror()));
      continue;
    }
    if (plugin == NULL) {
      probe(handle);
    } else {
      void (*call)(int) = (void (*)(int))dlsym(handle, "plugin_probe");
      call(g_out);
    }
    if (is("close", "1", "0")) {
      dlclose(handle);
      dlclose(handle);
    }
  }
}

static void* go_in_thread(void* unused) {
  go();
  return unused;
}

static void go_in_handler(int signal_number) {
  (void)signal_number;
  go();
}

static int wait_for(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Starts this program again with when=main.
static int again(const char* how) {
  extern char** environ;
  char* arguments[32];
  int count = 0;
  for (int i = 0; i < g_argc && count < 30; ++i) {
    if (strncmp(g_argv[i], "when=", 5) != 0) arguments[count++] = g_argv[i];
  }
  arguments[count] = NULL;
  if (strcmp(how, "spawn") == 0) {
    pid_t child = -1;
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) != 0) return 1;
    return wait_for(child);
  }
  if (strcmp(how, "system") == 0) {
    char command[4096] = "";
    for (int i = 0; i < count; ++i) {
      strncat(command, "'", sizeof command - strlen(command) - 1);
      strncat(command, arguments[i], sizeof command - strlen(command) - 1);
      strncat(command, "' ", sizeof command - strlen(command) - 1);
    }
    return WEXITSTATUS(system(command));
  }
  const pid_t child = vfork();
  if (child == 0) {
    execv("/proc/self/exe", arguments);
    _exit(127);
  }
  return wait_for(child);
}

int main(int argc, char** argv) {
  g_argc = argc;
  g_argv = argv;
  const char* when = option("when", "main");
  if (strcmp(when, "thread") == 0) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, go_in_thread, NULL) != 0) return 1;
    return pthread_join(thread, NULL);
  }
  if (strcmp(when, "threads") == 0) {
    pthread_t threads[8];
    for (int i = 0; i < 8; ++i) {
      if (pthread_create(&threads[i], NULL, go_in_thread, NULL) != 0) return 1;
    }
    for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
    return 0;
  }
  if (strcmp(when, "signal") == 0) {
    signal(SIGUSR1, go_in_handler);
    return raise(SIGUSR1);
  }
  if (strcmp(when, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      go();
      _exit(0);
    }
    return wait_for(child);
  }
  if (strcmp(when, "atexit") == 0) return atexit(go);
  if (strcmp(when, "daemon") == 0) {
    // A daemon has no terminal, no directory and no standard descriptors. It keeps only the pipe to
    // the test.
    g_out = dup(STDOUT_FILENO);
    if (daemon(0, 0) != 0) return 1;
    go();
    return 0;
  }
  if (strcmp(when, "main") != 0) return again(when);
  go();
  return 0;
}
