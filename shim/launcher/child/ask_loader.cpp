// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/ask_loader.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "shim/launcher/child/pipe.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;
/// Of a second question, which is only to show where the first one hangs.
constexpr std::chrono::seconds kSecondPatience{2};
/// For a process that has closed its pipes, or was killed, to be gone.
constexpr std::chrono::seconds kDeath{2};
constexpr size_t kMostText = size_t{4} << 20;

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
bool read_both(Pipe& out, Pipe& err, std::chrono::seconds patience, std::string& out_text,
               std::string& err_text) {
  const auto end = Clock::now() + patience;
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

/// Waits for its end, which is near.
bool ends(pid_t child) {
  const auto limit = Clock::now() + kDeath;
  for (useconds_t step = 20; Clock::now() < limit; step = std::min<useconds_t>(step * 2, 1000)) {
    const pid_t ended = waitpid(child, nullptr, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    usleep(step);
  }
  return false;
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

pid_t start(const std::string& executable, std::vector<std::string>& words, Variables& variables,
            const Pipe& out, const Pipe& err) {
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
  const int error = posix_spawn(&child, words[0].c_str(), actions.get(), nullptr, argv.data(),
                                variables.pointers().data());
  if (error != 0) {
    const bool missing = error == ENOENT;
    throw Refusal(missing ? kNotFound : kCannotRun,
                  "the interpreter of " + in_quotes(executable) + ", " + in_quotes(words[0]) +
                      (missing ? " is not found" : std::string(": ") + strerror(error)));
  }
  return child;
}

/// Asks once.
LoaderAnswer ask(const std::string& executable, std::vector<std::string>& words,
                 Variables& variables, std::chrono::seconds patience) {
  Pipe out;
  Pipe err;
  if (!out.made() || !err.made()) {
    throw Refusal(kRefused, std::string("cannot make a pipe: ") + strerror(errno));
  }
  const pid_t child = start(executable, words, variables, out, err);
  out.close_end(1);
  err.close_end(1);
  LoaderAnswer answer;
  answer.patience = patience;
  std::string text;
  answer.in_time = read_both(out, err, patience, text, answer.errors) && ends(child);
  if (!answer.in_time) {
    kill(child, SIGKILL);
    if (!ends(child)) answer.stuck = child;
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    read_line(rest.substr(0, end), answer);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return answer;
}

}  // namespace

const LoadedLibrary* LoaderAnswer::find(std::string_view name) const {
  for (const LoadedLibrary& library : libraries) {
    if (library.name == name) return &library;
  }
  return nullptr;
}

std::string LoaderAnswer::why_none() const {
  std::string why = "gave no answer within " + std::to_string(patience.count()) + " s";
  if (!hangs_at.empty()) why += ", at " + printable(hangs_at);
  if (stuck != 0) why += "; process " + std::to_string(stuck) + " does not die of SIGKILL";
  return why;
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
  own.unset("LD_BIND_NOW");  // here it asks for more
  own.set("LD_TRACE_LOADED_OBJECTS", "1");
  // As ldd asks: by the loader as a command, which is never privileged, and only if it knows the
  // variable; another one would start the program. (--list stops at a library that is missing.)
  std::vector<std::string> words = {loader};
  if (!contains(FileBytes(loader), "TRACE_LOADED_OBJECTS")) words.emplace_back("--list");
  // Without a slash it would search for it as for a library.
  words.push_back(executable.find('/') == std::string::npos ? "./" + executable : executable);
  LoaderAnswer answer = ask(executable, words, own, patience);
  // Of a process that cannot be killed one is enough.
  if (answer.in_time || answer.stuck != 0) return answer;
  own.set("LD_DEBUG", "libs,files");
  const LoaderAnswer again = ask(executable, words, own, std::min(patience, kSecondPatience));
  answer.stuck = again.stuck;
  if (!again.in_time) answer.hangs_at = last_file(again.errors);
  return answer;
}

}  // namespace cudaguard::launcher
