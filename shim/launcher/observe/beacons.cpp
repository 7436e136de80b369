// SPDX-License-Identifier: Apache-2.0
// The model gets the native stack beside the record. In the user's report, the stack is a record of
// its own, in the line before the record.
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <algorithm>
#include <iterator>

#include "policy/driver_api.h"
#include "policy/policies.h"
#include "policy/program.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/fence/notification.h"
#include "shim/launcher/observe/listener.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/unwind/unwind.h"

namespace cudaguard::launcher {

namespace {

/// The most bytes of memory for the records of a run. A program can send any number of forged
/// beacons.
constexpr size_t kMostBytes = size_t{1} << 30;
/// The most bytes that the model keeps of one record.
constexpr size_t kModelOfRecord = 2000;
constexpr size_t kMostAnnounced = 100000;

/// Returns an empty string if the memory is unreadable or has no record.
std::string read_record(ProcessView& process, const BeaconMessage& message) {
  if (message.length == 0 || message.length > kMaxRecord) return {};
  std::string text(message.length, '\0');
  if (!process.read(message.text, text.data(), text.size())) return {};
  if (text.back() == '\n') text.pop_back();
  return text.find('\n') == std::string::npos ? text : std::string();
}

Registers registers_of(const BeaconMessage& message) {
#if defined(__x86_64__)
  constexpr uint64_t kDwarfNumbers[] = {16, 7, 6, 3, 12, 13, 14, 15};
#else
  constexpr uint64_t kDwarfNumbers[] = {32, 31, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30};
#endif
  static_assert(std::size(kDwarfNumbers) == BeaconMessage::kRegisters);
  Registers registers;
  for (size_t i = 0; i < std::size(kDwarfNumbers); ++i) {
    registers.set(kDwarfNumbers[i], message.registers[i]);
  }
  return registers;
}

bool is_same_program(const Identity& a, const Identity& b) {
  return a.pid == b.pid && a.stat.started == b.stat.started && a.stat.image == b.stat.image;
}

/// What the kind of a beacon says of an attempt.
struct AttemptKind {
  Beacon what;
  DriverApi asked;
  const char* api;
  const char* object = "";
  EventKind event = EventKind::kNone;
};
constexpr const char* kContextApi = "cuCtxCreate or the like";
constexpr AttemptKind kAttempts[] = {
    {Beacon::kCuda, DriverApi::kCuda, "cuInit or the like"},
    {Beacon::kNvml, DriverApi::kNvml, "nvmlInit or the like"},
    {Beacon::kOpenCl, DriverApi::kOpenCl, "dlopen", "libnvidia-opencl.so.1"},
    {Beacon::kRefused, DriverApi::kCuda, "dlopen", "libcuda.so.1", EventKind::kRefused},
    {Beacon::kExposed, DriverApi::kCuda, kLookUpApi, "libcuda.so.1", EventKind::kExposed},
    {Beacon::kContext, DriverApi::kContext, kContextApi, "", EventKind::kContext},
    {Beacon::kNoContext, DriverApi::kContext, kContextApi, "", EventKind::kNoContext},
};

/// Null for a beacon that announces no attempt.
const AttemptKind* attempt_of(Beacon what) {
  const auto* found = std::ranges::find(kAttempts, what, &AttemptKind::what);
  return found == std::end(kAttempts) ? nullptr : found;
}

/// A record without the details that the guard would have sent. The process's program stands for
/// the caller.
std::string record_of(const Identity& who, const AttemptKind& kind, const char* why) {
  const std::string arguments = has_own_numbers() ? arguments_of(who.pid) : "";
  std::string_view rest = arguments;
  Attempt attempt;
  attempt.file = base_name(take_argument(rest));
  if (attempt.file.empty()) attempt.file = who.stat.name;
  attempt.api = kind.api;
  attempt.object = kind.object;
  attempt.asked = kind.asked;
  attempt.event = kind.event;
  return kernel_record(who, attempt, why);
}

}  // namespace

void Listener::take_start(const seccomp_notif& call, const std::function<bool()>& go_on) {
  const Identity who = identify(static_cast<pid_t>(call.pid));
  Attempt attempt;
  attempt.event = EventKind::kStart;
  if (const uint64_t number = call.data.args[2] - 1; number < std::size(kPolicies)) {
    attempt.policy = static_cast<Policy>(number);
  }
  // Either a signal has interrupted the call, and the guard repeats it, or the process was killed.
  if (!still_waits(descriptor_, call)) return;
  report_ended_by(who, announced_.begin(), announced_.end());
  const std::string arguments = begin_(who, attempt.policy == Policy::kOff);
  attempt.program = arguments;
  const std::string record = kernel_record(who, attempt, nullptr);
  go_on();  // the program need not wait for the rest
  bytes_ += record.size() + kModelOfRecord;
  too_many_ |= bytes_ > kMostBytes;
  if (!too_many_) report_(who, Beacon::kStart, record, {});
}

void Listener::take_beacon(const seccomp_notif& call) {
  const auto thread = static_cast<pid_t>(call.pid);
  const auto what = static_cast<Beacon>(call.data.args[1]);
  const uint64_t message = call.data.args[3];
  const auto known = announced_.find({thread, what});
  const AttemptKind* const attempt = attempt_of(what);
  if (what == Beacon::kWithdrawn) {
    announced_.erase(announced_.lower_bound({thread, Beacon{}}),
                     announced_.lower_bound({thread + 1, Beacon{}}));
    return;
  }
  const bool is_known = known != announced_.end() && message != 0;
  const Identity who = is_known ? known->second.who : identify(thread);
  if (message == 0) {
    too_many_ |= announced_.size() >= kMostAnnounced;
    if (attempt == nullptr || too_many_) return;
    // A repeated call is ignored, unless another program has the same id now. Its withdrawal must
    // not take back what the earlier one has announced.
    report_ended_by(who, announced_.lower_bound({thread, Beacon{}}),
                    announced_.lower_bound({thread + 1, Beacon{}}));
    // When the process has ended, nothing says which program it ran.
    const char* const why = call.data.nr == SYS_getpid
                                ? "its process ended before it sent the details"
                                : "a seccomp filter of its process refused the details";
    announced_.insert_or_assign({thread, what}, Announcement{who, record_of(who, *attempt, why)});
    return;
  }
  WaitingProcess process(thread, has_own_numbers());
  BeaconMessage content = {};
  const bool readable = message != 0 && process.read(message, &content, sizeof content);
  std::string record = readable ? read_record(process, content) : "";
  bytes_ += record.size() + kModelOfRecord;
  too_many_ |= bytes_ > kMostBytes;
  if (too_many_) record.clear();
  // Either a signal has interrupted the call, and the guard repeats it, or the process was killed:
  // finish() reports what was announced.
  if (!still_waits(descriptor_, call)) return;
  if (known != announced_.end()) announced_.erase(known);
  NativeStack native;
  if (attempt != nullptr && readable) {
    native = has_own_numbers() ? unwind(process, registers_of(content), is_own_library)
                               : NativeStack{{}, "/proc is another PID namespace's"};
    if (!native.is_known()) native.cut = std::string("?");  // GCC 12 warns about the text alone
  }
  // The record may say something else, because another thread can write to that memory.
  if (!record.empty() && report_(who, what, record, native)) return;
  if (attempt == nullptr) return;
  const char* const why = readable ? "its process had no memory for the details"
                                   : "the memory of its process could not be read";
  report_(who, what, record_of(who, *attempt, why), native);
}

void Listener::report_ended(const Announced::value_type& one) {
  report_(one.second.who, one.first.second, one.second.record, {});
}

void Listener::report_ended_by(const Identity& who, Announced::iterator from,
                               Announced::iterator to) {
  // Their records belong to the earlier program only before the next one's start record.
  for (auto at = from; at != to;) {
    const Identity& one = at->second.who;
    const bool ended =
        (one.pid == who.pid || one.thread == who.thread) && !is_same_program(one, who);
    if (ended) report_ended(*at);
    at = ended ? announced_.erase(at) : std::next(at);
  }
}

}  // namespace cudaguard::launcher
