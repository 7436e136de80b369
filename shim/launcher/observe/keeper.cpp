// SPDX-License-Identifier: Apache-2.0
// Each call of the filter needs an answer as long as any process of the tree lives. The keeper
// gives it:
//
// - before the launcher listens, and after it has stopped listening: the launcher itself starts
//   ld.so and addr2line;
// - while the launcher is stopped (two looks, 40 ms apart), or has done nothing for ten seconds: it
//   may read a file of a server that starts programs itself;
// - after the launcher's end, whatever ended it. The keeper ends when the kernel reports that no
//   process has the filter any more.
//
// Both receive a call into the same memory, so that either can answer what the other one has
// received. A thread of the launcher would be stopped with it.
#include "shim/launcher/observe/keeper.h"

#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "shim/launcher/child/child.h"
#include "shim/launcher/fence/notification.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// What both processes use.
struct Keeper::Shared {
  std::atomic<uint64_t> progress{0};  ///< of the launcher; 0: it does not listen yet
  std::atomic<uint64_t> answered{0};  ///< calls, by the keeper
  seccomp_notif last = {};            ///< the call that was received last
  /// Held to receive a call, which would block if the other process received it meanwhile. The
  /// keeper holds it until it has answered the call. Robust, because either may be killed.
  pthread_mutex_t receiving = {};

  Shared();
  /// Returns true if the other process was killed while it had the mutex.
  bool lock();
  void unlock() { pthread_mutex_unlock(&receiving); }
  void serve(int listener, int launcher, pid_t pid);
};

namespace {

constexpr int kPeriod = 40;          // milliseconds from one look to the next
constexpr uint64_t kPatience = 250;  // looks

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

/// Returns -1 if the launcher ends before it sends one.
int receive_descriptor(int launcher) {
  Passed passed;
  int listener = -1;
  if (recvmsg(launcher, &passed.message, MSG_CMSG_CLOEXEC) != 1) return -1;
  if (const cmsghdr* const one = CMSG_FIRSTHDR(&passed.message); one != nullptr) {
    memcpy(&listener, CMSG_DATA(one), sizeof listener);
  }
  return listener;
}

bool is_stopped(pid_t pid) { return has_own_numbers() && read_stat(pid).state == 'T'; }

}  // namespace

Keeper::Shared::Shared() {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&receiving, &kind);
}

bool Keeper::Shared::lock() {
  if (pthread_mutex_lock(&receiving) != EOWNERDEAD) return false;
  pthread_mutex_consistent(&receiving);
  return true;
}

/// Runs in the keeper. Returns when the last process with the filter has ended.
void Keeper::Shared::serve(int listener, int launcher, pid_t pid) {
  uint64_t before = 0;
  uint64_t looks = 0;  // at which a call waited, since the launcher's last progress
  for (;;) {
    const uint64_t now = progress;
    const bool waits = has_call(listener) || still_waits(listener, last);
    looks = now == std::exchange(before, now) ? looks + waits : 0;
    const bool alone = now == 0 || launcher < 0;
    const bool takes = alone || looks > kPatience || (looks > 1 && is_stopped(pid));
    if (takes) {
      const auto answer = [&] {
        if (answer_call(listener, last) && !alone) ++answered;
      };
      int error = EAGAIN;
      lock();
      // Otherwise the launcher has gone on, or begun to listen.
      if (progress == now) {
        answer();
        error = receive_call(listener, last);
        if (error == 0) answer();
      }
      unlock();
      // ENOENT: the thread was killed meanwhile. Otherwise no call can be received on this system.
      if (error != 0 && error != EAGAIN && error != ENOENT && error != EINTR) return;
    }
    pollfd both[] = {{takes ? listener : -1, POLLIN, 0}, {launcher, 0, 0}};
    poll(both, std::size(both), launcher < 0 ? -1 : kPeriod);
    if ((both[0].revents & (POLLERR | POLLHUP)) != 0) return;
    if ((both[1].revents & (POLLERR | POLLHUP)) != 0) close(std::exchange(launcher, -1));
  }
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
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) give_up();
  // Without our own /proc, Tree waits until this process has no children.
  const bool is_child = has_own_numbers();
  if (pid_ == 0) {
    if (!is_child && fork() != 0) _exit(0);
    try {
      leave(both[1]);
      const int listener = receive_descriptor(both[1]);
      if (listener >= 0) shared_->serve(listener, both[1], launcher);
    } catch (const std::exception&) {
      // Memory has run out. The calls wait for the launcher, as without this process.
    }
    _exit(0);
  }
  close(both[1]);
  process_ = both[0];
  while (!is_child && waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Keeper::keep(int listener) {
  Passed passed;
  cmsghdr& one = *CMSG_FIRSTHDR(&passed.message);
  one.cmsg_len = CMSG_LEN(sizeof listener);
  one.cmsg_level = SOL_SOCKET;
  one.cmsg_type = SCM_RIGHTS;
  memcpy(CMSG_DATA(&one), &listener, sizeof listener);
  if (sendmsg(process_, &passed.message, MSG_NOSIGNAL) != 1) give_up();
}

void Keeper::listen() {
  shared_->progress = 1;
  outlives_ = true;
}

int Keeper::receive(int listener, seccomp_notif& to) {
  const bool was_killed = shared_->lock();
  if (was_killed) ++shared_->answered;  // perhaps the keeper had no time to count it
  ++shared_->progress;
  const bool is_left = was_killed && still_waits(listener, shared_->last);
  const int error = is_left ? 0 : receive_call(listener, shared_->last);
  to = shared_->last;
  shared_->unlock();
  return error;
}

uint64_t Keeper::answered() const { return shared_->answered; }

void Keeper::end(bool left) {
  outlives_ = left;
  if (process_ >= 0) close(std::exchange(process_, -1));
}

Keeper::~Keeper() {
  if (outlives_) return;
  end(false);
  // Tree may have reaped it, and then its id may be another process's.
  if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cudaguard::launcher
