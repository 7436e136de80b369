// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/private_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "policy/config.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

[[noreturn]] void refuse(const std::string& folder, const std::string& why) {
  throw Refusal(kRefused, "--observe: " + in_quotes(folder) + why +
                              " (accepted: TMPDIR, a folder that can be written to)");
}

/// The programs may run in any folder, so the path must not depend on this one.
std::string temporary_folder() {
  const char* given = getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): one thread
  const std::string folder = given != nullptr && *given != '\0' ? given : "/tmp";
  char path[PATH_MAX];
  if (realpath(folder.c_str(), path) == nullptr) {
    refuse(folder, std::string(": ") + strerror(errno));
  }
  // The guard puts a process id there.
  if (strstr(path, "%p") != nullptr) refuse(folder, " has %p in its path");
  return path;
}

}  // namespace

PrivateReport::PrivateReport() {
  const std::string where = temporary_folder();
  folder_ = where + "/cudaguard-XXXXXX";
  if (folder_.size() + 16 > kMaxReportPath) refuse(where, " is too long a path");
  if (mkdtemp(folder_.data()) == nullptr) refuse(where, std::string(": ") + strerror(errno));
  file_ = folder_ + "/report.jsonl";
  const int fd = open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    const int error = errno;
    rmdir(folder_.c_str());
    refuse(where, std::string(": ") + strerror(error));
  }
  close(fd);
}

PrivateReport::~PrivateReport() {
  // A guard may make the file anew between the two.
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    unlink(file_.c_str());
    if (rmdir(folder_.c_str()) == 0 || errno != ENOTEMPTY) return;
  }
}

}  // namespace cudaguard::launcher
