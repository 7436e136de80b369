// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shim/launcher/child/child.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

namespace fs = std::filesystem;

constexpr size_t kStart = 1024;  // a result's first bytes, which identify it
constexpr int kMostLinks = 40;   // the kernel follows as many

std::string path_of(const std::string& name) { return name == "-" ? "/dev/stdout" : name; }

/// The descriptor of this process that the path means. A newly opened file would be written from
/// its start, over the output of the shell or of other programs.
std::optional<int> descriptor_of(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view directory : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(directory)) continue;
    const std::string_view word = path.substr(directory.size());
    int number = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size()) return number;
  }
  return {};
}

/// The full path without links; the file need not exist.
std::string full_path(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return fs::weakly_canonical(fs::absolute(path, error), error).native();
}

bool is_same(const std::string& one, const std::string& other) {
  struct stat a = {};
  struct stat b = {};
  const bool exists = stat(one.c_str(), &a) == 0;
  if (exists != (stat(other.c_str(), &b) == 0)) return false;
  if (!exists) return full_path(one) == full_path(other);
  // A terminal or /dev/null may receive several results.
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && !S_ISCHR(a.st_mode);
}

/// True for the start of a JSON document, JUnit's XML, our page or our metrics. doctor's document
/// is indented.
bool is_result(std::string_view text) {
  constexpr std::string_view kVersion = R"({"v":)";  // followed by one digit
  std::string start;
  for (const char c : text) {
    if (isspace(static_cast<unsigned char>(c)) == 0) start += c;
  }
  const auto has = [&](const char* words) { return start.find(words) != std::string::npos; };
  return (start.starts_with(kVersion) && start.find(R"(,"cudaguard":")") == kVersion.size() + 1) ||
         (start.starts_with("<?xml") && has(R"(<testsuitename="cudaguardverify")")) ||
         (start.starts_with("<!DOCTYPEhtml>") && has("<title>cudaguard</title>")) ||
         start.starts_with("#HELPcudaguard_");
}

/// True if no file can be renamed onto it: a mount point, or another user's file in a sticky
/// directory.
bool keeps_its_name(const std::string& path) {
  struct statx file = {};
  struct stat directory = {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_UID, &file) != 0) return false;
  if ((file.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) return true;
  const uid_t user = geteuid();
  return stat(fs::path(path).parent_path().c_str(), &directory) == 0 &&
         (directory.st_mode & S_ISVTX) != 0 && user != 0 && user != file.stx_uid &&
         user != directory.st_uid;
}

}  // namespace

std::vector<TakenFile> taken_by_program(const std::vector<std::string>& files, char** arguments) {
  std::vector<TakenFile> taken;
  taken.reserve(files.size());
  for (const std::string& file : files) taken.push_back({file, "is the program's own file"});
  if (*arguments != nullptr) ++arguments;
  for (; *arguments != nullptr; ++arguments) {
    taken.push_back({*arguments, "is an argument of the program"});
    const char* value = strchr(*arguments, '=');
    if (value != nullptr) taken.push_back({value + 1, taken.back().reason});
  }
  return taken;
}

OutputFile::OutputFile(const char* option, const std::optional<std::string>& name, bool force,
                       std::vector<TakenFile>& taken)
    : option_(option), name_(name.value_or("")), force_(force) {
  if (!name) return;
  if (name_.empty()) refuse("not accepted (accepted: a file, or - for the standard output)");
  const std::string path = path_of(name_);
  const std::optional<int> descriptor = descriptor_of(path);
  is_stdout_ = descriptor == STDOUT_FILENO;
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 && errno != ENOENT) refuse(strerror(errno));
  for (const auto& [other, reason] : taken) {
    if (is_same(path, other)) refuse(std::string(reason) + "; name another file");
  }
  taken.push_back({path, "is the file of another result"});
  if (descriptor) {
    take_descriptor(*descriptor);
  } else if (status.st_mode != 0 && !S_ISREG(status.st_mode)) {
    open_special(status.st_mode);
  } else {
    find_target();
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  allow_signals();
}

void OutputFile::refuse(const std::string& reason) const {
  throw Refusal(kRefused, option_ + " " + in_quotes(name_) + ": " + reason);
}

void OutputFile::take_descriptor(int descriptor) {
  // A descriptor that we inherited has no FD_CLOEXEC. Otherwise the number is closed, or ours.
  const int flags = fcntl(descriptor, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0) refuse(strerror(EBADF));
  if ((fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY) refuse("open for reading only");
  fd_ = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (fd_ < 0) refuse(strerror(errno));
}

void OutputFile::open_special(mode_t mode) {
  if (S_ISBLK(mode)) refuse("is a block device; name a file, a pipe or a terminal");
  fd_ = above_stderr(open(name_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (fd_ < 0) refuse(strerror(errno));
}

/// Checks before the program starts, which may run for hours, whether the file can be written.
void OutputFile::find_target() {
  target_ = full_path(name_);
  check_content();
  const bool exists = access(target_.c_str(), F_OK) == 0;
  if (exists && access(target_.c_str(), W_OK) != 0) refuse(strerror(errno));
  const int fd = make_temporary();
  const int error = errno;
  if (fd >= 0) {
    close(fd);
    unlink(temporary_.c_str());
  }
  temporary_.clear();
  allow_signals();
  in_place_ = fd < 0 || keeps_its_name(target_);
  if (in_place_ && !exists) refuse(strerror(error));
}

void OutputFile::check_content() const {
  if (force_) return;
  const int fd = open(target_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return;
  std::string start(kStart, '\0');
  const ssize_t count = fd < 0 ? -1 : read(fd, start.data(), start.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (count < 0) refuse(strerror(error));
  start.resize(static_cast<size_t>(count));
  if (start.empty() || is_result(start)) return;
  refuse(
      "the file was not written by cudaguard; name another file, or add --force to overwrite it");
}

/// A signal that ends this process must wait until the file has its name or is removed.
int OutputFile::make_temporary() {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGXFSZ);  // write_all() ignores it, but the kernel would keep a blocked one
  sigprocmask(SIG_BLOCK, &all, &signals_.emplace());
  temporary_ = fs::path(target_).parent_path() / ".cudaguard-XXXXXX";
  const int fd = mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd < 0) temporary_.clear();
  return above_stderr(fd);
}

void OutputFile::open_target() {
  check_content();  // the program may have created the file meanwhile
  const int flags = O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW;
  fd_ = in_place_ ? above_stderr(open(target_.c_str(), flags)) : make_temporary();
  if (fd_ < 0) refuse(strerror(errno));
  if (in_place_) return;
  const mode_t mask = umask(0);
  umask(mask);
  struct stat old = {};
  old.st_mode = 0666 & ~mask;
  if (stat(target_.c_str(), &old) == 0) {
    // Only root can change a file's owner.
    [[maybe_unused]] const int given = fchown(fd_, old.st_uid, old.st_gid);
  }
  fchmod(fd_, old.st_mode & 0777);
}

void OutputFile::put(std::string_view text) {
  if (fd_ < 0) open_target();
  if (const int error = write_all(fd_, text); error != 0) refuse(strerror(error));
}

void OutputFile::finish() {
  const int closed = close(std::exchange(fd_, -1));  // NFS reports a full disk here
  if (closed != 0) refuse(strerror(errno));
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), target_.c_str()) != 0) refuse(strerror(errno));
  temporary_.clear();
  allow_signals();
}

void OutputFile::allow_signals() {
  if (signals_) sigprocmask(SIG_SETMASK, &*signals_, nullptr);
  signals_.reset();
}

}  // namespace cudaguard::launcher
