// SPDX-License-Identifier: Apache-2.0
// Compares what ld.so.cache says of programs' libraries with what their ld.so says.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "shim/launcher/preload/ld_so_cache.h"

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

}  // namespace
}  // namespace cudaguard::launcher

// loader_answers GUARD CACHE PROGRAM...
int main(int argc, char** argv) {
  for (int i = 3; i < argc; ++i) cudaguard::launcher::compare(argv[i], argv[1], argv[2]);
  return argc < 4 ? 1 : 0;
}
