// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostText = size_t{4} << 20;
/// In bytes, for become().
constexpr size_t kStack = 16384;
/// By these signals a terminal stops a process group.
constexpr int kStops[] = {SIGTSTP, SIGTTIN, SIGTTOU};

[[noreturn]] void give_up() {
  throw Shortage(std::string("cannot start a process: ") + strerror(errno));
}

/// A pipe and its contents. Its ends are closed on exec, and above 2, because the caller may have
/// closed descriptors 0 to 2.
class Stream {
 public:
  Stream() {
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0) give_up();
    from_ = above_stderr(made[0]);
    to_ = above_stderr(made[1]);
    if (from_ >= 0 && to_ >= 0 && fcntl(from_, F_SETFL, O_NONBLOCK) == 0) return;
    const int error = errno;
    close_both();
    errno = error;
    give_up();
  }
  ~Stream() { close_both(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// -1 if no process can write to the pipe any more.
  int from() const { return from_; }
  int to() const { return to_; }
  std::string& text() { return text_; }
  void close_writing() { close_end(to_); }
  /// Reads what is available.
  void take() {
    char buffer[4096];  // the launcher's stack may be small (ulimit -s)
    ssize_t got = 0;
    do {
      got = read(from_, buffer, sizeof buffer);
      if (got > 0 && text_.size() < kMostText) text_.append(buffer, static_cast<size_t>(got));
    } while (got > 0 && text_.size() < kMostText);
    if (got == 0) close_end(from_);
  }

 private:
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  void close_both() {
    close_end(from_);
    close_end(to_);
  }
  int from_ = -1;
  int to_ = -1;
  std::string text_;
};

/// What the child becomes.
struct Start {
  char* const* argv;
  char* const* environment;
  int out, err, failure;
  bool (*before)();
  sigset_t mask;  ///< for the program; kStops are blocked until then
};

/// Runs in the child.
int become(void* given) {
  const Start& start = *static_cast<const Start*>(given);
  setpgid(0, 0);
  // Discards a stop that was sent to our caller's group. Otherwise we would never call execve, for
  // which our caller waits.
  for (const int stop : kStops) signal(stop, signal(stop, SIG_IGN));
  sigprocmask(SIG_SETMASK, &start.mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(start.err, STDIN_FILENO);  // reads fail there; a container may have no /dev/null
  dup2(start.out, STDOUT_FILENO);
  dup2(start.err, STDERR_FILENO);
  int why = kHeldBack;
  if (start.before == nullptr || start.before()) {
    execve(start.argv[0], start.argv, start.environment);
    why = errno;
  }
  [[maybe_unused]] const ssize_t written = write(start.failure, &why, sizeof why);
  _exit(kRefused);
}

/// True if the process uses a processor or waits for one.
bool is_busy(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.compare(name_end, 3, ") R") == 0;
}

/// Returns false if the child has not ended in time. Its own children may keep its output open.
bool wait_for(pid_t child, Stream& out, Stream& err, TimeLimit limit, int& status) {
  const auto start = Clock::now();
  auto last_busy = start;
  const auto in_time = [&] {
    const auto now = Clock::now();
    // Looks many times: a busy process may wait for a page of its file just then.
    if (now - last_busy >= limit.usual / 2 && now - start < limit.busy && is_busy(child)) {
      last_busy = now;
    }
    return now - last_busy < limit.usual;
  };
  for (useconds_t pause = 20; in_time(); pause = std::min<useconds_t>(2 * pause, 1000)) {
    pollfd waiting[] = {{out.from(), POLLIN, 0}, {err.from(), POLLIN, 0}};
    out.from() < 0 && err.from() < 0 ? usleep(pause) : poll(waiting, 2, 10);
    const pid_t ended = waitpid(child, &status, WNOHANG);
    const int error = ended < 0 ? errno : 0;
    out.take();
    err.take();
    if (ended == child || error == ECHILD) return true;
    // If a seccomp filter forbids waiting, the end of its output counts as the child's end.
    if (error != 0 && error != EINTR && out.from() < 0 && err.from() < 0) return true;
  }
  return false;
}

/// A runnable ld.so has this many times the usual limit.
constexpr int kBusyFactor = 6;
/// The time limit of the second run, which only finds out where the first one hangs.
constexpr std::chrono::seconds kSecondPatience{2};

/// "\tlibc.so.6 => /lib/libc.so.6 (0x7f)", "\t/lib/ld.so (0x7f)", "\tlibx.so => not found".
void read_line(std::string_view line, LoaderAnswer& answer) {
  if (!line.starts_with("\t")) return;
  line.remove_prefix(1);
  const size_t address = line.rfind(" (0x");
  const bool found = address != std::string_view::npos;
  if (found) line = line.substr(0, address);
  const size_t arrow = line.find(" => ");
  LoadedLibrary library;
  library.name = line.substr(0, arrow);
  if (found) library.path = arrow == std::string_view::npos ? line : line.substr(arrow + 4);
  answer.libraries.push_back(std::move(library));
}

/// The last file that LD_DEBUG=libs,files names: "trying file=/x/libcuda.so.1",
/// "file=/x/y.so [0];  needed by ...".
std::string last_file(std::string_view errors) {
  constexpr std::string_view kMark = "file=";
  const size_t at = errors.rfind(kMark);
  if (at == std::string_view::npos) return {};
  errors.remove_prefix(at + kMark.size());
  errors = errors.substr(0, errors.find('\n'));
  return std::string(errors.substr(0, errors.find(" [")));
}

/// Describes the hang. Runs ld.so once more to find the file, unless a process cannot be killed.
std::string trouble_of(const std::vector<std::string>& words, Variables variables,
                       std::chrono::seconds patience, pid_t stuck) {
  std::string trouble = "gave no answer within " + std::to_string(patience.count()) + " s";
  if (stuck == 0) {
    variables.set("LD_DEBUG", "libs,files");
    const ChildEnd again =
        run_child(words, variables, milliseconds{std::min(patience, kSecondPatience)});
    const std::string file = again.in_time ? "" : last_file(again.err);
    if (!file.empty()) trouble += ", at " + printable(file);
    stuck = again.stuck;
  }
  if (stuck != 0) trouble += "; process " + std::to_string(stuck) + " survives SIGKILL";
  return trouble;
}

}  // namespace

namespace {

void close_from_to(unsigned first, unsigned last) {
  // Kernels before 5.9 do not have the call.
  if (first > last || close_range(first, last, 0) == 0) return;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  last = std::min(last, static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 1 << 16)));
  for (unsigned fd = first; fd < last; ++fd) close(static_cast<int>(fd));
}

}  // namespace

void give_up_descriptors(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd < static_cast<int>(first)) continue;
    close_from_to(first, static_cast<unsigned>(fd) - 1);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_from_to(first, ~0U);
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  // Descriptors 0 to 2 must be open, so that no later file of ours gets such a number.
  for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0; fd = dup(fd)) {
    if (fd >= STDERR_FILENO) {
      if (fd > STDERR_FILENO) close(fd);
      break;
    }
  }
}

int above_stderr(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

ChildEnd run_child(std::vector<std::string> words, Variables variables, TimeLimit limit,
                   bool (*before)()) {
  Stream out;
  Stream err;
  Stream failure;
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::vector<char*> environment = variables.pointers();
  // If SIGCHLD is ignored, waitpid does not report the child. The program gets what it was.
  const auto on_child = signal(SIGCHLD, SIG_DFL);
  Start start = {argv.data(), environment.data(), out.to(), err.to(), failure.to(), before, {}};
  sigset_t stops;
  sigemptyset(&stops);
  for (const int stop : kStops) sigaddset(&stops, stop);
  sigprocmask(SIG_BLOCK, &stops, &start.mask);
  // fork() copies the page tables, which takes up to a millisecond, so become() shares this memory,
  // and this process sleeps until execve. Not with `before`, which may do more than system calls.
  alignas(16) char stack[kStack];
  pid_t child = -1;
  if (before == nullptr) {
    child = clone(become, stack + kStack, CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
  }
  if (child < 0) child = fork();  // a seccomp filter may refuse CLONE_VM
  if (child != 0) sigprocmask(SIG_SETMASK, &start.mask, nullptr);
  if (child < 0) {
    signal(SIGCHLD, on_child);
    give_up();
  }
  if (child == 0) become(&start);
  setpgid(child, child);
  for (Stream* stream : {&out, &err, &failure}) stream->close_writing();
  ChildEnd end;
  end.in_time = wait_for(child, out, err, limit, end.status);
  kill(-child, SIGKILL);  // including the processes that it has started
  if (!end.in_time && !wait_for(child, out, err, kDeath, end.status)) end.stuck = child;
  // If we are process 1 of a container, the group's orphans are ours and must not become zombies.
  // A killed one ends when it gets a processor.
  const Clock::time_point last = Clock::now() + (end.stuck == 0 ? kDeath.busy : kDeath.usual);
  pid_t orphan = 1;
  while (orphan >= 0 && Clock::now() < last) {
    orphan = waitpid(-child, nullptr, WNOHANG);
    if (orphan == 0) usleep(1000);
  }
  signal(SIGCHLD, on_child);
  failure.take();
  if (failure.text().size() == sizeof end.not_started) {
    memcpy(&end.not_started, failure.text().data(), sizeof end.not_started);
  }
  end.out = std::move(out.text());
  end.err = std::move(err.text());
  return end;
}

const LoadedLibrary* LoaderAnswer::find(std::string_view name) const {
  const auto found = std::ranges::find(libraries, name, &LoadedLibrary::name);
  return found == libraries.end() ? nullptr : &*found;
}

void unset_loader_questions(Variables& variables) {
  for (const char* name : {"LD_AUDIT", "LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_PROFILE",
                           "LD_PROFILE_OUTPUT", "LD_SHOW_AUXV", "LD_TRACE_LOADED_OBJECTS",
                           "LD_TRACE_PRELINKING", "LD_VERBOSE", "LD_WARN"}) {
    variables.unset(name);
  }
}

LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables, std::chrono::seconds patience) {
  Variables own = variables;
  unset_loader_questions(own);
  own.unset("LD_BIND_NOW");  // in this mode it makes ld.so do more
  own.set("LD_TRACE_LOADED_OBJECTS", "1");
  // Works like ldd: ld.so as a command is never privileged. An ld.so that does not know the
  // variable would start the program, so it gets --list, which stops at a missing library.
  std::vector<std::string> words = {loader};
  if (!contains(FileBytes(loader), "TRACE_LOADED_OBJECTS")) words.emplace_back("--list");
  // Without a slash, ld.so would search for the executable like for a library. Before glibc 2.42,
  // it takes $ORIGIN from the path as given. In the program, $ORIGIN is where the links lead.
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(executable, error);
  words.push_back(error ? executable : real.string());
  ChildEnd end = run_child(words, own, {patience, kBusyFactor * patience});
  if (end.not_started != 0) {
    const bool missing = end.not_started == ENOENT;
    throw Refusal(missing ? kNotFound : kCannotRun, "the interpreter of " + in_quotes(executable) +
                                                        ", " + in_quotes(loader) + ": " +
                                                        strerror(end.not_started));
  }
  LoaderAnswer answer;
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) read_line(line, answer);
  answer.errors = std::move(end.err);
  if (!end.in_time) answer.trouble = trouble_of(words, own, patience, end.stuck);
  return answer;
}

}  // namespace cudaguard::launcher
