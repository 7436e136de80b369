// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/report_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>

#include "policy/message.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/report.h"

namespace cudaguard::launcher {

namespace {

/// Closed at the end. -1: errno says why.
class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0)
      : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, mode)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

void ReportReader::read_on() noexcept {
  try {
    read_file();
  } catch (const std::exception& error) {
    if (!failed_) say(std::string("--observe: ") + error.what());
    failed_ = true;
  }
}

void ReportReader::finish() noexcept {
  read_on();
  try {
    if (!rest_.empty() || skipping_) take_line(rest_);
  } catch (const std::exception&) {
    // Out of memory, for one line that is cut.
  }
  rest_.clear();
}

void ReportReader::read_file() {
  const File file(from_, O_RDONLY);
  if (file.fd() < 0) return;
  constexpr size_t kPart = 65536;
  const auto part = std::make_unique<char[]>(kPart);
  for (;;) {
    const ssize_t got = pread(file.fd(), part.get(), kPart, static_cast<off_t>(offset_));
    if (got <= 0) return;
    offset_ += static_cast<uint64_t>(got);
    std::string_view text(part.get(), static_cast<size_t>(got));
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      rest_.append(text.substr(0, end));
      take_line(rest_);
      rest_.clear();
      skipping_ = false;
      text.remove_prefix(end + 1);
    }
    rest_.append(text);
    if (rest_.size() > kMaxRecord) {
      skipping_ = true;
      rest_.clear();
    }
  }
}

void ReportReader::take_line(std::string_view line) {
  uint32_t pid = 0;
  // An empty text is no record, and counted as such.
  if (records_.add(skipping_ ? std::string_view{} : line, pid) && copies()) copy(line, pid);
}

void ReportReader::copy(std::string_view line, uint32_t pid) {
  const std::string text = std::string(line) + "\n";
  if (to_ == "/dev/stderr") return write_stderr(text);
  const File file(report_path(to_, static_cast<int>(pid)), O_WRONLY | O_APPEND | O_CREAT, 0644);
  int error = errno;
  if (file.fd() >= 0) {
    // One write, as the guard's own: other programs may append to the same file.
    const ssize_t written = write(file.fd(), text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) return;
    error = written < 0 ? errno : ENOSPC;
  }
  if (!failed_) say("records are missing in the report " + in_quotes(to_) + ": " + strerror(error));
  failed_ = true;
}

}  // namespace cudaguard::launcher
