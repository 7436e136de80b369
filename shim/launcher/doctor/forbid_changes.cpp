// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/forbid_changes.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cudaguard::launcher {

namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif
/// Of the second system call table of x86-64, x32's; no number of the first one is as high.
constexpr uint32_t kOtherTable = 0x40000000;

constexpr uint32_t kForbidden[] = {
#if defined(__x86_64__)  // the older forms
    __NR_mknod, __NR_mkdir, __NR_rmdir, __NR_unlink, __NR_rename, __NR_link, __NR_symlink,
    __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat, __NR_iopl,
    __NR_ioperm,
#endif
    __NR_mknodat, __NR_mkdirat, __NR_unlinkat, __NR_renameat, __NR_linkat, __NR_symlinkat,
    __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_init_module, __NR_finit_module,
    __NR_delete_module, __NR_kexec_load, __NR_reboot, __NR_mount, __NR_umount2, __NR_pivot_root,
    __NR_chroot, __NR_swapon, __NR_swapoff, __NR_acct, __NR_settimeofday, __NR_clock_settime,
    __NR_sethostname, __NR_setdomainname, __NR_utimensat, __NR_setxattr, __NR_lsetxattr,
    __NR_fsetxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr, __NR_renameat2,
    __NR_bpf,
#if defined(__NR_kexec_file_load)
    __NR_kexec_file_load,
#endif
    // Older headers do not have these; their numbers are the same everywhere: io_uring_setup (what
    // a ring does, no filter sees), open_tree, move_mount, fsopen, fsconfig, fsmount, fspick,
    // mount_setattr, fchmodat2, setxattrat, removexattrat.
    425, 428, 429, 430, 431, 432, 433, 442, 452, 463, 466};

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter jump(uint16_t comparison, uint32_t value, size_t if_true, size_t if_false) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | BPF_K | comparison), value,
                  static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false));
}

}  // namespace

bool forbid_changes() {
  constexpr size_t kCount = sizeof kForbidden / sizeof *kForbidden;
  static_assert(kCount + 3 <= UINT8_MAX, "a jump's distance is a byte");
  std::vector<sock_filter> program = {
      load(offsetof(seccomp_data, arch)), jump(BPF_JEQ, kArchitecture, 0, kCount + 3),
      load(offsetof(seccomp_data, nr)), jump(BPF_JGE, kOtherTable, kCount + 1, 0)};
  for (size_t i = 0; i < kCount; ++i) {
    program.push_back(jump(BPF_JEQ, kForbidden[i], kCount - i, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace cudaguard::launcher
