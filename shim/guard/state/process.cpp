// SPDX-License-Identifier: Apache-2.0
// Under CUDAGUARD_CHILDREN=ONLY, the first process refuses CUDA, but its forked children do not.
// ld.so cannot replace a null driver once it is loaded, so the first process loads the proxies
// instead, which ask for the policy at each call. Process::policy() is the policy of calls, and
// Process::loads() the one by which libraries are loaded.
#include "shim/guard/state/process.h"

#include <sys/auxv.h>

#include <new>
#include <span>

#include "policy/program.h"
#include "policy/text.h"
#include "shim/guard/state/machine_file.h"
#include "shim/guard/sys/system.h"

// Data instead of getenv(), because bash and others export a getenv of their own. The name is
// libc's own, because a program may define its own `environ`.
extern "C" char** __environ;  // NOLINT(readability-redundant-declaration)

namespace cudaguard {

// The compiler accepts only all-zero objects in such a section. A Process is never constructed; it
// consists of fresh pages.
[[gnu::section(".bss.inherited")]] constinit InheritedState inherited;

namespace {

/// What the kernel wipes in a forked child. A process maps two of them: one for itself, and a spare
/// one for its child. The child's spare one is that of its parent, which is wiped, too.
constexpr size_t kMapped = (sizeof(Process) + 4095) / 4096 * 4096;

/// The state of a process that cannot map a page: guarded and silent.
[[gnu::section(".bss.without_memory")]] constinit Process without_memory;

/// Copies as much as fits and appends a zero byte. Returns the copy.
[[gnu::noinline]] std::string_view keep(std::string_view text, char* to, size_t size) {
  if (text.empty()) return {};
  const size_t length = text.size() < size ? text.size() : size - 1;
  for (size_t i = 0; i < length; ++i) to[i] = text[i];
  to[length] = '\0';
  return {to, length};
}

/// Makes no system call that the decision does not need. `room` is for the namespace's name.
ProcessIdentity identify(const Environment& environment, bool forked, std::span<char> room) {
  ProcessIdentity own = {.forked = forked, .privileged = privileged()};
  if (own.privileged || !names_children(environment)) return own;
  own.pid = sys::getpid();
  if (namespace_of_first_process(environment).empty()) return own;
  const long size = sys::readlink("/proc/self/ns/pid", room.data(), room.size());
  if (size > 0) own.pid_namespace = {room.data(), static_cast<size_t>(size)};
  return own;
}

}  // namespace

const char* variable(const char* name) {
  for (char** entry = __environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (const char* value = value_of(*entry, name); value != nullptr) return value;
  }
  return nullptr;
}

std::string_view Process::because() const {
  // In the order of ListBy.
  static constexpr char kNotEnforced[][45] = {"CUDAGUARD_VISIBLE_DEVICES cannot be enforced",
                                              "--gpus cannot be enforced",
                                              "gpus= cannot be enforced"};
  static constexpr char kNotAccepted[][42] = {"CUDAGUARD_VISIBLE_DEVICES is not accepted",
                                              "--gpus is not accepted", "gpus= is not accepted"};
  switch (inherited.fallen.load(std::memory_order_relaxed)) {
    case Fallen::kNoProxy:
      return "the driver cannot be guarded";
    case Fallen::kNotEnforced:
      return kNotEnforced[static_cast<size_t>(decision.allow_list.by)];
    case Fallen::kNotAccepted:
      return kNotAccepted[static_cast<size_t>(decision.allow_list.by)];
    default:
      return decision.because;
  }
}

Decision read_decision(bool forked) {
  if (!inherited.start.read.load(std::memory_order_acquire)) {
    read_start_environment(inherited.start, kernel_environment());
  }
  const Environment& environment = inherited.start.variables;
  char room[32];  // pid:[4026531836]
  Decision decision = decide_with_rules(environment, identify(environment, forked, room));
  if (inherited.has_report.load(std::memory_order_acquire) && inherited.report[0] != '\0') {
    decision.report = inherited.report;
  }
  return decision;
}

bool report_to(Process& process, const char* path) {
  const MachineRuling* machine = machine_ruling();
  if (machine != nullptr && !machine->ruling.report.empty()) return false;
  process.decision.report = keep(path, inherited.report, sizeof inherited.report);
  inherited.has_report.store(true, std::memory_order_release);
  return true;
}

void fall_back(Process& process, Fallen because_of) {
  inherited.fallen.store(because_of);
  // First, because a thread that has read one of the next two then asks for the policy.
  process.hook.state.store(HookState::kFallen);
  process.proxy.open.store(0);  // the driver's proxy allows calls unchecked while this is set
  inherited.hook.answers_age.fetch_add(HookInherited::kOneAge, std::memory_order_release);
}

/// True if this process was forked and has called no exec since. False if /proc is not there.
static bool is_forked() {
  const sys::File file("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  char text[256];
  const long length = file.ok() ? sys::read(file.fd(), text, sizeof text) : 0;
  if (length <= 0) return false;
  constexpr int kFlags = 9;
  constexpr int64_t kForkNoExec = 0x40;
  const int64_t flags = stat_field({text, static_cast<size_t>(length)}, kFlags);
  return flags >= 0 && (flags & kForkNoExec) != 0;
}

/// True if this process has only ever had one thread, and the process that forked it, too. False
/// if that is not known.
static bool had_one_thread(const Loader& loader) {
  const char* single = loader.single_threaded.get();
  return single != nullptr && *single != 0;
}

bool may_inherit_locks(Process& process) {
  if (!process.fork_known.load(std::memory_order_acquire)) {
    if (!had_one_thread(loader()) && is_forked()) {
      process.forked.store(true, std::memory_order_relaxed);
    }
    process.fork_known.store(true, std::memory_order_release);
  }
  return process.forked.load(std::memory_order_relaxed);
}

static LaterObjects walk_later_objects() {
  return process().forked.load(std::memory_order_relaxed) ? LaterObjects::kFree
                                                          : LaterObjects::kLocked;
}

LaterObjects later_objects() {
  return inherited.hook.may_have_loaded.load(std::memory_order_acquire) ? walk_later_objects()
                                                                        : LaterObjects::kNone;
}

LaterObjects later_objects(const void* code) {
  return start_objects().holder(code) == nullptr ? walk_later_objects() : later_objects();
}

bool privileged() {
  // getauxval would set errno for a missing entry, but the kernel always gives AT_SECURE.
  return getauxval(AT_SECURE) != 0;
}

namespace detail {

Process& make_process(Process* stale) {
  if (stale != nullptr && stale->ready && stale->only_pid == sys::getpid()) return *stale;
  // A forked child maps nothing of its own: if another thread of its parent was in dlopen, ld.so
  // may still have the address of a file that is no longer mapped (ld.so.cache). At the end of the
  // child's first dlopen it unmaps that address again, whatever is there now.
  void* const spare = stale == nullptr ? nullptr : inherited.spare.exchange(nullptr);
  void* const memory = spare != nullptr ? spare : sys::map(2 * kMapped);
  if (memory == nullptr) {
    without_memory.ready = true;
    return without_memory;
  }
  // No constructor runs: fresh pages are zero, and so is a new Process. Writing its zeros would
  // touch seven pages.
  auto* made = static_cast<Process*>(memory);
  if (stale != nullptr) {
    // Its own threads may unload libraries later, so a child without inherited locks must lock.
    made->forked.store(!had_one_thread(inherited.loader), std::memory_order_relaxed);
    made->fork_known.store(true, std::memory_order_relaxed);
  }
  new (&made->decision) Decision(read_decision(stale != nullptr));
  if (inherited.fallen.load() != Fallen::kNot) made->hook.state.store(HookState::kFallen);
  // The kernel keeps on wiping a spare.
  if (spare == nullptr && !sys::wipe_on_fork(memory, 2 * kMapped)) made->only_pid = sys::getpid();
  made->ready = true;
  // Another thread may have been faster. A stale object stays mapped, because another thread may be
  // reading it.
  if (inherited.process.compare_exchange_strong(stale, made, std::memory_order_acq_rel)) {
    if (spare != nullptr) {
      inherited.spare.store(stale);
    } else if (made->only_pid == 0) {
      inherited.spare.store(static_cast<char*>(memory) + kMapped);
    }
    return *made;
  }
  if (spare == nullptr) sys::unmap(memory, 2 * kMapped);
  return *stale;
}

}  // namespace detail
}  // namespace cudaguard
