// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/try_programs.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "policy/text.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/judge.h"

namespace cudaguard::launcher {

namespace {

using Words = std::vector<std::string>;

constexpr TimeLimit kLimit(std::chrono::seconds{30}, std::chrono::seconds{120});
constexpr const char* kEnvironment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", nullptr};

/// What a machine needs to boot, to be logged in to and to be repaired. They change nothing.
constexpr const char* kPrograms[][4] = {
    {"/bin/sh", "-c", ":"},         {"/bin/ls", "/"},
    {"/bin/su", "--version"},       {"/lib/systemd/systemd", "--version"},
    {"/usr/sbin/sshd", "-t"},       {"/usr/bin/sudo", "--version"},
    {"/usr/bin/dpkg", "--version"}, {"/usr/bin/rpm", "--version"},
};
constexpr const char* kStatic[] = {"/sbin/ldconfig", "/sbin/ldconfig.real", "/bin/busybox"};
#if defined(__x86_64__)
constexpr char kLoader32[] = "/lib/ld-linux.so.2";
#else
constexpr char kLoader32[] = "/lib/ld-linux-armhf.so.3";
#endif

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string ending(const ChildEnd& end) {
  if (end.not_started != 0) return std::string("cannot be started: ") + strerror(end.not_started);
  if (!end.in_time) return "does not end within 30 seconds";
  if (WIFSIGNALED(end.status)) {
    return std::string("is killed by signal ") + std::to_string(WTERMSIG(end.status));
  }
  return "ends with exit code " + std::to_string(WEXITSTATUS(end.status));
}

/// Throws Refusal unless the program behaves with the guard as without it.
void compare(const Words& words, const Variables& without, const Variables& with) {
  const std::string alone = ending(run_child(words, without, kLimit));
  const std::string guarded = ending(run_child(words, with, kLimit));
  if (alone == guarded) return;
  throw Refusal(kRefused, joined(words, " ") + " " + guarded +
                              " with the guard, and without it, it " + alone +
                              "; nothing was changed");
}

/// ld.so ignores a library of the other class, and says so.
std::optional<TriedProgram> try_32_bit(const Variables& without, const Variables& with) {
  char loader[PATH_MAX];
  if (realpath(kLoader32, loader) == nullptr) return {};
  const std::string libc = std::string(directory_of(loader)) + "/libc.so.6";  // is a program, too
  if (!exists(libc)) return {};
  compare({kLoader32, libc}, without, with);
  const Examined examined = examine_file({libc, read_elf(FileBytes(libc))});
  if (examined.hindrances.empty()) return {};  // this libc is for other programs
  return TriedProgram{libc, examined.hindrances.front().why +
                                "; ld.so prints an error whenever such a program starts"};
}

}  // namespace

std::vector<TriedProgram> try_programs(const std::string& guard) {
  const Variables without(kEnvironment);
  Variables with = without;
  with.set("LD_PRELOAD", guard);
  Installation installation;
  installation.guard = guard;
  std::vector<TriedProgram> tried;
  for (const auto& program : kPrograms) {
    const Words words(std::begin(program),
                      std::find(std::begin(program), std::end(program), nullptr));
    const std::string& path = words.front();
    const FileBytes file(path);
    if (file.error() != 0) continue;
    const Executable executable = {path, read_elf(file)};
    if (!executable.facts.is_elf) continue;  // a script, whose shell is tried
    const Examined examined = examine(executable, installation, with, false);
    const Hindrance* const first =
        examined.hindrances.empty() ? nullptr : &examined.hindrances.front();
    const std::string_view id = first == nullptr ? "" : first->id;
    if (id == "setuid" || id == "setgid" || id == "capabilities") continue;  // only root can try it
    if (id == "loader") {
      throw Refusal(kRefused, in_quotes(path) + " cannot be guarded: " + first->why +
                                  "; nothing was changed");
    }
    const bool dynamic = examined.kind == Examined::Kind::kDynamic;
    const std::string why = first != nullptr ? first->why
                            : dynamic        ? ""
                                             : "it is a static executable";
    compare(words, without, with);
    tried.push_back({path, why});
  }
  const auto guarded = [](const TriedProgram& program) { return program.why_not.empty(); };
  if (std::ranges::none_of(tried, guarded)) {
    throw Refusal(kRefused, "no program could be guarded" +
                                (tried.empty() ? std::string()
                                               : ": " + in_quotes(tried.front().path) + ", " +
                                                     tried.front().why_not) +
                                "; nothing was changed");
  }
  if (const auto other = try_32_bit(without, with)) tried.push_back(*other);
  for (const char* path : kStatic) {
    const FileBytes file(path);
    const Executable executable = {path, read_elf(file)};
    if (!executable.facts.is_elf || !executable.facts.interpreter.empty()) continue;
    tried.push_back({path, "it is a static executable"});
    break;
  }
  return tried;
}

}  // namespace cudaguard::launcher
