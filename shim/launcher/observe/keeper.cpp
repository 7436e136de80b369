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
// The launcher receives each call into memory that both share: if it is killed before it answers,
// or stopped before it answers the start of a program, the keeper does. A thread of the launcher
// would be stopped with it.
#include "shim/launcher/observe/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "shim/guard/text/beacon.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/fence/notification.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

namespace {

constexpr int kPeriod = 40;     // milliseconds from one look to the next
constexpr int kPatience = 250;  // looks

bool has_hung_up(int socket) {
  pollfd one = {socket, 0, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLHUP) != 0;
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

/// True for an execve and for a start beacon.
bool is_of_start(const seccomp_notif& call) {
  return is_exec(call.data) || (call.data.nr == SYS_getpid && call.data.args[0] == kBeaconMagic &&
                                call.data.args[1] == static_cast<uint64_t>(Beacon::kStart));
}

/// Runs in the process. Returns when the last process with the filter has ended.
void serve(int launcher, pid_t pid, Keeper::Shared& shared) {
  Passed passed;
  if (recvmsg(launcher, &passed.message, MSG_CMSG_CLOEXEC) != 1) return;
  const cmsghdr* const descriptor = CMSG_FIRSTHDR(&passed.message);
  if (descriptor == nullptr) return;
  int listener = -1;
  memcpy(&listener, CMSG_DATA(descriptor), sizeof listener);
  const bool knows_processes = has_own_numbers();
  uint64_t before = 0;
  int looks = 0;  // at which calls waited, and the launcher had done nothing
  bool takes = true;
  for (;;) {
    const uint64_t now = shared.progress;
    const bool silent = now == std::exchange(before, now);
    const bool waits = silent && (has_call(listener) || still_waits(listener, shared.last));
    looks = waits ? looks + 1 : 0;
    const bool alone = now == 0 || launcher < 0;
    const bool stopped = looks > 1 && knows_processes && read_stat(pid).state == 'T';
    // Until the launcher goes on. Otherwise, each call would wait for the looks again.
    takes = alone || (silent && takes) || stopped || looks > kPatience;
    bool busy = false;  // the launcher is in the midst of receiving a call
    if (takes) {
      const auto answer = [&](const seccomp_notif& call) {
        if (answer_call(listener, call) && !alone) ++shared.answered;
      };
      const seccomp_notif last = shared.last;
      if (!alone && is_of_start(last)) answer(last);
      int error = 0;
      while ((error = Keeper::receive(shared, listener, shared.held, now)) == 0) {
        const seccomp_notif call = shared.held;
        if (alone || is_of_start(call) || shared.put - shared.taken == shared.left.size()) {
          answer(call);
        } else {
          shared.left[shared.put % shared.left.size()] = call;
          ++shared.put;
        }
        shared.held.id = 0;
      }
      // ENOENT: the thread was killed meanwhile. Otherwise no call can be received on this system.
      if (error != EAGAIN && error != ENOENT && error != EINTR) return;
      busy = has_call(listener);
    }
    pollfd both[] = {{takes ? listener : -1, static_cast<short>(busy ? 0 : POLLIN), 0},
                     {launcher, 0, 0}};
    poll(both, std::size(both), launcher < 0 && !busy ? -1 : kPeriod);
    if ((both[0].revents & (POLLERR | POLLHUP)) != 0 || shared.over) return;
    if ((both[1].revents & (POLLERR | POLLHUP)) == 0) continue;
    close(std::exchange(launcher, -1));
    answer_call(listener, shared.last);
    for (const seccomp_notif& call : shared.left) answer_call(listener, call);
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

int Keeper::receive(Shared& shared, int listener, seccomp_notif& to,
                    std::optional<uint64_t> progress) {
  // The ioctl blocks if there is no call, as after the other process has received it. So both must
  // not see the same call. The mutex is robust, because either process may be killed.
  const int error = pthread_mutex_trylock(&shared.receiving);
  if (error == EBUSY) return EAGAIN;
  if (error == EOWNERDEAD) pthread_mutex_consistent(&shared.receiving);
  int result = EAGAIN;
  if (!progress || shared.progress == *progress) result = receive_call(listener, to);
  pthread_mutex_unlock(&shared.receiving);
  return result;
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
      serve(both[1], launcher, *shared_);
    } catch (const std::exception&) {
      // Memory has run out. The calls wait for the launcher, as without this process.
    }
    _exit(0);
  }
  close(both[1]);
  process_ = both[0];
  if (is_child) return;
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
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
  // The process may be about to receive a call.
  if (pthread_mutex_lock(&shared_->receiving) == EOWNERDEAD) {
    pthread_mutex_consistent(&shared_->receiving);
  }
  note_progress();
  pthread_mutex_unlock(&shared_->receiving);
}

std::optional<seccomp_notif> Keeper::take() {
  if (shared_->taken == shared_->put) {
    if (shared_->held.id == 0 || !has_hung_up(process_)) return {};
    return std::exchange(shared_->held, {});
  }
  const seccomp_notif call = shared_->left[shared_->taken % shared_->left.size()];
  ++shared_->taken;
  return call;
}

void Keeper::end() {
  if (process_ >= 0) close(std::exchange(process_, -1));
}

Keeper::~Keeper() {
  if (outlives_) return;
  shared_->over = true;
  end();
  // Tree may have reaped it, and then its id may be another process's.
  if (pid_ == 0 || waitpid(pid_, nullptr, WNOHANG) != 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cudaguard::launcher
