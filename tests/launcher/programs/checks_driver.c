// SPDX-License-Identifier: Apache-2.0
// A driver whose cuInit fails if the launcher has not kept one of its promises, which CHECK names.
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
static int makes_no_node(void) {
  if (mknod("/dev/nvidiactl", S_IFCHR | 0666, makedev(195, 255)) == 0) return 9;
  if (prctl(PR_CAPBSET_READ, CAP_SYS_MODULE) != 0) return 8;
  return system("mknod /dev/nvidia0 c 195 0 2>/dev/null") == 0 ? 7 : 0;
}
static int gains_no_rights(void) { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 9; }
static int is_unguarded(void) {
  if (getenv("LD_PRELOAD")) return 1;
  if (getenv("CUDAGUARD_VISIBLE_DEVICES") || getenv("CUDAGUARD_ROOT")) return 2;
  return getenv("CG_ANSWER") ? 0 : 3;
}
static int inherits_nothing(void) {
  for (int fd = 3; fd < 4096; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) return fd;
  }
  return 0;
}
int cuInit(unsigned flags) {
  (void)flags;
  if (strcmp(CHECK, "node") == 0) return makes_no_node();
  if (strcmp(CHECK, "rights") == 0) return gains_no_rights();
  if (strcmp(CHECK, "environment") == 0) return is_unguarded();
  return inherits_nothing();
}
