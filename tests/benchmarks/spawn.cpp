// SPDX-License-Identifier: Apache-2.0
// Starts programs under several preloads in turn, and prints the time of each start.
//   bench_spawn each ROUNDS NAME=PRELOAD... -- PROGRAM [ARG...]
//       prints "NAME nanoseconds CPU-nanoseconds" for each start
//   bench_spawn fleet ROUNDS SIZE NAME=PRELOAD... -- PROGRAM [ARG...]
//       starts SIZE at once; each prints a line when it is ready and ends when its input does;
//       prints "NAME nanoseconds PSS-in-KiB" for each round
// PRELOAD may be "+WORD WORD...", which means no preload and these words before PROGRAM.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace {

using Clock = std::chrono::steady_clock;

struct Setup {
  std::string name;
  std::string preload;  // "LD_PRELOAD=..." or empty
  std::vector<std::string> words;
  std::vector<char*> argv;
  std::vector<char*> environment;
};

long long since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

pid_t start(Setup& setup, posix_spawn_file_actions_t* actions) {
  pid_t child = -1;
  char** argv = setup.argv.data();
  if (posix_spawnp(&child, argv[0], actions, nullptr, argv, setup.environment.data()) != 0) {
    std::perror(argv[0]);
    std::exit(1);
  }
  return child;
}

/// Returns the processor time that the program took, in nanoseconds.
long long finish(pid_t child) {
  int status = 0;
  rusage used = {};
  if (wait4(child, &status, 0, &used) != child || status != 0) {
    std::fprintf(stderr, "bench_spawn: a program failed, status %#x\n", status);
    std::exit(1);
  }
  return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL +
         (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
}

/// The program's output goes to /dev/null.
void one(Setup& setup) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  const auto begin = Clock::now();
  const long long processor = finish(start(setup, &actions));
  std::printf("%s %lld %lld\n", setup.name.c_str(), since(begin), processor);
  posix_spawn_file_actions_destroy(&actions);
}

long long proportional_memory(pid_t child) {
  std::ifstream file("/proc/" + std::to_string(child) + "/smaps_rollup");
  std::string word;
  long long size = 0;
  while (file >> word) {
    if (word == "Pss:" && file >> size) return size;
  }
  return 0;
}

void fleet(Setup& setup, int size) {
  int ready[2];
  int release[2];
  if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(release, O_CLOEXEC) != 0) std::exit(1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, release[0], 0);
  posix_spawn_file_actions_adddup2(&actions, ready[1], 1);
  std::vector<pid_t> children;
  children.reserve(static_cast<size_t>(size));
  const auto begin = Clock::now();
  for (int i = 0; i < size; ++i) children.push_back(start(setup, &actions));
  close(ready[1]);
  int lines = 0;
  char text[4096];
  while (lines < size) {
    const ssize_t got = read(ready[0], text, sizeof text);
    if (got <= 0) {
      std::fprintf(stderr, "bench_spawn: a program ended early\n");
      std::exit(1);
    }
    for (ssize_t i = 0; i < got; ++i) lines += text[i] == '\n';
  }
  const long long spent = since(begin);
  long long memory = 0;
  for (pid_t child : children) memory += proportional_memory(child);
  close(release[1]);
  for (pid_t child : children) finish(child);
  close(ready[0]);
  close(release[0]);
  posix_spawn_file_actions_destroy(&actions);
  std::printf("%s %lld %lld\n", setup.name.c_str(), spent, memory);
}

}  // namespace

int number(const char* text) { return static_cast<int>(std::strtol(text, nullptr, 10)); }

int main(int argc, char** argv) {
  const bool each = argc > 1 && std::strcmp(argv[1], "each") == 0;
  int at = each ? 3 : 4;
  if (argc <= at) return 2;
  std::vector<Setup> setups;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    const char* equals = std::strchr(argv[at], '=');
    if (equals == nullptr) return 2;
    Setup setup;
    setup.name.assign(argv[at], static_cast<size_t>(equals - argv[at]));
    if (equals[1] == '+') {
      std::istringstream words(equals + 2);
      for (std::string word; words >> word;) setup.words.push_back(word);
    } else if (equals[1] != '\0') {
      setup.preload = std::string("LD_PRELOAD") + equals;
    }
    setups.push_back(setup);
  }
  if (++at >= argc) return 2;
  for (Setup& setup : setups) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) setup.environment.push_back(*entry);
    }
    if (!setup.preload.empty()) setup.environment.push_back(setup.preload.data());
    setup.environment.push_back(nullptr);
    for (std::string& word : setup.words) setup.argv.push_back(word.data());
    // Includes the null at its end.
    setup.argv.insert(setup.argv.end(), argv + at, argv + argc + 1);
  }
  std::vector<size_t> order(setups.size());
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 dice;  // NOLINT(cert-msc51-cpp): each run has the same order
  for (int round = number(argv[2]); round > 0; --round) {
    // The order changes, so that no setup always follows the same one.
    std::shuffle(order.begin(), order.end(), dice);
    for (const size_t i : order) {
      Setup& setup = setups[i];
      if (each) {
        one(setup);
      } else {
        fleet(setup, number(argv[3]));
      }
    }
  }
  return 0;
}
