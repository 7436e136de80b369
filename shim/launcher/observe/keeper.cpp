// SPDX-License-Identifier: Apache-2.0
// Each call of the filter needs an answer as long as any process of the tree lives. The keeper
// gives it:
//
// - before the launcher listens, and after it has stopped listening: the launcher itself starts
//   ld.so and addr2line;
// - while the launcher is stopped (two looks, 40 ms apart), or has no time (one second);
// - after the launcher's end, whatever ended it. The keeper ends when the kernel reports that no
//   process has the filter any more.
//
// It forwards start beacons and all other calls through a socket. The launcher reads this socket
// before it handles a call, so it sees the calls of a program in their order. It receives each call
// into memory that both share: if it is killed before it answers, the keeper does. A thread of the
// launcher would be stopped with it, and a helper that reads the memory of the tree would need more
// rights (Yama).
#include "shim/launcher/observe/keeper.h"

#include <fcntl.h>
#include <poll.h>
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
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "shim/guard/text/beacon.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/fence/filter.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/listener.h"

namespace cudaguard::launcher {

namespace {

/// The process takes over if calls wait at several looks and the launcher has done nothing between
/// them: at two if it is stopped. Otherwise it only has no time, and it alone can read what a start
/// is about.
constexpr int kPeriod = 40;  // milliseconds
constexpr int kPatience = 25;
/// How long the launcher waits for a call that the process has received, in milliseconds. Only a
/// stopped process needs longer.
constexpr int kSilence = 3000;

/// What a message begins with: the facts of an Identity, without its name. A record follows.
struct Header {
  seccomp_notif call = {};
  bool answered = false;
  pid_t pid = 0;
  pid_t thread = 0;
  pid_t parent = 0;
  uint64_t started = 0;
  Image image = {};
  FileId program = {};
  bool forked = false;
};

bool is_readable(int descriptor, int milliseconds = 0) {
  pollfd one = {descriptor, POLLIN, 0};
  return poll(&one, 1, milliseconds) == 1 && (one.revents & POLLIN) != 0;
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

/// Runs in the process.
class Server {
 public:
  Server(int launcher, pid_t pid, Keeper::Shared& shared)
      : launcher_(launcher), pid_(pid), shared_(shared) {}

  /// Returns when the last process with the filter has ended.
  void run() {
    Passed passed;
    if (recvmsg(launcher_, &passed.message, MSG_CMSG_CLOEXEC) != 1) return;
    const cmsghdr* const descriptor = CMSG_FIRSTHDR(&passed.message);
    if (descriptor == nullptr) return;
    memcpy(&listener_, CMSG_DATA(descriptor), sizeof listener_);
    uint64_t before = 0;
    int looks = 0;  // at which calls waited
    bool takes = true;
    for (;;) {
      pollfd both[] = {{takes ? listener_ : -1, POLLIN, 0},
                       {launcher_, static_cast<short>(backlog_.empty() ? 0 : POLLOUT), 0}};
      poll(both, std::size(both), launcher_ < 0 ? -1 : kPeriod);
      if ((both[1].revents & (POLLERR | POLLHUP)) != 0) stay_alone();
      if ((both[0].revents & (POLLERR | POLLHUP)) != 0 || shared_.over) return;
      flush();
      const uint64_t now = shared_.progress.load(std::memory_order_relaxed);
      const bool waits = is_readable(listener_);
      const bool silent = now == std::exchange(before, now);
      looks = silent && waits ? looks + 1 : 0;
      listens_ = launcher_ >= 0 && now != 0;
      const bool stopped = (looks > 1 || (silent && has_one())) && is_stopped();
      takes = !listens_ || (silent && takes) || looks > kPatience || stopped;
      if (stopped) take_from_launcher(now);
      if (takes && waits && !take()) return;
    }
  }

 private:
  /// True if the launcher has received a start and not answered it.
  bool has_one() const {
    return listens_ && is_of_start(shared_.last) && still_waits(listener_, shared_.last);
  }

  bool is_stopped() const {
    const char state = knows_processes_ ? read_stat(pid_).state : 'R';
    return state == 'T' || state == 't';
  }

  /// Returns false if no call can be received on this system.
  bool take() {
    const int error = Keeper::receive(shared_, listener_, shared_.held);
    const seccomp_notif call = shared_.held;
    // ENOENT: the thread was killed meanwhile.
    if (error != 0) return error == EAGAIN || error == ENOENT || error == EINTR;
    if (!listens_) {
      answer_call(listener_, call);
    } else if (is_of_start(call)) {
      answer_start(call);
    } else {
      std::erase_if(waiting_, [&](const auto& one) { return !still_waits(listener_, one); });
      waiting_.push_back(call);
      Header header;
      header.call = call;
      pass_on(header, "");
    }
    shared_.held.id = 0;
    return true;
  }

  /// Answers the start that the stopped launcher has received.
  void take_from_launcher(uint64_t progress) {
    const seccomp_notif call = shared_.last;
    std::atomic_thread_fence(std::memory_order_acquire);
    // The launcher notes its progress before it receives the next call over this one.
    if (shared_.progress.load() != progress) return;
    if (is_of_start(call) && still_waits(listener_, call)) answer_start(call);
  }

  bool is_of_start(const seccomp_notif& call) const {
    return is_exec(call) || (is_start(call) && knows_processes_);
  }

  void answer_start(const seccomp_notif& call) {
    Header header;
    header.call = call;
    header.answered = true;
    std::string record;
    if (knows_processes_) {
      const Identity who = identify(static_cast<pid_t>(call.pid));
      header.pid = who.pid;
      header.thread = who.thread;
      header.parent = who.stat.parent;
      header.started = who.stat.started;
      header.image = who.stat.image;
      header.forked = who.stat.forked;
      header.program = executable_id(who.pid);
      if (is_start(call)) record = start_record_of(who, call.data.args[2]);
    }
    pass_on(header, record);
  }

  void pass_on(Header header, const std::string& record) {
    // From here on the launcher waits for this call before it looks at a later one of the program.
    shared_.received.fetch_add(1, std::memory_order_release);
    // The launcher may have gone on and answered the call itself.
    if (header.answered && !answer_call(listener_, header.call)) header.call = {};
    backlog_.push_back(std::string(reinterpret_cast<const char*>(&header), sizeof header) + record);
    flush();
  }

  void flush() {
    while (!backlog_.empty()) {
      const std::string& first = backlog_.front();
      const ssize_t sent = send(launcher_, first.data(), first.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
      backlog_.pop_front();
    }
  }

  /// The launcher has ended, perhaps between a call and its answer.
  void stay_alone() {
    close(std::exchange(launcher_, -1));
    backlog_.clear();
    waiting_.push_back(shared_.last);
    for (const seccomp_notif& call : waiting_) answer_call(listener_, call);
    waiting_.clear();
  }

  int launcher_;  ///< -1: it has ended, or does not listen any more
  const pid_t pid_;
  Keeper::Shared& shared_;
  const bool knows_processes_ = has_own_numbers();
  int listener_ = -1;
  bool listens_ = false;
  std::deque<std::string> backlog_;
  std::vector<seccomp_notif> waiting_;  ///< for the launcher
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

}  // namespace

bool is_start(const seccomp_notif& call) {
  return call.data.nr == SYS_getpid && call.data.args[0] == kBeaconMagic &&
         call.data.args[1] == static_cast<uint64_t>(Beacon::kStart);
}

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

int Keeper::receive(Shared& shared, int listener, seccomp_notif& to) {
  // The ioctl blocks if there is no call, as after the other process has received it. So both must
  // not see the same call. The mutex is robust, because either process may be killed.
  const int error = pthread_mutex_trylock(&shared.receiving);
  if (error == EBUSY) return EAGAIN;
  if (error == EOWNERDEAD) pthread_mutex_consistent(&shared.receiving);
  int result = EAGAIN;
  if (is_readable(listener)) {
    // The other process must see the progress that was noted before it sees this call.
    std::atomic_thread_fence(std::memory_order_release);
    to = {};  // the kernel wants zeros there
    result = ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &to) == 0 ? 0 : errno;
  }
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
      Server(both[1], launcher, *shared_).run();
    } catch (const std::exception&) {
      // Memory has run out. The calls wait for the launcher, as without this process.
    }
    _exit(0);
  }
  close(both[1]);
  calls_ = both[0];
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
  if (sendmsg(calls_, &passed.message, MSG_NOSIGNAL) != 1) give_up();
}

void Keeper::end() {
  if (calls_ >= 0) close(std::exchange(calls_, -1));
}

void Keeper::kill() {
  shared_->over = true;
  end();
  // Tree may have reaped it, and then its id may be another process's.
  if (pid_ == 0 || waitpid(pid_, nullptr, WNOHANG) != 0) return;
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Keeper::~Keeper() {
  if (!outlives_) kill();
}

std::optional<Keeper::Call> Keeper::held() const {
  if (shared_->held.id == 0) return {};
  return Call{shared_->held, false, {}, ""};
}

std::optional<Keeper::Call> Keeper::take() {
  if (calls_ < 0) return {};
  const bool behind = is_behind();
  if (!is_readable(calls_, behind ? kSilence : 0)) {
    if (!behind) return {};
    kill();
    return held();
  }
  Header header;
  std::string text(sizeof header + kMaxRecord, '\0');
  const ssize_t size = recv(calls_, text.data(), text.size(), MSG_DONTWAIT);
  if (size < static_cast<ssize_t>(sizeof header)) {
    if (size < 0 && errno == EINTR) return {};
    end();  // it was killed
    return held();
  }
  memcpy(&header, text.data(), sizeof header);
  text.resize(static_cast<size_t>(size));
  ++taken_;
  Call taken = {header.call, header.answered, {}, text.substr(sizeof header)};
  taken.who.pid = header.pid;
  taken.who.thread = header.thread;
  taken.who.program = header.program;
  taken.who.stat.parent = header.parent;
  taken.who.stat.started = header.started;
  taken.who.stat.image = header.image;
  taken.who.stat.forked = header.forked;
  return taken;
}

}  // namespace cudaguard::launcher
