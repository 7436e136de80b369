// SPDX-License-Identifier: Apache-2.0
// Each call of the filter needs an answer as long as any process of the tree lives. The keeper
// gives the one that the launcher would give, but reports nothing, so the launcher's result is
// INCOMPLETE afterwards. It ends when the kernel reports that no process has the filter any more.
//
// Each of the two receives calls into memory that both share: if it is stopped or killed before it
// answers, the other one does. A thread of the launcher would be stopped with it.
#include "shim/launcher/observe/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "shim/guard/text/beacon.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/fence/filter.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

struct Keeper::Shared {
  std::atomic<bool> listens{false};   ///< the launcher
  std::atomic<bool> over{true};       ///< no process needs the keeper after the launcher's end
  std::atomic<bool> missed{false};    ///< see has_missed()
  std::atomic<uint64_t> progress{0};  ///< of the launcher
  pthread_mutex_t receiving = {};     ///< held by the one that receives
  seccomp_notif launchers = {};       ///< the last call that it has received
  seccomp_notif keepers = {};         ///< the same; its id is 0 once it is answered
};

namespace {

constexpr int kPeriod = 40;  // milliseconds between two looks at the launcher
constexpr int kPatience =
    125;  // looks at which calls wait and the launcher sleeps, or reads a file

bool is_readable(int descriptor) {
  pollfd one = {descriptor, POLLIN, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
}

/// Returns EAGAIN if the other process receives. The mutex is robust, because either process may be
/// killed.
int lock(pthread_mutex_t& mutex) {
  const int error = pthread_mutex_trylock(&mutex);
  if (error == EOWNERDEAD) pthread_mutex_consistent(&mutex);
  return error == EBUSY ? EAGAIN : 0;
}

/// Call this with the mutex held. The ioctl would block if the other process got the call first.
int receive_call(int listener, seccomp_notif& to) {
  if (!is_readable(listener)) return EAGAIN;
  to = {};  // the kernel wants zeros there
  return ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &to) == 0 ? 0 : errno;
}

/// A message with one descriptor.
struct Passed {
  char byte = 0;
  iovec text = {&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  Passed() {
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
  }
};

/// Answers what the launcher has received, and one call that waits. Returns as Keeper::receive().
int answer_one(int listener, Keeper::Shared& shared) {
  if (lock(shared.receiving) != 0) return EAGAIN;
  bool answered = answer_call(listener, shared.launchers);
  const int error = receive_call(listener, shared.keepers);
  if (error == 0) answered |= answer_call(listener, shared.keepers);
  shared.keepers.id = 0;
  if (answered && shared.listens) shared.missed = true;
  pthread_mutex_unlock(&shared.receiving);
  return error;
}

/// Runs in the process. Returns when the last process with the filter has ended, or if no call can
/// be received on this system.
void answer_calls(int launcher, pid_t pid, Keeper::Shared& shared) {
  Passed passed;
  if (recvmsg(launcher, &passed.message, MSG_CMSG_CLOEXEC) != 1) return;
  const cmsghdr* const descriptor = CMSG_FIRSTHDR(&passed.message);
  if (descriptor == nullptr) return;
  int listener = -1;
  memcpy(&listener, CMSG_DATA(descriptor), sizeof listener);
  uint64_t before = 0;
  int looks = 0;  // see kPatience
  bool lives = true;
  for (bool takes = true;;) {
    pollfd both[] = {{listener, static_cast<short>(takes ? POLLIN : 0), 0},
                     {lives ? launcher : -1, 0, 0}};
    poll(both, std::size(both), lives ? kPeriod : -1);
    lives &= both[1].revents == 0;
    const bool ended = (both[0].revents & (POLLERR | POLLHUP)) != 0;
    if (ended || (!lives && shared.over)) return;
    const uint64_t now = shared.progress;
    const bool idle = now == std::exchange(before, now);
    // Without our own /proc, a stopped launcher is taken for a blocked one.
    const char state = !idle ? 'R' : has_own_numbers() ? read_stat(pid).state : 'S';
    const bool waits = is_readable(listener) || still_waits(listener, shared.launchers);
    looks = state == 'R' ? 0 : looks + static_cast<int>(waits);
    takes = !lives || !shared.listens || state == 'T' || looks > kPatience;
    const int error = takes ? answer_one(listener, shared) : 0;
    // ENOENT: the thread was killed meanwhile.
    if (error == EAGAIN) takes = !is_readable(listener);
    if (error != 0 && error != EAGAIN && error != ENOENT && error != EINTR) return;
  }
}

[[noreturn]] void give_up() {
  throw Refusal(kRefused, std::string("cannot start a process: ") + strerror(errno));
}

/// Leaves the launcher's session and directory, and gives up its descriptors but this.
void leave(int launcher) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  give_up_descriptors({launcher});
  if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0) close(STDERR_FILENO);
  if (chdir("/") != 0) return;  // its directory remains
}

}  // namespace

bool is_exec(const seccomp_notif& call) {
  constexpr Architecture machine = kThisArchitecture;
  auto number = static_cast<uint32_t>(call.data.nr);
  if (call.data.arch == machine.older) {
    return number == machine.execs[4] || number == machine.execs[5];
  }
  number &= ~machine.x32_bit;
  return call.data.arch == machine.architecture &&
         std::find(machine.execs.begin(), machine.execs.begin() + 4, number) !=
             machine.execs.begin() + 4;
}

bool answer_call(int listener, const seccomp_notif& call) {
  seccomp_notif_resp answer = {};
  answer.id = call.id;
  if (is_exec(call)) {
    answer.flags = kContinue;
  } else {
    answer.error = call.data.nr == SYS_getpid ? -kHeard : -ENODEV;
  }
  return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0;
}

bool still_waits(int listener, const seccomp_notif& call) {
  /// SECCOMP_IOCTL_NOTIF_ID_VALID before Linux 5.9, which declared the wrong direction.
  constexpr unsigned long kOlderIdValid = SECCOMP_IOR(2, uint64_t);
  uint64_t id = call.id;
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0) return true;
  return errno != ENOENT && ioctl(listener, kOlderIdValid, &id) == 0;
}

Keeper::Keeper() {
  void* shared =
      mmap(nullptr, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int both[2] = {-1, -1};
  if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) != 0) {
    give_up();
  }
  for (int& one : both) one = above_stderr(one);
  shared_ = new (shared) Shared;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared_->receiving, &kind);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) give_up();
  // Without our own /proc, Tree waits until this process has no children.
  const bool is_child = has_own_numbers();
  if (pid_ == 0) {
    if (!is_child && fork() != 0) _exit(0);
    try {
      leave(both[1]);
      answer_calls(both[1], launcher, *shared_);
    } catch (const std::exception&) {
      // Memory has run out. The calls wait for the launcher, as without this process.
    }
    _exit(0);
  }
  close(both[1]);
  socket_ = both[0];
  if (is_child) return;
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

Keeper::~Keeper() {
  close(socket_);
  // Tree may have reaped it, and then its id may be another process's.
  if (!shared_->over || pid_ == 0 || waitpid(pid_, nullptr, WNOHANG) != 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Keeper::keep(int listener) {
  Passed passed;
  cmsghdr& one = *CMSG_FIRSTHDR(&passed.message);
  one.cmsg_len = CMSG_LEN(sizeof listener);
  one.cmsg_level = SOL_SOCKET;
  one.cmsg_type = SCM_RIGHTS;
  memcpy(CMSG_DATA(&one), &listener, sizeof listener);
  if (sendmsg(socket_, &passed.message, MSG_NOSIGNAL) != 1) give_up();
}

void Keeper::begin() {
  shared_->over = false;
  shared_->listens = true;
}

void Keeper::end(bool left) {
  shared_->listens = false;
  shared_->over = !left;
}

int Keeper::receive(int listener, seccomp_notif& call) {
  if (lock(shared_->receiving) != 0) return EAGAIN;
  seccomp_notif& last = shared_->launchers;
  int error = 0;
  if (shared_->keepers.id != 0) {
    last = std::exchange(shared_->keepers, {});  // the other process was killed
  } else {
    error = receive_call(listener, last);
  }
  call = last;
  pthread_mutex_unlock(&shared_->receiving);
  return error;
}

void Keeper::note_progress() { shared_->progress.fetch_add(1, std::memory_order_relaxed); }

bool Keeper::has_missed() const { return shared_->missed; }

}  // namespace cudaguard::launcher
