// SPDX-License-Identifier: Apache-2.0
// A library whose constructor comes before all others, after ld.so has done its own work. It
// installs a seccomp filter that refuses some calls of mprotect with EACCES, as SELinux can.
// CG_FORBID:
//   write  those that make pages writable
//   read   those that make pages of the driver read-only again
#include <errno.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// The filter compares the lower half of an address only. No two of the program's libraries are so
// far apart.
struct range {
  uint32_t start, size;
};

static int find_driver(struct dl_phdr_info* info, size_t size, void* out) {
  (void)size;
  if (strstr(info->dlpi_name, "/libcuda.so") == NULL) return 0;
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = info->dlpi_phdr + i;
    if (header->p_type == PT_LOAD) end = header->p_vaddr + header->p_memsz;
  }
  *(struct range*)out = (struct range){(uint32_t)info->dlpi_addr, (uint32_t)end};
  return 1;
}

// libc has not set `environ` yet.
__attribute__((constructor)) static void forbid(int argc, char** argv, char** variables) {
  (void)argc;
  (void)argv;
  static const char name[] = "CG_FORBID=";
  while (*variables != NULL && strncmp(*variables, name, strlen(name)) != 0) ++variables;
  if (*variables == NULL) return;
  const int write = strcmp(*variables + strlen(name), "write") == 0;
  struct range where = {0, UINT32_MAX};
  if (!write && dl_iterate_phdr(find_driver, &where) == 0) _exit(98);
  const unsigned refused = SECCOMP_RET_ERRNO | EACCES;
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, where.start),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, where.size, 3, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, !write, write),
      BPF_STMT(BPF_RET | BPF_K, refused),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    _exit(99);
  }
}
