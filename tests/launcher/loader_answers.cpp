// SPDX-License-Identifier: Apache-2.0
// Compares what ld.so.cache says of programs' libraries with what their ld.so says.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "shim/launcher/preload/ld_so_cache.h"
#include "tests/launcher/random.h"

namespace cudaguard::launcher {
namespace {

/// One library in each line; without ld.so itself and the vDSO, which is no file.
std::string text_of(const LoaderAnswer& answer) {
  std::string text;
  for (const LoadedLibrary& library : answer.libraries) {
    const bool loader = library.path.find("/ld-linux-") != std::string::npos;
    if (loader || library.path.starts_with("linux-vdso")) continue;
    text += "  " + library.name + " => " + library.path + "\n";
  }
  return text;
}

void compare(const char* path, const std::string& guard, const std::string& cache) {
  const Executable executable = {path, read_elf(FileBytes(path))};
  if (!executable.facts.damage.empty() || executable.facts.interpreter.empty()) return;
  Variables variables(environ);
  variables.set("LD_PRELOAD", guard);
  const auto answer = answer_from_cache(executable, variables, guard, cache);
  if (!answer) {
    printf("asks ld.so: %s\n", path);
    return;
  }
  const LoaderAnswer expected = ask_loader(executable.facts.interpreter, path, variables);
  const std::string found = text_of(*answer);
  const std::string right = text_of(expected);
  printf("%s: %s\n%s%s%s", found == right ? "same" : "DIFFERENT", path, found.c_str(),
         found == right ? "" : " ld.so:\n", found == right ? "" : right.c_str());
}

/// Damages a copy of the cache, again and again.
int fuzz(int rounds, const char* path, const std::string& guard, const std::string& copy) {
  const Executable executable = {path, read_elf(FileBytes(path))};
  std::ifstream file(kLdSoCache, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  Variables variables(environ);
  variables.set("LD_PRELOAD", guard);
  Random random;
  int answers = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string changed = whole;
    for (uint64_t count = 1 + random.below(40); count > 0; --count) {
      const uint64_t limit = random.below(3) == 0 ? 64 : changed.size();
      changed[random.below(limit)] = static_cast<char>(random.below(256));
    }
    if (random.below(4) == 0) changed.resize(random.below(changed.size()));
    std::ofstream(copy, std::ios::binary) << changed;
    answers += answer_from_cache(executable, variables, guard, copy) ? 1 : 0;
  }
  printf("%d of %d damaged caches gave an answer\n", answers, rounds);
  return 0;
}

}  // namespace
}  // namespace cudaguard::launcher

// loader_answers GUARD CACHE PROGRAM...
// loader_answers --fuzz ROUNDS GUARD COPY PROGRAM
int main(int argc, char** argv) {
  using namespace cudaguard::launcher;
  if (argc == 6 && strcmp(argv[1], "--fuzz") == 0) {
    return fuzz(std::stoi(argv[2]), argv[5], argv[3], argv[4]);
  }
  for (int i = 3; i < argc; ++i) compare(argv[i], argv[1], argv[2]);
  return argc < 4 ? 1 : 0;
}
