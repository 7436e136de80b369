// SPDX-License-Identifier: Apache-2.0
// loader STOP [LATE]: repeatedly loads libraries and asks the driver, in itself and in forked
// children, until the file STOP exists. With LATE it makes its first dlopen once that file exists.
// Exits with 0 and a count, or with 1 and the reason if an answer is not "no device".
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* const kNames[] = {"libcuda.so.1",        "libm.so.6",         "libcuda.so",
                                     "libnvidia-ml.so.1",   "libresolv.so.2",    "libnvidia-ml.so",
                                     "libnvidia-opencl.so", "libnothing-such.so"};

static void fail(const char* name, const char* why) {
  printf("%s: %s\n", name, why);
  exit(1);
}

static void load(const char* name) {
  void* library = dlopen(name, RTLD_LAZY);
  if (library == NULL) {
    if (name == kNames[6] || name == kNames[7]) return;
    fail(name, dlerror());
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  int (*init_nvml)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
  if (init != NULL && init(0) != 100) fail(name, "cuInit found a device");
  if (init_nvml != NULL && init_nvml() != 9) fail(name, "nvmlInit_v2 found a driver");
  dlclose(library);
}

static void load_in_a_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 8; ++i) load(kNames[i]);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("fork", "a child died");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  printf("ready\n");
  fflush(stdout);
  while (argc > 2 && access(argv[2], F_OK) != 0) usleep(20000);
  int loads = 0;
  do {
    for (int i = 0; i < 8; ++i, ++loads) load(kNames[i]);
    if (loads % 64 == 0) load_in_a_child();
    usleep(10000);
  } while (access(argv[1], F_OK) != 0);
  printf("loads=%d\n", loads);
  return 0;
}
