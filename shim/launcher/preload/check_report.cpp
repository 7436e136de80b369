// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/check_report.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "policy/variables.h"
#include "shim/guard/text/message.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

/// Returns 0 if no other user can replace this user's files in the directory of `path`.
int spool_error(const std::string& path) {
  const std::string directory = path.substr(0, path.find_last_not_of('/', path.rfind('/')) + 1);
  struct stat status = {};
  if (lstat(directory.empty() ? "/" : directory.c_str(), &status) != 0) return errno;
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  const bool is_trusted = status.st_uid == 0 || status.st_uid == geteuid();
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return !is_trusted || (others_write && (status.st_mode & S_ISVTX) == 0) ? kUnsafeDirectory : 0;
}

/// Returns 0 if this is a file of a spool directory that this user has made.
int spooled_error(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return EINVAL;
  if (status.st_uid != geteuid()) return kAnothersFile;
  return status.st_nlink > 1 ? EMLINK : 0;
}

/// Returns 0, or a value that put_report_error() takes.
int cannot_append(const std::string& path, bool spooled) {
  struct stat status = {};
  if (const int error = spooled ? spool_error(path) : 0; error != 0) return error;
  if (lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return errno;
    const size_t slash = path.rfind('/');
    const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    // For root, faccessat() succeeds here, although no process can create a file.
    struct statfs system = {};
    if (statfs(directory.c_str(), &system) == 0 &&
        (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC)) {
      return EACCES;
    }
    return faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
  }
  if (S_ISLNK(status.st_mode)) return ELOOP;
  if (const int error = spooled ? spooled_error(status) : 0; error != 0) return error;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (S_ISSOCK(status.st_mode)) return ENXIO;
  if (S_ISBLK(status.st_mode)) return EINVAL;
  // A pipe is not opened, because closing it would end the reader's input.
  if (!S_ISREG(status.st_mode)) {
    return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
  }
  if (status.st_nlink > 1) return EMLINK;
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

/// Returns 0 if a process reads the log, or an errno value. Sends nothing.
int syslog_error() {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  sockaddr_un address = {AF_UNIX, "/dev/log"};
  const bool listens = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

/// True if no record may be appended to the file's contents: a script, the guard itself.
bool has_other_things(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    return false;
  }
  // A report starts with a whole record, {"v":1,...}, and its last record ends with a newline.
  constexpr std::string_view kStart = R"({"v":)";
  const FileBytes file(path);
  if (file.error() != 0) return false;
  std::string start(kStart.size(), '\0');
  char last = 0;
  return !(file.read(0, start.data(), start.size()) && start == kStart &&
           file.read(file.size() - 1, &last, 1) && last == '\n');
}

}  // namespace

std::string report_path(std::string_view report, int pid) {
  utsname system = {};
  uname(&system);
  std::string path(2 * size_t{PATH_MAX}, '\0');  // a longer path cannot be opened
  Text out(path.data(), path.size());
  put_report_name(out, report, {static_cast<uint32_t>(pid), geteuid(), system.nodename});
  if (is_spool(report)) put_spool_name(out, geteuid(), static_cast<uint64_t>(time(nullptr)));
  path.resize(out.view().size());
  return path;
}

int open_report(std::string_view report, int pid, int& error) {
  error = EINVAL;
  if (report == kSyslog) return -1;
  const std::string path = report_path(report, pid);
  const bool spooled = is_spool(report);
  error = spooled ? cannot_append(path, true) : 0;
  if (error != 0) return -1;
  const int fd = open(
      path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK,
      spooled ? 0600 : 0644);
  if (fd < 0) error = errno;
  if (fd < 0 || !spooled) return fd;
  // Another user may have made the file meanwhile.
  struct stat status = {};
  error = fstat(fd, &status) != 0 ? errno : spooled_error(status);
  if (error == 0) return fd;
  close(fd);
  return -1;
}

std::string why_no_report(int error, bool copied) {
  // The guard's file has no room for a second list.
  std::string text = text_of([&](Text& out) { put_report_error(out, error); });
  const std::string syslog = std::string(", ") + kSyslog;
  const size_t at = copied ? text.find(syslog) : std::string::npos;
  return at == std::string::npos ? text : text.erase(at, syslog.size());
}

bool check_report(std::string_view report, const ReportCheck& check,
                  const std::vector<std::string>& programs) {
  if (report.empty() || report == "/dev/stderr") return true;
  const std::string name = check.name;
  if (report == kSyslog) {
    if (!check.copied) {
      const int error = check.strict ? syslog_error() : 0;
      if (error == 0) return true;
      throw Refusal(kRefused, name + in_quotes(report) + ": /dev/log: " + strerror(error) +
                                  "; start rsyslog or systemd-journald");
    }
    const std::string wrong = name + in_quotes(report) + ": this command writes to files only";
    if (name == kReportOption || check.strict) throw Refusal(kRefused, wrong + "; name a file");
    warn(wrong + "; nothing is recorded");
    return false;
  }
  // exec keeps the process id.
  const std::string path = report_path(report, getpid());
  if (const int error = cannot_append(path, is_spool(report)); error != 0) {
    const std::string wrong =
        text_of([&](Text& out) { out.print("%c\"%l\": ", check.name, report); }) +
        why_no_report(error, check.copied);
    // The report belongs to another user; the program still runs, without a report.
    const bool is_forbidden = error == EACCES || error == EPERM || error == EROFS ||
                              error == kAnothersFile || error == kUnsafeDirectory;
    if (!is_forbidden || check.strict) throw Refusal(kRefused, wrong);
    warn(wrong + "; nothing is recorded");
    return false;
  }
  for (const std::string& program : programs) {
    std::error_code error;
    if (std::filesystem::equivalent(path, program, error)) {
      throw Refusal(kRefused, "the report " + in_quotes(report) +
                                  " is the program's own file; name another file");
    }
  }
  if (has_other_things(path)) {
    throw Refusal(kRefused, name + in_quotes(report) +
                                ": the file has other contents (accepted: a new file or records)");
  }
  return true;
}

}  // namespace cudaguard::launcher
