// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/ioctl_recorder.h"

#include <linux/seccomp.h>

#include <string>

#include "policy/driver_api.h"
#include "policy/message.h"
#include "policy/nvidia_requests.h"
#include "policy/text.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/unwind/unwind.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostTold = 100000;

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

std::string record_of(const Identity& who, uint32_t request, bool nvml, bool look) {
  const std::string object = text_of([&](Text& out) {
    out.put_hex(request).put(" ").put(name_of_request(request)).put(nvml ? kNvmlMark : "");
  });
  Touch touch;
  touch.api = kRequestApi;
  touch.object = object;
  return kernel_record(who, touch, "the kernel saw the request, around the guard", look);
}

}  // namespace

void IoctlRecorder::take(const seccomp_notif& call, const Listener& listener) {
  const auto request = static_cast<uint32_t>(call.data.args[1]);
  if (request == kNobodysRequest) return;
  const auto thread = static_cast<pid_t>(call.pid);
  const Identity who = identify(thread);
  Key key = {who.pid, who.started, who.image, kind_of(request), false};
  if (told_.contains(key)) return;
  const bool nvml = has_own_numbers() && is_by_nvml(thread, request);
  std::get<bool>(key) = nvml;
  if (told_.contains(key)) return;
  const std::string record = record_of(who, request, nvml, true);
  // The facts above belong to the waiting thread only if that thread still waits.
  if (!listener.still_waits(call)) {
    lost_.emplace(who.pid, request);
    return;
  }
  if (told_.size() > kMostTold) told_.clear();
  told_.insert(key);
  tell_(who, record);
}

void IoctlRecorder::finish() {
  for (const auto& [pid, request] : lost_) {
    const auto told = told_.lower_bound({pid, 0, {}, 0, false});
    if (told != told_.end() && std::get<pid_t>(*told) == pid) continue;
    const Identity who = {.pid = pid, .thread = pid};
    tell_(who, record_of(who, request, false, false));
  }
}

}  // namespace cudaguard::launcher
