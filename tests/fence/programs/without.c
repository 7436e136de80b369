// SPDX-License-Identifier: Apache-2.0
// without RULE... -- PROGRAM...: starts the program where a fence is hard to have. A rule is
// WHAT=ERROR (a number; "kill"), WHAT one of kRules. "busy": another process has the only listener
// that there can be.
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif

static struct sock_filter program[64];
static unsigned short length;

static void add(uint16_t code, uint32_t value, uint8_t if_true, uint8_t if_false) {
  program[length++] = (struct sock_filter){code, if_true, if_false, value};
}
static void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }

// A rule is for a call in which the comparison of the data at this offset with the value is true.
// The architecture is never 0, so ALWAYS is.
enum { kArch = offsetof(struct seccomp_data, arch), kArgs = offsetof(struct seccomp_data, args) };
#define ALWAYS kArch, BPF_JSET, ~0U
#define ARGUMENT(n) (kArgs + (n) * sizeof(uint64_t))
static const struct rule {
  const char* what;
  uint32_t call;
  size_t offset;
  uint16_t comparison;
  uint32_t value;
} kRules[] = {
    {"seccomp", SYS_seccomp, ALWAYS},
    // Not of a null filter, which is only a question. This is the lower half of its address.
    {"filter", SYS_seccomp, ARGUMENT(2), BPF_JSET, ~0U},
    {"listener", SYS_seccomp, ARGUMENT(1), BPF_JSET, SECCOMP_FILTER_FLAG_NEW_LISTENER},
    // SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, as before Linux 5.19.
    {"killable", SYS_seccomp, ARGUMENT(1), BPF_JSET, 1 << 5},
    {"prctl", SYS_prctl, ARGUMENT(0), BPF_JEQ, PR_SET_SECCOMP},
    {"receive", SYS_ioctl, ARGUMENT(1), BPF_JEQ, SECCOMP_IOCTL_NOTIF_RECV},
    // SECCOMP_IOCTL_NOTIF_ID_VALID, by its number before Linux 5.9.
    {"valid", SYS_ioctl, ARGUMENT(1), BPF_JEQ, SECCOMP_IOR(2, uint64_t)},
    // A request that an emulator does not know: of type 'F' among others, not 'T' nor '!'.
    {"unknown", SYS_ioctl, ARGUMENT(1), BPF_JSET, 0x200},
    {"clone", SYS_clone, ALWAYS},  // by which fork(3) starts a process
    {"wait4", SYS_wait4, ALWAYS},
    {"readv", SYS_process_vm_readv, ALWAYS},
    {"landlock", SYS_landlock_create_ruleset, ALWAYS},
    {"memfd", SYS_memfd_create, ALWAYS},
    {"openat2", 437, ALWAYS},  // older headers lack its name
};

static int add_rule(const char* text) {
  const size_t size = strcspn(text, "=");
  for (size_t i = 0; i < sizeof kRules / sizeof *kRules; ++i) {
    const struct rule* rule = &kRules[i];
    if (strlen(rule->what) != size || strncmp(text, rule->what, size) != 0) continue;
    const char* error = text + size + 1;
    const uint32_t answer = strcmp(error, "kill") == 0
                                ? SECCOMP_RET_KILL
                                : SECCOMP_RET_ERRNO | (uint32_t)strtoul(error, NULL, 10);
    load(offsetof(struct seccomp_data, nr));
    add(BPF_JMP | BPF_K | BPF_JEQ, rule->call, 0, 3);
    load(rule->offset);
    add(BPF_JMP | BPF_K | rule->comparison, rule->value, 0, 1);
    add(BPF_RET | BPF_K, answer, 0, 0);
    return 0;
  }
  return -1;
}

// As root without no_new_privs, as a container's runtime does.
static int install(unsigned flags) {
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  const struct sock_fprog filter = {length, program};
  length = 0;
  const int made = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
  if (made >= 0 || errno != EACCES) return made;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

int main(int count, char** words) {
  int at = 1;
  for (; at < count && strcmp(words[at], "--") != 0; ++at) {
    if (strcmp(words[at], "busy") == 0) {
      const int listener = install(1 << 3);
      if (listener < 0 || fcntl(listener, F_SETFD, 0) != 0) return 3;
    } else if (add_rule(words[at]) != 0) {
      return 2;
    }
  }
  if (install(0) != 0) return 3;
  execvp(words[at + 1], words + at + 1);
  return 4;
}
