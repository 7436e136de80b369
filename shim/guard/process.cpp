// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/process.h"

#include <sys/auxv.h>

#include <new>

#include "shim/guard/system.h"

// Data, not getenv(): bash and others export a getenv of their own.
extern "C" char** environ;  // NOLINT(readability-redundant-declaration)

namespace cudaguard {

namespace {

constexpr size_t kMapped = (sizeof(Process) + 4095) / 4096 * 4096;

/// The policy of this process, or of the one it was forked from until it has read its own. Not
/// among the wiped pages. kNone: not read yet.
constexpr int kNone = -1;
constinit std::atomic<int> last_policy{kNone};

/// For a process that cannot map a page: guarded, silent. Filled when it is needed, which keeps it
/// out of the file.
constinit Process without_memory;

const char* variable(const char* name) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* text = *entry;
    const char* wanted = name;
    while (*wanted != '\0' && *text == *wanted) {
      ++text;
      ++wanted;
    }
    if (*wanted == '\0' && *text == '=') return text + 1;
  }
  return nullptr;
}

/// Copies as much as fits, ends with a zero byte, returns the copy.
std::string_view keep(std::string_view text, char* to, size_t size) {
  const size_t length = text.size() < size ? text.size() : size - 1;
  for (size_t i = 0; i < length; ++i) to[i] = text[i];
  to[length] = '\0';
  return {to, length};
}

void configure(Process& process) {
  Environment environment;
  environment.policy = variable("CUDAGUARD_POLICY");
  environment.log = variable("CUDAGUARD_LOG");
  environment.report = variable("CUDAGUARD_REPORT");
  environment.privileged = privileged();
  const int last = last_policy.load(std::memory_order_relaxed);
  const auto inherited = static_cast<Policy>(last);
  if (last != kNone) environment.inherited = &inherited;
  Config config = parse_config(environment);
  config.report = keep(config.report, process.report, sizeof process.report);
  for (size_t i = 0; i < config.complaint_count; ++i) {
    config.complaints[i].value =
        keep(config.complaints[i].value, process.values[i], sizeof process.values[i]);
  }
  last_policy.store(static_cast<int>(config.policy), std::memory_order_relaxed);
  process.config = config;
}

}  // namespace

bool privileged() {
  // getauxval sets errno for an entry that is not there; the kernel always gives AT_SECURE.
  return getauxval(AT_SECURE) != 0;
}

namespace detail {

constinit std::atomic<Process*> current_process{nullptr};

Process& make_process(Process* stale) {
  if (stale != nullptr && stale->ready && stale->only_pid == sys::getpid()) return *stale;
  void* memory = sys::map(kMapped);
  if (memory == nullptr) {
    without_memory.config.log = Log::kOff;
    without_memory.ready = true;
    return without_memory;
  }
  auto* made = new (memory) Process;
  configure(*made);
  if (!sys::wipe_on_fork(memory, kMapped)) made->only_pid = sys::getpid();
  made->ready = true;
  // Another thread may have been faster; it read the same environment. A stale object is not
  // unmapped: another thread may be looking at it.
  if (current_process.compare_exchange_strong(stale, made, std::memory_order_acq_rel)) return *made;
  sys::unmap(memory, kMapped);
  return *stale;
}

}  // namespace detail
}  // namespace cudaguard
