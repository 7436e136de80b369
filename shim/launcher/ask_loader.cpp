// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/ask_loader.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "shim/launcher/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};
constexpr size_t kMostText = size_t{4} << 20;

/// A pipe whose ends are none of 0-2: the program may have been started with those closed.
class Pipe {
 public:
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail();
    for (int i = 0; i < 2; ++i) ends_[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
    close(ends[0]);
    close(ends[1]);
    if (ends_[0] < 0 || ends_[1] < 0) fail();
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int end(int which) const { return ends_[which]; }
  void close_end(int which) {
    if (ends_[which] >= 0) close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  [[noreturn]] static void fail() {
    throw Refusal(kRefused, std::string("cannot make a pipe: ") + strerror(errno));
  }
  int ends_[2] = {-1, -1};
};

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

/// Reads both pipes until both end, or the time is over.
bool read_both(Pipe& out, Pipe& err, std::string& out_text, std::string& err_text) {
  const auto end = Clock::now() + kPatience;
  std::string* texts[] = {&out_text, &err_text};
  Pipe* pipes[] = {&out, &err};
  while (out.end(0) >= 0 || err.end(0) >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting[2] = {{out.end(0), POLLIN, 0}, {err.end(0), POLLIN, 0}};
    if (poll(waiting, 2, static_cast<int>(left)) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      char buffer[16384];
      const ssize_t got = read(waiting[i].fd, buffer, sizeof buffer);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) {
        pipes[i]->close_end(0);
      } else if (texts[i]->size() < kMostText) {
        texts[i]->append(buffer, static_cast<size_t>(got));
      }
    }
  }
  return true;
}

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

}  // namespace

const LoadedLibrary* LoaderAnswer::find(std::string_view name) const {
  for (const LoadedLibrary& library : libraries) {
    if (library.name == name) return &library;
  }
  return nullptr;
}

LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables) {
  Variables own = variables;
  // They change what it prints, or run other people's code.
  for (const char* name : {"LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_VERBOSE", "LD_WARN", "LD_AUDIT",
                           "LD_SHOW_AUXV", "LD_PROFILE", "LD_BIND_NOW"}) {
    own.unset(name);
  }
  own.set("LD_TRACE_LOADED_OBJECTS", "1");
  // As ldd asks: by the loader as a command, which is never privileged, and only if it knows the
  // variable; another one would start the program. (--list stops at a library that is missing.)
  std::vector<std::string> words = {loader};
  if (!contains(FileBytes(loader), "TRACE_LOADED_OBJECTS")) words.emplace_back("--list");
  // Without a slash it would search for it as for a library.
  words.push_back(executable.find('/') == std::string::npos ? "./" + executable : executable);
  Pipe out;
  Pipe err;
  SpawnActions actions;
  // Nothing can be read there; a bare root may have no /dev/null.
  posix_spawn_file_actions_adddup2(actions.get(), err.end(1), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(actions.get(), out.end(1), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(actions.get(), err.end(1), STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawn(&child, loader.c_str(), actions.get(), nullptr, argv.data(),
                                own.pointers().data());
  if (error != 0) {
    const bool missing = error == ENOENT;
    throw Refusal(missing ? kNotFound : kCannotRun,
                  "the interpreter of " + in_quotes(executable) + ", " + in_quotes(loader) +
                      (missing ? " is not found" : std::string(": ") + strerror(error)));
  }
  out.close_end(1);
  err.close_end(1);
  LoaderAnswer answer;
  std::string text;
  answer.in_time = read_both(out, err, text, answer.errors);
  if (!answer.in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    read_line(rest.substr(0, end), answer);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return answer;
}

}  // namespace cudaguard::launcher
