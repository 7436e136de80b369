// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "shim/launcher/format.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

// Each user can make files, but see, rename and remove no other user's.
constexpr mode_t kMode = S_ISVTX | S_IRWXU | S_IWGRP | S_IXGRP | S_IWOTH | S_IXOTH;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Refusal(kRefused, "--spool " + in_quotes(path) + ": " + why);
}

}  // namespace

Spool::Spool(const std::string& path) : path_(path) {
  while (path_.ends_with('/')) path_.pop_back();
  if (!path_.starts_with('/') || path_.find_first_of(" \t\n;#\"%") != std::string::npos) {
    refuse(path, "not accepted (accepted: an absolute path without blanks and ; # \" %)");
  }
  struct stat status = {};
  for (std::filesystem::path above = path_; above != "/";) {
    above = above.parent_path();
    if (stat(above.c_str(), &status) == 0 && (status.st_mode & S_IXOTH) == 0) {
      refuse(path, "not every user can enter " + printable(above.string()) + " (chmod o+x)");
    }
  }
  if (lstat(path_.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse(path, strerror(errno));
    if (const std::string parent = std::filesystem::path(path_).parent_path();
        access(parent.c_str(), W_OK) != 0) {
      refuse(path, strerror(errno));
    }
    return;
  }
  is_there_ = S_ISDIR(status.st_mode) && status.st_uid == 0 && (status.st_mode & 07777) == kMode;
  // A killed command may have left an empty directory with another mode.
  std::error_code error;
  const bool is_new = S_ISDIR(status.st_mode) && status.st_uid == 0 &&
                      std::filesystem::is_empty(path_, error) && !error;
  if (!is_there_ && !is_new) {
    refuse(path,
           "it exists, and is not a spool directory (accepted: a new or empty directory, or "
           "one of root with mode 1733)");
  }
}

void Spool::make() const {
  if (is_there_) return;
  if (mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST) refuse(path_, strerror(errno));
  const int fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) refuse(path_, strerror(errno));
  // The umask does not change this.
  const int error = fchmod(fd, kMode) == 0 ? 0 : errno;
  close(fd);
  if (error != 0) refuse(path_, strerror(error));
}

}  // namespace cudaguard::launcher
