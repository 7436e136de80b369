// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/report.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <system_error>

#include "policy/text/message.h"
#include "policy/text/record.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

/// Returns 0, or an errno value.
int cannot_append(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return errno;
    if (path.ends_with("/")) return EISDIR;
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
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (S_ISSOCK(status.st_mode)) return ENXIO;
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
  path.resize(out.view().size());
  return path;
}

bool check_report(std::string_view report, const ReportCheck& check,
                  const std::vector<std::string>& programs) {
  if (report.empty() || report == "/dev/stderr") return true;
  // exec keeps the process id.
  const std::string path = report_path(report, getpid());
  const char* name = check.by_option ? "--report " : "CUDAGUARD_REPORT=";
  if (const int error = cannot_append(path); error != 0) {
    const std::string wrong =
        text_of([&](Text& out) { put_report_error(out.print("%c\"%l\": ", name, report), error); });
    // The report belongs to another user; the program still runs, without a report.
    const bool is_forbidden = error == EACCES || error == EPERM || error == EROFS;
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
