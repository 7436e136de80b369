// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/tree.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "shim/launcher/child/child.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

namespace {

using std::chrono::milliseconds;

/// How long to wait after the program's end before a message names the processes that still run.
constexpr milliseconds kPatience{5000};
/// How often to look whether all of them are zombies, which another process may have to reap.
constexpr milliseconds kPeriod{1000};

/// True if the terminal's foreground process group is ours or the program's (a shell has its own).
bool in_foreground(pid_t program) {
  const int terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (terminal < 0) return false;
  const pid_t group = tcgetpgrp(terminal);
  const bool ours = group == getpgrp() || group == getpgid(program);
  close(terminal);
  return ours;
}

/// Performs the default action of a pending signal while every signal is blocked.
void take_pending(int number) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  sigprocmask(SIG_BLOCK, &one, nullptr);
}

void take_default(int number) {
  raise(number);
  take_pending(number);
}

bool is_pending(std::initializer_list<int> signals) {
  sigset_t pending;
  sigpending(&pending);
  return std::any_of(signals.begin(), signals.end(),
                     [&](int number) { return sigismember(&pending, number) == 1; });
}

bool is_one_of(std::initializer_list<int> signals, int number) {
  return std::find(signals.begin(), signals.end(), number) != signals.end();
}

bool comes_from_terminals(int number) {
  return is_one_of({SIGHUP, SIGINT, SIGQUIT, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH}, number);
}

constexpr std::initializer_list<int> kStops = {SIGTSTP, SIGTTIN, SIGTTOU};

bool ends_waiting(int number) { return is_one_of({SIGINT, SIGTERM, SIGHUP, SIGQUIT}, number); }

}  // namespace

Tree::Tree(std::optional<milliseconds> grace) : grace_(grace) {
  sigfillset(&all_);
  sigprocmask(SIG_BLOCK, &all_, &mask_);
  // If SIGCHLD is ignored, the kernel discards the status of children.
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &on_child_);
  // Orphaned descendants become our children instead of process 1's, so that we can wait for them.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  signals_ = above_stderr(signalfd(-1, &all_, SFD_CLOEXEC));
  if (signals_ < 0) {
    throw Refusal(kRefused, std::string("cannot wait for signals: ") + strerror(errno));
  }
}

void Tree::start(const std::function<int()>& become, std::vector<int> kept) {
  // The expected answer is ECHILD, because a process is not its own child. Any other error comes
  // from a seccomp filter, under which we would never see the program end.
  if (waitpid(getpid(), nullptr, WNOHANG) < 0 && errno != ECHILD) {
    throw Refusal(kRefused, std::string("cannot wait for processes: ") + strerror(errno) +
                                "; allow the system call wait4");
  }
  siginfo_t any = {};
  // A shell may have started children before it became this process: `exec 2> >(tee log); exec
  // cudaguard`.
  if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0) {
    others_ = children_of_this_process();
  }
  void* shared =
      mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Refusal(kRefused, std::string("no memory: ") + strerror(errno));
  start_error_ = static_cast<int*>(shared);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    throw Refusal(kRefused, std::string("cannot start a process: ") + strerror(errno));
  }
  if (pid_ == 0) {
    // KILL cannot be passed on. The sender means the program, and may start it again.
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) _exit(kRefused);
    sigaction(SIGCHLD, &on_child_, nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
    *start_error_ = become();
    _exit(kCannotRun);
  }
  kept.push_back(signals_);
  give_up_descriptors(std::move(kept));
}

void Tree::wait(const std::function<milliseconds()>& now_and_then) {
  for (bool signalled = true;;) {  // at first there may be nothing left to wait for
    if (signalled) {
      take_signals();
      reap();
      stop_or_go_on();
    }
    const milliseconds patience = now_and_then();
    if (is_over()) return;
    signalled = pause(patience);
  }
}

void Tree::reap() {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid < 0 && errno == EINTR) continue;
    none_left_ = pid < 0;
    if (pid <= 0) return;
    if (!WIFSTOPPED(status) && !WIFCONTINUED(status)) others_.erase(pid);
    if (pid == pid_ && program_ == Program::kRuns) note_program(status);
  }
}

void Tree::note_program(int status) {
  if (WIFSTOPPED(status)) {
    stopped_by_ = WSTOPSIG(status);
    is_stopped_ = true;
  } else if (WIFCONTINUED(status)) {
    stopped_by_ = 0;
    is_stopped_ = false;
    continued_ = true;
  } else {
    status_ = status;
    stopped_by_ = 0;
    // The ^C that ended the program has reached this process, too, but must not end the wait.
    program_ = Program::kEnds;
    take_signals();
    program_ = Program::kHasEnded;
    ended_at_ = std::chrono::steady_clock::now();
  }
}

void Tree::take_signals() {
  siginfo_t signal = {};
  constexpr timespec kNow = {0, 0};
  for (;;) {
    const int number = sigtimedwait(&all_, &signal, &kNow);
    if (number < 0 && errno != EINTR) return;
    if (number > 0) handle(signal);
  }
}

void Tree::handle(const siginfo_t& signal) {
  const int number = signal.si_signo;
  if (number == SIGCHLD || program_ == Program::kEnds) return;
  if (program_ == Program::kHasEnded) {
    // Without the launcher, these signals would not reach the processes left running either.
    if (is_refused(number)) return;
    if (ends_waiting(number)) no_longer_ = true;
    if (number == SIGTSTP) take_default(number);
    return;
  }
  if (is_one_of(kStops, number)) return handle_stop(signal);
  if (has_it_already(signal)) return;
  // `docker stop` sends it once, to process 1 alone, and SIGKILL ten seconds later.
  if (number == SIGTERM && getpid() == 1) no_longer_ = true;
  if (number == SIGCONT) {
    to_continue_ = true;
  } else {
    pass_on(signal);
  }
}

void Tree::handle_stop(const siginfo_t& signal) {
  const bool had_sigcont = std::exchange(to_continue_, false);
  const bool has_it = has_it_already(signal);
  // A program that is still stopped causes no further event.
  if (is_stopped_ && (has_it || !had_sigcont)) stopped_by_ = signal.si_signo;
  if (has_it) return;
  if (had_sigcont) kill(pid_, SIGCONT);
  pass_on(signal);
  // A SIGCONT for the group may have reached the program before the stop signal.
  if (is_pending({SIGCONT})) kill(pid_, SIGCONT);
}

void Tree::pass_on(const siginfo_t& signal) const {
  if (signal.si_code == SI_QUEUE) {
    sigqueue(pid_, signal.si_signo, signal.si_value);
  } else {
    kill(pid_, signal.si_signo);
  }
}

/// True if our parent made us ignore or block this signal: nohup, a shell's `&`.
bool Tree::is_refused(int number) const {
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  return now.sa_handler == SIG_IGN || sigismember(&mask_, number) == 1;
}

/// True if the program has received the signal already. A terminal sends ^C, ^\, ^Z, resizes and
/// hangups to the whole foreground group, which usually includes the program. A signal to our
/// process alone is meant for the program. `kill -TERM -GROUP` reaches the program twice, as under
/// timeout and a service manager.
bool Tree::has_it_already(const siginfo_t& signal) const {
  // A process of the tree has signalled its group (`kill 0`), or we have written to a closed pipe.
  if (signal.si_code != SI_KERNEL) return descends_from_this_process(signal.si_pid);
  const int number = signal.si_signo;
  if (!comes_from_terminals(number)) return false;  // from an alarm that was set before execve
  const bool leader = getsid(0) == getpid();
  // The kernel sends a hangup only to the session leader.
  if (leader && (number == SIGHUP || number == SIGCONT)) return false;
  return getpgid(pid_) == getpgrp();
}

/// Stops when the program stops, because the shell waits for this process. Ignores a SIGSTOP sent
/// to the program alone, because the SIGCONT that ends it would not wake us. `fg` sends SIGCONT to
/// the whole group; a SIGCONT sent only to us is passed on.
void Tree::stop_or_go_on() {
  const int number = std::exchange(stopped_by_, 0);
  const bool went_on = std::exchange(continued_, false);
  // A stop signal after the SIGCONT: handle_stop() passes both on, in this order.
  const bool stops_again = is_pending(kStops);
  const bool to_continue = to_continue_ && !went_on && !stops_again;
  if (!stops_again) to_continue_ = false;
  if (to_continue && program_ == Program::kRuns) {
    kill(pid_, SIGCONT);
  } else if (number != 0 && !is_pending({SIGCONT}) && (number != SIGSTOP || in_foreground(pid_))) {
    stop(number);
  }
}

/// A SIGCONT between the program's stop and ours must not be lost, because it may be the only one.
/// Once our signal is pending, a SIGCONT discards it. One before has continued the program.
void Tree::stop(int number) const {
  if (number != SIGSTOP) raise(number);
  siginfo_t change = {};
  constexpr int kLook = WEXITED | WCONTINUED | WNOHANG | WNOWAIT;
  if (waitid(P_PID, static_cast<id_t>(pid_), &change, kLook) == 0 && change.si_pid != 0) return;
  if (number == SIGSTOP) raise(number);
  take_pending(number);
}

/// Returns nothing if /proc shows no children, although there are some.
std::optional<std::set<pid_t>> Tree::left_over() const {
  if (!has_own_numbers()) return {};
  for (std::set<pid_t> before;;) {
    std::set<pid_t> result = children_of_this_process();
    if (result.empty()) return {};
    std::erase_if(result, [this](pid_t pid) { return others_.contains(pid); });
    const std::set<pid_t> listed = result;
    // A zombie may be for a process outside to reap, which traces it.
    std::erase_if(
        result, [](pid_t pid) { return read_stat(pid).state == 'Z' && running_thread(pid) == 0; });
    // One that has ended since the list was read may have left its children to this process. They
    // are in the next list, because a zombie has left them already.
    if (!result.empty() || listed == before) return result;
    before = listed;
  }
}

milliseconds Tree::since_end() const {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - ended_at_);
}

bool Tree::is_over() {
  if (program_ != Program::kHasEnded) return false;
  if (none_left_) return true;
  const std::optional<std::set<pid_t>> left = left_over();
  // Without /proc, a child that this process had before cannot be told from the others.
  if (left ? left->empty() : !others_.empty()) return true;
  no_longer_ |= grace_ && since_end() >= *grace_;
  if (no_longer_) left_ = left ? names_of(*left) : "processes that /proc does not show";
  return no_longer_;
}

/// Returns when a signal has come, which take_signals() takes, when the descriptor of wake_by() is
/// readable, or after `patience`. A `patience` of zero means no limit.
bool Tree::pause(milliseconds patience) {
  const bool ended = program_ == Program::kHasEnded;
  if (ended && (patience == milliseconds::zero() || patience > kPeriod)) patience = kPeriod;
  if (ended && grace_) patience = std::clamp(*grace_ - since_end(), milliseconds{1}, patience);
  const bool no_limit = patience == milliseconds::zero();
  pollfd all[] = {{signals_, POLLIN, 0}, {waker_ ? waker_() : -1, POLLIN, 0}};
  poll(all, std::size(all), no_limit ? -1 : static_cast<int>(patience.count()));
  const bool signalled = all[0].revents != 0;
  if (!ended || reported_ || signalled || since_end() < kPatience) return signalled;
  reported_ = true;
  const std::string names = names_of(left_over().value_or(std::set<pid_t>()));
  warn("the program has ended; waiting for the processes that it left running" +
       (names.empty() ? names : ": " + names) + " (Ctrl-C, SIGTERM or --grace ends the wait)");
  return signalled;
}

void end_as(int status) {
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  // The resource limit alone does not suffice: a core_pattern program ignores that limit.
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  take_default(WTERMSIG(status));
  _exit(128 + WTERMSIG(status));  // process 1 of a container survives the signal
}

}  // namespace cudaguard::launcher
