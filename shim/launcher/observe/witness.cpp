// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/witness.h"

#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <utility>

#include "policy/asked.h"
#include "policy/message.h"
#include "policy/nvidia_requests.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

/// In one go: the tree's signals must not wait for a program that asks in a loop.
constexpr int kMostAnswers = 256;
/// SECCOMP_IOCTL_NOTIF_ID_VALID before Linux 5.9: read for write, by mistake.
constexpr unsigned long kOlderIdValid = SECCOMP_IOR(2, uint64_t);
constexpr size_t kMostTold = 100000;
constexpr const char* kNoStack = "the kernel saw the request, around the guard";

/// For a structure that may be longer in this kernel than in our headers.
std::vector<uint64_t> room_for(size_t size) {
  return std::vector<uint64_t>((size + sizeof(uint64_t) - 1) / sizeof(uint64_t));
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string name_of(uint32_t request, bool nvml) {
  return text_of([&](Text& out) {
    out.put_hex(request).put(" ").put(name_of_request(request)).put(nvml ? kNvmlMark : "");
  });
}

/// The same request comes with other sizes in other versions of the driver.
uint32_t kind_of(uint32_t request) {
  return request == kUvmInitialize ? request : number_of(request);
}

}  // namespace

Witness::Witness(int descriptor, Tell tell)
    : descriptor_(above_stderr(descriptor)), tell_(std::move(tell)), host_(host_name()) {
  if (descriptor_ < 0) throw Refusal(kRefused, std::string("--fence: ") + strerror(errno));
  seccomp_notif_sizes sizes = {};
  syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
  asks_ = room_for(std::max(sizeof(seccomp_notif), size_t{sizes.seccomp_notif}));
  answers_ = room_for(std::max(sizeof(seccomp_notif_resp), size_t{sizes.seccomp_notif_resp}));
}

Witness::~Witness() { close(descriptor_); }

bool Witness::answer() noexcept {
  pollfd waiting = {descriptor_, POLLIN, 0};
  auto* asks = reinterpret_cast<seccomp_notif*>(asks_.data());
  auto* answer = reinterpret_cast<seccomp_notif_resp*>(answers_.data());
  for (int i = 0; i < kMostAnswers && poll(&waiting, 1, 0) == 1; ++i) {
    std::fill(asks_.begin(), asks_.end(), 0);  // the kernel wants zeros there
    // One that was killed meanwhile is no more: ENOENT. It never waits for the next one.
    if (ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_RECV, asks) != 0) {
      if (errno == ENOENT || errno == EINTR) continue;
      close(std::exchange(descriptor_, -1));
      failed_ = true;
      return false;
    }
    try {
      note(*asks);
    } catch (const std::exception&) {
      failed_ = true;
    }
    std::fill(answers_.begin(), answers_.end(), 0);
    answer->id = asks->id;
    answer->error = -ENODEV;
    ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_SEND, answer);
  }
  return true;
}

void Witness::note(const seccomp_notif& asks) {
  const auto request = static_cast<uint32_t>(asks.data.args[1]);
  if (request == kNobodysRequest) return;
  const auto thread = static_cast<pid_t>(asks.pid);
  const Stat stat = can_look_ ? read_stat(thread) : Stat();
  Key key = {thread, stat.started, stat.image, kind_of(request), false};
  if (told_.contains(key)) return;
  const Owner owner = can_look_ ? owner_of(thread) : Owner{thread, geteuid(), {}, {}, {}};
  const Stat whole = owner.pid == thread ? stat : read_stat(owner.pid);
  const bool nvml = can_look_ && driver_of(thread) == Driver::kNvml;
  // Was all of that about the one that waits, and not about a later one of that number?
  if (!still_waits(asks.id)) {
    lost_.emplace(owner.pid, request);
    return;
  }
  if (told_.size() > kMostTold) told_.clear();
  std::get<bool>(key) = nvml;
  const bool thread_is_new = told_.insert(key).second;
  const bool is_new =
      owner.pid == thread
          ? thread_is_new
          : told_.insert({owner.pid, whole.started, whole.image, kind_of(request), nvml}).second;
  if (is_new) tell_(owner.pid, record_of(owner, thread, whole.parent, request, nvml));
}

bool Witness::still_waits(uint64_t id) const {
  if (ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0) return true;
  return errno != ENOENT && ioctl(descriptor_, kOlderIdValid, &id) == 0;
}

std::string Witness::record_of(const Owner& owner, pid_t thread, pid_t parent, uint32_t request,
                               bool nvml) const {
  const std::string object = name_of(request, nvml);
  Stack stack = {};
  stack.python_missing = kNoStack;
  Touch touch;
  touch.api = kRequestApi;
  touch.object = object;
  touch.stack = &stack;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  ProcessFacts facts;
  facts.pid = static_cast<uint32_t>(owner.pid);
  facts.parent_pid = static_cast<uint32_t>(std::max(parent, 0));
  facts.thread_id = static_cast<uint32_t>(thread);
  facts.seconds = static_cast<uint64_t>(now.tv_sec);
  facts.microseconds = static_cast<uint32_t>(now.tv_nsec / 1000);
  facts.uid = owner.uid;
  facts.executable = owner.exe;
  facts.arguments = owner.arguments;
  facts.host = host_;
  facts.cgroup = cgroup_of(owner.cgroup);
  const char* job = getenv("SLURM_JOB_ID");  // NOLINT(concurrency-mt-unsafe): one thread
  if (job != nullptr) facts.slurm = job;
  std::string text(kMaxRecord, '\0');
  Text out(text.data(), text.size());
  write_record(out, facts, touch, text.size());
  text.resize(out.view().size() - 1);  // without the end of the line
  return text;
}

void Witness::finish() noexcept {
  try {
    for (const auto& [pid, request] : lost_) {
      const auto told = told_.lower_bound({pid, 0, {}, 0, false});
      if (told != told_.end() && std::get<pid_t>(*told) == pid) continue;
      tell_(0, record_of({pid, geteuid(), {}, {}, {}}, pid, 0, request, false));
    }
  } catch (const std::exception&) {
    failed_ = true;
  }
}

std::string Witness::doubt() const {
  return failed_ ? "not all that ran into the fence could be written down" : "";
}

}  // namespace cudaguard::launcher
