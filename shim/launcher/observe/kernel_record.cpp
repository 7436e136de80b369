// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/kernel_record.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace cudaguard::launcher {

std::string kernel_record(const Owner& owner, const Identity& who, Touch touch, const char* why) {
  Stack stack = {};
  stack.python_missing = why;
  if (why != nullptr) touch.stack = &stack;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  char host[256] = {};
  ProcessFacts facts;
  facts.pid = static_cast<uint32_t>(owner.pid);
  facts.parent_pid = static_cast<uint32_t>(std::max(who.parent, 0));
  facts.thread_id = static_cast<uint32_t>(who.thread);
  facts.seconds = static_cast<uint64_t>(now.tv_sec);
  facts.microseconds = static_cast<uint32_t>(now.tv_nsec / 1000);
  facts.uid = owner.uid;
  facts.executable = owner.exe;
  facts.arguments = owner.arguments;
  if (gethostname(host, sizeof host - 1) == 0) facts.host = host;
  facts.cgroup = cgroup_of(owner.cgroup);
  const char* job = getenv("SLURM_JOB_ID");  // NOLINT(concurrency-mt-unsafe): one thread
  if (job != nullptr) facts.slurm = job;
  std::string text(kMaxRecord, '\0');
  Text out(text.data(), text.size());
  write_record(out, facts, touch, text.size());
  text.resize(out.view().size() - 1);  // remove the newline
  return text;
}

}  // namespace cudaguard::launcher
