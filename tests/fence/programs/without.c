// SPDX-License-Identifier: Apache-2.0
// without RULE... -- PROGRAM...: starts the program where a fence is hard to have. A rule is
// WHAT=ERROR (a number; "kill"), WHAT one of
//   seccomp   seccomp(2)
//   filter    the same, but not with a filter at address 0, which is only a question
//   listener  the same with SECCOMP_FILTER_FLAG_NEW_LISTENER
//   killable  the same with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, as before Linux 5.19
//   prctl     prctl(PR_SET_SECCOMP)
//   receive   the listener's ioctl(SECCOMP_IOCTL_NOTIF_RECV)
//   unknown   ioctl of a request that it does not know, such as the driver's, as an emulator
//   valid     the listener's ioctl(SECCOMP_IOCTL_NOTIF_ID_VALID), by its number before Linux 5.9
//   clone     clone(2), by which fork(3) starts a process
//   wait4     wait4(2)
//   readv     process_vm_readv(2)
//   landlock  landlock_create_ruleset(2)
//   memfd     memfd_create(2)
//   openat2   openat2(2)
// "busy": another process has the only listener that there can be.
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

static int argument_of(const char* rule, size_t* offset, uint16_t* comparison, uint32_t* value) {
  const size_t first = offsetof(struct seccomp_data, args);
  *comparison = BPF_JSET;
  *value = ~0U;
  if (strncmp(rule, "seccomp=", 8) == 0) {  // of any operation and flags
    *offset = offsetof(struct seccomp_data, arch);
    return SYS_seccomp;
  }
  if (strncmp(rule, "clone=", 6) == 0 || strncmp(rule, "wait4=", 6) == 0 ||
      strncmp(rule, "readv=", 6) == 0) {
    *offset = offsetof(struct seccomp_data, arch);
    return *rule == 'c' ? SYS_clone : *rule == 'w' ? SYS_wait4 : SYS_process_vm_readv;
  }
  if (strncmp(rule, "landlock=", 9) == 0 || strncmp(rule, "memfd=", 6) == 0 ||
      strncmp(rule, "openat2=", 8) == 0) {
    *offset = offsetof(struct seccomp_data, arch);
    return *rule == 'l'   ? SYS_landlock_create_ruleset
           : *rule == 'm' ? SYS_memfd_create
                          : 437;  // older headers lack it
  }
  if (strncmp(rule, "filter=", 7) == 0) {  // the lower half of a pointer
    *offset = first + 2 * sizeof(uint64_t);
    return SYS_seccomp;
  }
  if (strncmp(rule, "listener=", 9) == 0) {
    *offset = first + sizeof(uint64_t);
    *value = 1 << 3;
    return SYS_seccomp;
  }
  if (strncmp(rule, "killable=", 9) == 0) {
    *offset = first + sizeof(uint64_t);
    *value = 1 << 5;
    return SYS_seccomp;
  }
  if (strncmp(rule, "prctl=", 6) == 0) {
    *offset = first;
    *comparison = BPF_JEQ;
    *value = PR_SET_SECCOMP;
    return SYS_prctl;
  }
  if (strncmp(rule, "unknown=", 8) == 0) {  // of type 'F' among others, not 'T' nor '!'
    *offset = first + sizeof(uint64_t);
    *value = 0x200;
    return SYS_ioctl;
  }
  if (strncmp(rule, "receive=", 8) == 0 || strncmp(rule, "valid=", 6) == 0) {
    *offset = first + sizeof(uint64_t);
    *comparison = BPF_JEQ;
    *value = *rule == 'r' ? SECCOMP_IOCTL_NOTIF_RECV : SECCOMP_IOR(2, uint64_t);
    return SYS_ioctl;
  }
  return -1;
}

static int add_rule(const char* rule) {
  size_t offset;
  uint16_t comparison;
  uint32_t value;
  const int call = argument_of(rule, &offset, &comparison, &value);
  if (call < 0) return -1;
  const char* error = strchr(rule, '=') + 1;
  const uint32_t answer = strcmp(error, "kill") == 0
                              ? SECCOMP_RET_KILL
                              : SECCOMP_RET_ERRNO | (uint32_t)strtoul(error, NULL, 10);
  load(offsetof(struct seccomp_data, nr));
  add(BPF_JMP | BPF_K | BPF_JEQ, (uint32_t)call, 0, 3);
  load(offset);
  add(BPF_JMP | BPF_K | comparison, value, 0, 1);
  add(BPF_RET | BPF_K, answer, 0, 0);
  return 0;
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
