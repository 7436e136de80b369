// SPDX-License-Identifier: Apache-2.0
#include "shim/state/process.h"

#include <sys/auxv.h>

#include "policy/text.h"
#include "shim/sys/system.h"

// Data, not getenv(): bash and others export a getenv of their own. And by libc's name for it: a
// program may have an `environ` of its own.
extern "C" char** __environ;  // NOLINT(readability-redundant-declaration)

namespace cudaguard {

// The compiler takes only what is all zero into such a section: a Process is never constructed, but
// made of fresh pages.
[[gnu::section(".bss.lasting")]] constinit Lasting lasting;

namespace {

constexpr size_t kMapped = (sizeof(Process) + 4095) / 4096 * 4096;

/// For a process that cannot map a page: guarded, silent. Filled when it is needed.
[[gnu::section(".bss.without_memory")]] constinit Process without_memory;

void remember_policy(Policy policy) { lasting.last.policy.store(static_cast<int>(policy) + 1); }

/// Copies as much as fits, ends with a zero byte, returns the copy.
[[gnu::noinline]] std::string_view keep(std::string_view text, char* to, size_t size) {
  if (text.empty()) return {};
  const size_t length = text.size() < size ? text.size() : size - 1;
  for (size_t i = 0; i < length; ++i) to[i] = text[i];
  to[length] = '\0';
  return {to, length};
}

void remember_list(std::string_view list) {
  constexpr size_t kRoom = kMaxVisibleDevices + 1;
  const char* known = lasting.last.list.load(std::memory_order_relaxed);
  if (list.empty() || (known != nullptr && list == known)) return;
  void* room = sys::map(kRoom);
  if (room == nullptr) return;
  lasting.last.list.store(keep(list, static_cast<char*>(room), kRoom).data(),
                          std::memory_order_release);
}

void apply_children_rule(Config& config) {
  if (!config.children_cpu) return;  // no system call for nothing
  char own[32];                      // pid:[4026531836]
  Place place = {.pid = sys::getpid(), .pid_namespace = {}};
  if (!config.root_namespace.empty()) {
    const long size = sys::readlink("/proc/self/ns/pid", own, sizeof own);
    if (size > 0) place.pid_namespace = {own, static_cast<size_t>(size)};
  }
  if (is_child(config, place)) narrow_to_cpu(config, kIsChild);
}

/// `forked`: a process was configured in this memory before, of which this one is a child.
void configure(Process& process, bool forked) {
  const int policy = lasting.last.policy.load();
  Inherited inherited;
  inherited.policy = static_cast<Policy>(policy - 1);
  if (const char* list = lasting.last.list.load(std::memory_order_acquire); list != nullptr) {
    inherited.visible_devices = list;
  }
  inherited.children_cpu = lasting.last.children_cpu.load(std::memory_order_relaxed);
  Config& config = process.config;
  config = read_config(forked && policy != 0 ? &inherited : nullptr);
  const char* because = lasting.last.because.load(std::memory_order_relaxed);
  if (config.policy == Policy::kForceCpu && config.because.empty() && because != nullptr) {
    config.because = because;
  }
  config.report = keep(config.report, process.report, sizeof process.report);
  config.visible_devices =
      keep(config.visible_devices, process.visible_devices, sizeof process.visible_devices);
  // The entry at fault points into the list.
  const std::string_view given = config.bad_list;
  config.bad_list = keep(given, process.bad_list, sizeof process.bad_list);
  if (const char* entry = config.list_error.entry.data(); entry != nullptr) {
    config.list_error.entry = {config.bad_list.data() + (entry - given.data()),
                               config.list_error.entry.size()};
  }
  process.complaints = reinterpret_cast<uintptr_t>(given.data());
  for (size_t i = 0; i < config.complaint_count; ++i) {
    std::string_view& value = config.complaints[i].value;
    process.complaints += reinterpret_cast<uintptr_t>(value.data());
    value = keep(value, process.values[i], sizeof process.values[i]);
  }
}

/// For forked children. By the one thread whose configuration is this process's.
void remember(const Process& process) {
  const Config& config = process.config;
  lasting.last.because.store(config.because.data(), std::memory_order_relaxed);
  // What the parent has complained about is not said again; what is new here is.
  if (lasting.last.complaints.exchange(process.complaints, std::memory_order_relaxed) !=
      process.complaints) {
    lasting.said.fetch_and(~Process::kComplaints, std::memory_order_relaxed);
  }
  remember_list(config.visible_devices);
  if (config.children_cpu) lasting.last.children_cpu.store(true, std::memory_order_relaxed);
  remember_policy(config.policy);
  // Another thread may have made it fall back meanwhile.
  if (process.policy() == Policy::kForceCpu) remember_policy(Policy::kForceCpu);
}

}  // namespace

const char* variable(const char* name) {
  for (char** entry = __environ; entry != nullptr && *entry != nullptr; ++entry) {
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

std::string_view Process::because() const {
  switch (fallen.load(std::memory_order_relaxed)) {
    case kNoCompanion:
      return "its companion library cannot be used";
    case kNotEnforced:
      return config.by_option ? "--gpus cannot be enforced"
                              : "CUDAGUARD_VISIBLE_DEVICES cannot be enforced";
    case kNotAccepted:
      return config.by_option ? "--gpus is not accepted"
                              : "CUDAGUARD_VISIBLE_DEVICES is not accepted";
    default:
      return config.because;
  }
}

Config read_config(const Inherited* inherited) {
  Environment environment = read_environment(variable);
  environment.privileged = privileged();
  environment.inherited = inherited;
  Config config = parse_config(environment);
  apply_children_rule(config);
  return config;
}

void report_to(Process& process, const char* path) {
  process.config.report = keep(path, process.report, sizeof process.report);
}

void fall_back(Process& process, Process::Fallen because_of) {
  process.fallen.store(because_of);
  process.open.store(false);  // what the driver's proxy library lets through without a look
  lasting.answers_age.fetch_add(kOneAge, std::memory_order_release);
  lasting.last.because.store(process.because().data(), std::memory_order_relaxed);
  process.steady.store(false, std::memory_order_relaxed);
  remember_policy(Policy::kForceCpu);
}

bool Process::first_case(Cases& cases, uint64_t key) {
  if (key == 0) key = 1;
  for (auto& slot : cases) {
    uint64_t here = slot.load(std::memory_order_relaxed);
    if (here == 0 && slot.compare_exchange_strong(here, key, std::memory_order_relaxed)) {
      return true;
    }
    if (here == key) return false;
  }
  return false;
}

bool privileged() {
  // getauxval sets errno for an entry that is not there; the kernel always gives AT_SECURE.
  return getauxval(AT_SECURE) != 0;
}

namespace detail {

Process& make_process(Process* stale) {
  if (stale != nullptr && stale->ready && stale->only_pid == sys::getpid()) return *stale;
  void* memory = sys::map(kMapped);
  if (memory == nullptr) {
    without_memory.config.log = Log::kOff;
    without_memory.ready = true;
    return without_memory;
  }
  // No constructor: fresh pages are zero, and so is a Process that nothing has happened in. To
  // write its zeros would touch seven pages.
  auto* made = static_cast<Process*>(memory);
  configure(*made, stale != nullptr);
  if (!sys::wipe_on_fork(memory, kMapped)) made->only_pid = sys::getpid();
  made->ready = true;
  // Another thread may have been faster; it read the same environment. A stale object is not
  // unmapped: another thread may be looking at it.
  if (lasting.process.compare_exchange_strong(stale, made, std::memory_order_acq_rel)) {
    remember(*made);
    return *made;
  }
  sys::unmap(memory, kMapped);
  return *stale;
}

}  // namespace detail
}  // namespace cudaguard
