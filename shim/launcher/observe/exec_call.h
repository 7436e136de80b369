// SPDX-License-Identifier: Apache-2.0
// A call of execve while the kernel holds the calling thread: which file its name means for the
// process, in its root directory, mount namespace and working directory, and with its rights.
#pragma once

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "shim/launcher/observe/process.h"

namespace cudaguard::launcher {

/// A call of execve, and what its process may do.
struct ExecCall {
  ExecCall(pid_t caller, const seccomp_data& data);
  /// A name for open_file(), also if the call means a file by its descriptor.
  std::string full_name(const std::string& name) const;
  /// Opens the file that this name means for the process, if it has this right to the file (X_OK,
  /// R_OK), or sets `error`: EXDEV if that is not known.
  Descriptor open_file(const std::string& name, int right = 0, bool follow = true);
  /// True if open_file() has failed, and execve perhaps does not.
  bool is_lost() const;
  /// False if the new program may not read the library of this name, as this process may.
  bool may_load(const std::string& name);
  /// Why ld.so will distrust the environment (AT_SECURE); empty if it will not. The kernel compares
  /// the effective ids after execve with the real ones. File capabilities count even if
  /// no_new_privs keeps the process from gaining them. A mount with nosuid and another user
  /// namespace may prevent it, and then a start beacon shows that the program is guarded.
  std::string privileges(const struct stat& file, bool has_capabilities);
  /// True if this process may not know which file a name means.
  bool hides_files() const { return root() == -1; }
  /// By which name this process finds the file that the other one finds by `name`, a name from the
  /// root directory.
  std::string absolute(const std::string& name) const {
    return shares_root_ ? name : proc("root") + name;
  }
  /// The name of a file of /proc/PID.
  std::string proc(const std::string& name) const { return proc_ + name; }

  pid_t thread;
  Descriptor process;  ///< open once the credentials were asked for
  uint64_t path = 0;
  uint64_t words = 0;
  uint64_t variables = 0;
  int flags = 0;
  size_t pointer = 8;  ///< its size
  size_t added = 0;    ///< bytes that execve adds for the interpreters of scripts
  Descriptor opened;   ///< the file that will run
  int error = 0;       ///< of open_file()
  // Of this file.
  bool is_loader = false;
  bool by_loader = false;
  bool is_privileged = false;

 private:
  class UserRights;

  /// /proc/PID/status
  const std::string& status();
  /// Nothing if the thread is gone.
  const std::optional<Credentials>& credentials();
  /// A file of /proc/PID.
  Descriptor open_own(const std::string& name) const {
    return Descriptor(open(proc(name).c_str(), O_PATH | O_CLOEXEC));
  }
  /// As open_file(), with this process's rights.
  Descriptor look_up(const std::string& name, bool follow);
  /// Its root directory; -1 if it is hidden. AT_FDCWD if names mean the same files for this
  /// process, which then finds absolute names by itself.
  int root() const { return shares_root_ ? AT_FDCWD : root_.number(); }
  /// True if the process has capabilities to access any file.
  bool may_access_all();
  /// True if root's verify looks at another user's process.
  bool has_other_user();
  /// Takes the rights of the process's user.
  void take_rights(std::optional<UserRights>& rights);

  int directory_ = AT_FDCWD;  ///< of execveat
  bool shares_root_ = false;
  Descriptor root_;  ///< open if it is another one
  std::string proc_;
  std::string status_;
  std::optional<Credentials> credentials_;
};

}  // namespace cudaguard::launcher
