// SPDX-License-Identifier: Apache-2.0
#include "shim/record/facts.h"

#include <sys/auxv.h>

#include "shim/state/process.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

/// Now, not as the program was started: a service gives up its rights. The owner of the folder
/// tells, without a system call of its own for it, which a strict seccomp filter might forbid.
uint32_t user() {
  struct stat status = {};
  return sys::stat("/proc/self", &status) == 0 ? status.st_uid
                                               : static_cast<uint32_t>(getauxval(AT_EUID));
}

}  // namespace

std::string_view read_all(const char* path, char* to, size_t size) {
  const sys::File file(path, O_RDONLY | O_CLOEXEC);
  size_t used = 0;
  while (file.ok() && used < size) {
    const long got = sys::read(file.fd(), to + used, size - used);
    if (got <= 0) break;
    used += static_cast<size_t>(got);
  }
  return {to, used};
}

ProcessFacts gather_facts(FactsRoom& room, uint32_t pid) {
  ProcessFacts facts;
  facts.pid = pid;
  facts.parent_pid = sys::getppid();
  facts.thread_id = sys::gettid();
  const timespec time = sys::now();
  facts.seconds = static_cast<uint64_t>(time.tv_sec);
  facts.microseconds = static_cast<uint32_t>(time.tv_nsec / 1000);
  facts.uid = user();
  const long length = sys::readlink("/proc/self/exe", room.executable, sizeof room.executable);
  if (length > 0) facts.executable = {room.executable, static_cast<size_t>(length)};
  facts.arguments = read_all("/proc/self/cmdline", room.arguments, sizeof room.arguments);
  facts.host = read_all("/proc/sys/kernel/hostname", room.host, sizeof room.host);
  if (facts.host.ends_with('\n')) facts.host.remove_suffix(1);
  facts.cgroup = cgroup_of(read_all("/proc/self/cgroup", room.cgroup, sizeof room.cgroup));
  if (const char* job = variable("SLURM_JOB_ID"); job != nullptr) facts.slurm = job;
  return facts;
}

}  // namespace cudaguard
