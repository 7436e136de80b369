// SPDX-License-Identifier: Apache-2.0
// jail DIRECTORY NAME...: changes its root directory, then opens each library.
// jail uid=N NAME...: becomes another user instead, with all of its user ids.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (strncmp(argv[1], "uid=", 4) == 0) {
    const uid_t user = (uid_t)atoi(argv[1] + 4);
    if (setresuid(user, user, user) != 0) return 3;
  } else if (chroot(argv[1]) != 0 || chdir("/") != 0) {
    return 4;
  }
  for (int i = 2; i < argc; ++i) {
    printf("%s %s\n", argv[i], dlopen(argv[i], RTLD_NOW) != NULL ? "ok" : "null");
  }
  return 0;
}
