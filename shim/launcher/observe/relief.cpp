// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/relief.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "policy/text/beacon.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/observe/listener.h"

namespace cudaguard::launcher {

namespace {

/// The process takes over if a call waits at two looks and the launcher has done nothing between
/// them. A program therefore starts after two periods at most.
constexpr int kPeriod = 40;  // milliseconds
/// How long the launcher waits for the end of the process, in milliseconds.
constexpr int kPatience = 50;
/// How long it waits for a call that the process has received, in milliseconds. Only a stopped
/// process needs longer.
constexpr int kSilence = 3000;

/// What the pipe carries before each record: the facts of an Identity, without its name.
struct Header {
  seccomp_notif call;
  pid_t pid;
  pid_t thread;
  pid_t parent;
  uint64_t started;
  uint64_t cpu;
  Image image;
  FileId program;
  bool forked;
  size_t record;  ///< its length
};

bool is_readable(int descriptor, int milliseconds = 0) {
  pollfd one = {descriptor, POLLIN, 0};
  return poll(&one, 1, milliseconds) == 1 && (one.revents & POLLIN) != 0;
}

/// Runs in the process.
class Server {
 public:
  Server(int listener, int to, Relief::Shared& shared)
      : listener_(listener), to_(to), shared_(shared) {
    seccomp_notif_sizes sizes = {};
    syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
    room_.resize(std::max(sizeof(seccomp_notif), size_t{sizes.seccomp_notif}));
    answer_.resize(std::max(sizeof(seccomp_notif_resp), size_t{sizes.seccomp_notif_resp}));
  }

  /// Returns when the launcher has ended.
  void run() {
    uint64_t before = 0;
    bool waited = false;  // a call waited at the last look
    bool takes = false;
    for (;;) {
      pollfd both[] = {{takes ? listener_ : -1, POLLIN, 0},
                       {to_, static_cast<short>(backlog_.empty() ? 0 : POLLOUT), 0}};
      poll(both, std::size(both), kPeriod);
      if ((both[1].revents & POLLERR) != 0 || !flush()) return;
      const uint64_t now = shared_.progress.load(std::memory_order_relaxed);
      const bool waits = is_readable(listener_);
      takes = now == before && (takes || (waits && waited));
      if (takes && waits && !take()) return;
      before = now;
      waited = waits;
    }
  }

 private:
  /// Returns false if no call can be received on this system.
  bool take() {
    std::fill(room_.begin(), room_.end(), 0);  // the kernel wants zeros there
    auto* received = reinterpret_cast<seccomp_notif*>(room_.data());
    const int error = Relief::receive(&shared_, listener_, received);
    // ENOENT: the thread was killed meanwhile.
    if (error != 0) return error == EAGAIN || error == ENOENT || error == EINTR;
    Header header = {};
    header.call = *received;
    std::string record;
    const bool starts = is_start(header.call);
    if (starts) {
      const Identity who = identify(static_cast<pid_t>(header.call.pid));
      header.pid = who.pid;
      header.thread = who.thread;
      header.parent = who.stat.parent;
      header.started = who.stat.started;
      header.cpu = who.stat.cpu;
      header.image = who.stat.image;
      header.forked = who.stat.forked;
      header.program = executable_id(who.pid);
      record = start_record_of(who, header.call.data.args[2]);
    }
    header.record = record.size();
    backlog_.append(reinterpret_cast<const char*>(&header), sizeof header).append(record);
    shared_.received.fetch_add(1, std::memory_order_release);
    if (!starts) return true;
    // The launcher sees this call before any later one of the program.
    flush();
    std::fill(answer_.begin(), answer_.end(), 0);
    auto* answer = reinterpret_cast<seccomp_notif_resp*>(answer_.data());
    answer->id = header.call.id;
    answer->error = -kHeard;
    ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, answer);
    return true;
  }

  /// Returns false if the launcher has ended.
  bool flush() {
    while (!backlog_.empty()) {
      const ssize_t count = write(to_, backlog_.data(), backlog_.size());
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      backlog_.erase(0, static_cast<size_t>(count));
    }
    return true;
  }

  int listener_;
  int to_;
  Relief::Shared& shared_;
  std::vector<char> room_;
  std::vector<char> answer_;
  std::string backlog_;
};

/// Leaves the launcher's session, and gives up all of its descriptors but these.
void leave(int listener, int to) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  give_up_descriptors({listener, to});
  dup2(STDOUT_FILENO, STDERR_FILENO);
}

bool read_all(int descriptor, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size != 0) {
    if (!is_readable(descriptor, kSilence)) return false;
    const ssize_t count = read(descriptor, at, size);
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
    if (count < 0) continue;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

bool is_start(const seccomp_notif& call) {
  return call.data.nr == SYS_getpid && call.data.args[0] == kBeaconMagic &&
         call.data.args[1] == static_cast<uint64_t>(Beacon::kStart);
}

int Relief::receive(Shared* shared, int listener, seccomp_notif* to) {
  // The ioctl blocks if there is no call, as after the other process has received it. So both must
  // not see the same call. The mutex is robust, because either process may be killed.
  const int error = shared == nullptr ? 0 : pthread_mutex_trylock(&shared->receiving);
  if (error == EBUSY) return EAGAIN;
  if (error == EOWNERDEAD) pthread_mutex_consistent(&shared->receiving);
  int result = EAGAIN;
  if (is_readable(listener)) {
    result = ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, to) == 0 ? 0 : errno;
  }
  if (shared != nullptr) pthread_mutex_unlock(&shared->receiving);
  return result;
}

Relief::Relief(int listener) {
  if (listener < 0 || !has_own_numbers()) return;
  void* shared =
      mmap(nullptr, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int both[2] = {-1, -1};
  if (shared == MAP_FAILED || pipe2(both, O_CLOEXEC) != 0) return;
  for (int& one : both) one = above_stderr(one);
  shared_ = new (shared) Shared;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared_->receiving, &kind);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != launcher) _exit(0);
    fcntl(both[1], F_SETFL, O_NONBLOCK);
    try {
      leave(listener, both[1]);
      Server(listener, both[1], *shared_).run();
    } catch (const std::exception&) {
      // Memory has run out. The calls wait for the launcher, as without this process.
    }
    _exit(0);
  }
  close(both[1]);
  calls_ = both[0];
  if (pid_ < 0) end();
}

void Relief::end() {
  if (calls_ >= 0) close(std::exchange(calls_, -1));
}

Relief::~Relief() {
  end();
  // It ends because the pipe has no reader. If it is stopped, it is killed when the launcher ends.
  for (int i = 0; pid_ > 0 && i < kPatience && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) {
    usleep(1000);
  }
}

std::optional<Relief::Call> Relief::take() {
  if (calls_ < 0) return {};
  const bool behind = is_behind();
  if (!is_readable(calls_, behind ? kSilence : 0)) {
    if (behind) end();
    return {};
  }
  Header header = {};
  Call taken = {};
  bool whole = read_all(calls_, &header, sizeof header);
  if (whole) taken.record.resize(header.record);
  whole = whole && read_all(calls_, taken.record.data(), taken.record.size());
  if (!whole) {
    end();
    return {};
  }
  ++taken_;
  taken.call = header.call;
  taken.who.pid = header.pid;
  taken.who.thread = header.thread;
  taken.who.program = header.program;
  taken.who.stat.parent = header.parent;
  taken.who.stat.started = header.started;
  taken.who.stat.cpu = header.cpu;
  taken.who.stat.image = header.image;
  taken.who.stat.forked = header.forked;
  return taken;
}

}  // namespace cudaguard::launcher
