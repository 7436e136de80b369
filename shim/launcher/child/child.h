// SPDX-License-Identifier: Apache-2.0
// Runs a child process that may hang, crash or refuse to die: ld.so, a broken driver. Asks an
// executable's own ld.so what it would load; no code of the program runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

/// No process or descriptor is available. A check may then be left out.
class Shortage : public Refusal {
 public:
  explicit Shortage(const std::string& reason) : Refusal(kRefused, reason) {}
};

/// How long to wait for a process, as elapsed time: `usual`, counted anew whenever the process is
/// seen runnable within the time `busy`, because the machine may be overloaded.
struct TimeLimit {
  constexpr TimeLimit(std::chrono::milliseconds usually, std::chrono::milliseconds if_busy = {})
      : usual(usually), busy(if_busy) {}
  std::chrono::milliseconds usual;
  std::chrono::milliseconds busy;
};
/// How long to wait for the death of a killed process. If it sleeps in the kernel, it may never
/// end, or wait for a busy disk. If it is runnable, it ends when it gets a processor.
inline constexpr TimeLimit kDeath(std::chrono::milliseconds{500}, std::chrono::milliseconds{5000});

struct ChildEnd {
  int not_started = 0;  ///< errno; kHeldBack: `before` returned false; 0: it was started
  bool in_time = false;
  pid_t stuck = 0;  ///< the child's id if SIGKILL does not end it
  int status = 0;   ///< as from waitpid
  std::string out;  ///< the child's output
  std::string err;
};
inline constexpr int kHeldBack = -1;

/// Duplicates `fd` to a number above 2. Returns -1 and errno on failure. If 0 to 2 were closed at
/// our start, `fd` may have such a number, which belongs to the program.
int above_stderr(int fd);

/// Closes inherited descriptors, because our copies would keep pipes and locks open after the
/// program's end. 0 and 1 become /dev/null, 2 stays. In `kept`, -1 stands for no descriptor.
void give_up_descriptors(std::vector<int> kept);

/// Starts words[0], a path, and collects its output until it ends or `limit` is over. The limit
/// begins at execve. Then kills the rest of its process group. The child cannot read input, leaves
/// no core file, and dies with us. It inherits our caller's descriptors, because words may name one
/// (/dev/fd/9). `before` runs in the child. Throws Shortage if no process can be created.
ChildEnd run_child(std::vector<std::string> words, Variables variables, TimeLimit limit,
                   bool (*before)() = nullptr);

struct LoadedLibrary {
  std::string name;  ///< the name in the request, "libc.so.6", or the preloaded path
  std::string path;  ///< empty if not found
  std::shared_ptr<const ElfFile> file = {};  ///< null if it was not opened
};

struct LoaderAnswer {
  std::vector<LoadedLibrary> libraries;
  std::string errors;   ///< the text on stderr
  std::string trouble;  ///< "gave no answer within 10 s, at /nfs/libcuda.so.1"; empty if none

  const LoadedLibrary* find(std::string_view name) const;
};

/// Removes variables that change or redirect ld.so's output, or that run foreign code (LD_AUDIT).
void unset_loader_questions(Variables& variables);

/// `variables` is the program's future environment. `loader` must be a glibc's. Throws Refusal if
/// `loader` cannot be started, Shortage if no process can be created.
LoaderAnswer ask_loader(const std::string& loader, const std::string& executable,
                        const Variables& variables,
                        std::chrono::seconds patience = std::chrono::seconds{10});

}  // namespace cudaguard::launcher
