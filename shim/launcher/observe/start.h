// SPDX-License-Identifier: Apache-2.0
// Judges a call of execve while the kernel holds the calling thread: whether the guard will be in
// the new program, from the file and the environment that it is about to get. Another thread can
// change both until the call goes on, so a start beacon must confirm a program that is guarded.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shim/launcher/findings/command.h"
#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

class WaitingProcess;
struct ExecCall;

/// What a file is for execve. Nothing in it depends on the process.
struct FileFacts {
  enum class Kind : uint8_t {
    kOther,       ///< neither an ELF file nor a script
    kUnreadable,  ///< it can be executed and not be read
    kScript,      ///< `interpreter` is what its "#!" line names
    kDynamic,     ///< ld.so will load the guard
    kLauncher,    ///< a cudaguard command, which preloads by itself
    kUnguarded,   ///< it cannot be guarded, and `word` and `why` say why
  };
  Kind kind = Kind::kOther;
  bool foreign = false;        ///< no program of this machine: only binfmt_misc starts it
  std::string head = {};       ///< the beginning of a file that only binfmt_misc starts
  bool never_guarded = false;  ///< although the guard may send a start beacon: it is for musl
  bool has_capabilities = false;
  bool is_loader = false;  ///< glibc's ld.so, which loads the program that its arguments name
  bool by_loader = false;  ///< glibc's ld.so starts it
  std::string word = {};   ///< "static", "musl", "32-bit"
  std::string why = {};    ///< a clause: "it is a static executable"
  std::string interpreter = {};
  bool is_complete = false;               ///< its interpreter was examined
  std::optional<bool> names_nvidia = {};  ///< see TreeTruth::Unguarded; once it was asked for
};

/// Reads each file once.
class Executables {
 public:
  /// `id` is that of the file.
  FileFacts& of(const std::string& path, const FileId& id);
  FileFacts& of(const std::string& path) { return of(path, id_of(path)); }
  bool names_nvidia(const std::string& path);

 private:
  std::map<FileId, FileFacts> files_;
};

/// A call of execve.
struct Start {
  enum class Kind : uint8_t {
    kFails,      ///< the call will fail
    kLists,      ///< ld.so will only list the libraries of the program
    kGuarded,    ///< nothing prevents its start beacon
    kLauncher,   ///< as in FileFacts
    kUnguarded,  ///< `reason` says why, as for the next one
    kUnknown,
  };
  Kind kind = Kind::kUnknown;
  std::string reason = {};
  std::string program = {};  ///< the file, as the call names it
  Command command = {};      ///< its arguments
  /// The beginning of /proc/PID/cmdline; empty if the call does not show it.
  std::string arguments = {};
  std::string started_by = {};  ///< "sh run.sh"; empty: not known, a prompt, or cudaguard
  FileId file = {};             ///< that will run: of a script, the interpreter
  bool is_final = false;        ///< a start beacon does not change the kind
  bool names_nvidia = false;    ///< see TreeTruth::Unguarded
  bool own_guard = false;       ///< LD_PRELOAD names the guard of this launcher, for this user
  Descriptor process = {};      ///< as long as its end may tell whether the program began
  /// What the file runs, as the process names it: of a script, the script; of ld.so, the program.
  std::vector<std::string> texts = {};
};

class StartReader {
 public:
  /// `guard` is the path of the guard in LD_PRELOAD; it may be empty.
  explicit StartReader(const std::string& guard);
  /// The thread must wait in this call. Check afterwards that it still does.
  Start read(pid_t thread, const seccomp_data& call);
  /// Whether the program that the process runs names NVIDIA. `start` is what read() has returned.
  bool names_nvidia(pid_t pid, const Start& start);

 private:
  struct Strings;
  void judge_file(ExecCall& call, Start& start);
  bool has_interpreter(ExecCall& call, FileFacts& facts) const;
  void judge_strings(ExecCall& call, const Strings& strings, Start& start) const;
  bool names_nvidia(ExecCall& call, const std::string& path, const Start& start);
  static bool read_strings(const ExecCall& call, WaitingProcess& memory, Strings& strings,
                           Start& start);

  FileId guard_ = {};
  Executables executables_;
};

}  // namespace cudaguard::launcher
