// SPDX-License-Identifier: Apache-2.0
// no_devices CGROUP PROGRAM...: starts the program in this cgroup, whose device filter refuses
// every device, as systemd and container engines do.
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char** words) {
  // return 0
  const struct bpf_insn program[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K},
                                     {.code = BPF_JMP | BPF_EXIT}};
  union bpf_attr load = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE,
                         .insn_cnt = 2,
                         .insns = (unsigned long)program,
                         .license = (unsigned long)"Apache-2.0"};
  char procs[4096];
  if (count < 3) return 2;
  snprintf(procs, sizeof procs, "%s/cgroup.procs", words[1]);
  const int loaded = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load);
  union bpf_attr attach = {0};
  attach.target_fd = (unsigned)open(words[1], O_RDONLY | O_DIRECTORY);
  attach.attach_bpf_fd = (unsigned)loaded;
  attach.attach_type = BPF_CGROUP_DEVICE;
  const int file = open(procs, O_WRONLY | O_CLOEXEC);
  if (file < 0 || dprintf(file, "%d", getpid()) < 0) return 3;
  if (loaded < 0 || syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) != 0) return 3;
  execvp(words[2], words + 2);
  return 4;
}
