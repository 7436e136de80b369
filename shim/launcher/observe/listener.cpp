// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/listener.h"

#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "policy/driver_api.h"
#include "policy/nvidia_requests.h"
#include "policy/text.h"
#include "shim/guard/text/attempt.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/fence/notification.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/unwind/unwind.h"

namespace cudaguard::launcher {

namespace {

/// SECCOMP_IOCTL_NOTIF_SET_FLAGS with SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (Linux 6.6): the launcher
/// runs on the caller's processor, so that no idle one has to wake up.
constexpr unsigned long kSetFlags = SECCOMP_IOW(4, uint64_t);
constexpr unsigned long kSyncWakeUp = 1;

/// The size in an ioctl number depends on the driver's version.
uint32_t kind_of(uint32_t request) {
  return request == kUvmInitialize ? request : number_of(request);
}

bool is_libc(std::string_view file) {
  const std::string_view name = base_name(file);
  return name.starts_with("libc.so.") || name.starts_with("libc-2.");
}

/// True if NVML's own code made the ioctl. NVML never sends UVM_INITIALIZE. False if the stack
/// of the waiting thread cannot be read.
bool is_by_nvml(pid_t thread, uint32_t request) {
  if (request == kUvmInitialize) return false;
  const auto registers = waiting_at(thread);
  if (!registers) return false;
  WaitingProcess process(thread);
  const NativeStack stack = unwind(process, *registers, is_libc, {.frames = 4});
  return !stack.frames.empty() && !is_own_library(stack.frames[0].module) &&
         base_name(stack.frames[0].module).starts_with("libnvidia-ml.so");
}

/// The announcement of a context in an ioctl of the guard, otherwise nothing. Its other attempts
/// are reported as the ioctl.
std::optional<seccomp_notif> announcement_in(const seccomp_notif& call) {
  const auto what = static_cast<Beacon>(call.data.args[2]);
  const bool is_guards = call.data.nr == __NR_ioctl && static_cast<int>(call.data.args[0]) == -1 &&
                         static_cast<uint32_t>(call.data.args[1]) == kGuardsRequest &&
                         (what == Beacon::kContext || what == Beacon::kNoContext);
  if (!is_guards) return {};
  seccomp_notif announcement = call;
  announcement.data.args[1] = call.data.args[2];
  announcement.data.args[2] = announcement.data.args[3] = 0;
  return announcement;
}

std::string record_of(const Identity& who, uint32_t request, bool nvml, bool look) {
  const std::string object = text_of([&](Text& out) {
    out.put_hex(request).put(" ").put(name_of_request(request)).put(nvml ? " (NVML)" : "");
  });
  Attempt attempt;
  attempt.api = kRequestApi;
  attempt.object = object;
  if (nvml) attempt.asked = DriverApi::kNvml;
  return kernel_record(who, attempt, "only the kernel saw the ioctl", look);
}

}  // namespace

Listener::Listener(int descriptor, Keeper& keeper, Report report, Begin begin, Exec exec)
    : descriptor_(above_stderr(descriptor)),
      keeper_(keeper),
      report_(std::move(report)),
      begin_(std::move(begin)),
      exec_(std::move(exec)) {
  if (descriptor_ < 0) throw Refusal(kRefused, std::string("--fence: ") + strerror(errno));
  ioctl(descriptor_, kSetFlags, kSyncWakeUp);
}

Listener::~Listener() { close(descriptor_); }

void Listener::handle(const seccomp_notif& call) noexcept {
  const bool is_beacon = call.data.nr == __NR_getpid && call.data.args[0] == kBeaconMagic;
  bool answered = false;
  // After a signal, the thread repeats the call, and the first one has no answer. Linux 5.19 and
  // later leave it waiting.
  const auto go_on = [&] { return answered = answer_call(descriptor_, call); };
  try {
    if (is_exec(call.data)) {
      exec_(identify(static_cast<pid_t>(call.pid)), call.data, go_on);
    } else if (const auto announcement = announcement_in(call)) {
      take_beacon(*announcement);
    } else if (!is_beacon) {
      take_ioctl(call);
    } else if (static_cast<Beacon>(call.data.args[1]) == Beacon::kStart) {
      take_start(call, go_on);
    } else {
      take_beacon(call);
    }
  } catch (const std::exception&) {
    failed_ = true;
  }
  if (!answered) answer_call(descriptor_, call);
}

void Listener::answer() noexcept {
  seccomp_notif call = {};
  const int error = keeper_.receive(descriptor_, call);
  // ENOENT: the thread was killed meanwhile.
  if (error == EAGAIN || error == ENOENT || error == EINTR) return;
  if (error != 0) {
    close(std::exchange(descriptor_, -1));
    keeper_.end(true);
    failed_ = true;
    return;
  }
  handle(call);
}

void Listener::take_ioctl(const seccomp_notif& call) {
  const auto request = static_cast<uint32_t>(call.data.args[1]);
  if (request == kNobodysRequest) return;
  const auto thread = static_cast<pid_t>(call.pid);
  const Identity who = identify(thread);
  Ioctl key = {who.pid, who.stat.started, who.stat.image, kind_of(request), false};
  if (reported_.contains(key)) return;
  const bool nvml = has_own_numbers() && is_by_nvml(thread, request);
  std::get<bool>(key) = nvml;
  if (reported_.contains(key)) return;
  const std::string record = record_of(who, request, nvml, true);
  // The facts above belong to the waiting thread only if that thread still waits.
  if (!still_waits(descriptor_, call)) {
    lost_.emplace(who.pid, request);
    return;
  }
  reported_.insert(key);
  report_(who, {}, record, {});
}

void Listener::finish() noexcept {
  try {
    for (const auto& [pid, request] : lost_) {
      // This process may have been reported already.
      const auto reported = reported_.lower_bound({pid, 0, {}, 0, false});
      if (reported != reported_.end() && std::get<pid_t>(*reported) == pid) continue;
      const Identity who = {.pid = pid, .thread = pid};
      report_(who, {}, record_of(who, request, false, false), {});
    }
    for (const auto& one : announced_) report_ended(one);
    announced_.clear();
  } catch (const std::exception&) {
    failed_ = true;
  }
}

std::vector<std::string> Listener::doubts() const {
  std::vector<std::string> doubts;
  if (failed_) doubts.emplace_back(kRecordsLost);
  if (const uint64_t calls = keeper_.answered(); calls > 0) {
    doubts.push_back("cudaguard was stopped for a time, or too slow, and missed " +
                     counted(calls, "call") + " of programs; run it again");
  }
  if (too_many_) doubts.emplace_back("too many beacons (more than 1 GB of records)");
  return doubts;
}

}  // namespace cudaguard::launcher
