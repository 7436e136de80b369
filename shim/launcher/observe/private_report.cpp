// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/private_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/guard/text/message.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/check_report.h"

namespace cudaguard::launcher {

namespace {

[[noreturn]] void refuse(const std::string& directory, const std::string& why) {
  throw Refusal(kRefused, "no directory for the records: " + in_quotes(directory) + why +
                              "; set TMPDIR to one that you can write to");
}

/// The line before the call's record. `report` knows by the time that the two belong together. What
/// would make it longer than a record, the outermost frames, is left out.
std::string native_record(const NativeStack& native, const WriterFields& writer) {
  constexpr size_t kMaxModule = 4096;
  char ts[32] = {};
  snprintf(ts, sizeof ts, "%.6f", writer.ts);
  std::string record = std::string(kRecordMark) + R"("ts":)" + ts + R"(,"pid":)" +
                       std::to_string(writer.pid) + R"(,"event":"native",)";
  if (native.frames.empty()) return record + R"("native_missing":")" + native.cut + "\"}\n";
  std::string buffer(6 * kMaxModule, '\0');
  const char* separator = R"("native":[")";
  constexpr std::string_view kEnd = "]}\n";
  for (const NativeFrame& frame : native.frames) {
    Text out(buffer.data(), buffer.size());
    out.put(separator).put_json(frame.module, kMaxModule);
    out.put("+").put_hex(frame.offset).put("\"");
    if (record.size() + out.view().size() + kEnd.size() > kMaxRecord) break;
    record += out.view();
    separator = ",\"";
  }
  return record.append(kEnd);
}

/// Returns an absolute path, because the programs may run in any directory.
std::string temporary_directory() {
  const char* given = getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): one thread
  const std::string directory = given != nullptr && *given != '\0' ? given : "/tmp";
  char path[PATH_MAX];
  if (realpath(directory.c_str(), path) == nullptr) {
    refuse(directory, std::string(": ") + strerror(errno));
  }
  // The guard would replace these marks in the path.
  for (const char* mark : {"%p", "%u", "%h"}) {
    if (strstr(path, mark) != nullptr)
      refuse(directory, std::string(": it has ") + mark + " in its path");
  }
  return path;
}

}  // namespace

PrivateReport::PrivateReport(std::string copy)
    : copy_(std::move(copy)),
      lines_([this](std::string_view line) { records_.add(line, copy_.take({})); }) {
  const std::string where = temporary_directory();
  directory_ = where + "/cudaguard-XXXXXX";
  if (directory_.size() + 24 > kMaxReportPath) refuse(where, ": File name too long");
  if (mkdtemp(directory_.data()) == nullptr) refuse(where, std::string(": ") + strerror(errno));
  // A process may become another user. Only processes that inherited the name can find the file.
  chmod(directory_.c_str(), S_IRWXU | S_IXGRP | S_IXOTH);
  constexpr std::string_view kEnd = ".jsonl";
  file_ = directory_ + "/report-XXXXXX" + std::string(kEnd);
  const int fd = mkostemps(file_.data(), kEnd.size(), O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    rmdir(directory_.c_str());
    refuse(where, std::string(": ") + strerror(error));
  }
  fchmod(fd, S_IRUSR | S_IWUSR | S_IWGRP | S_IWOTH);
  struct stat status = {};
  if (fstat(fd, &status) == 0) inode_ = status.st_ino;
  close(fd);
}

PrivateReport::~PrivateReport() {
  // A guard may create the file again between unlink() and rmdir().
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    unlink(file_.c_str());
    if (rmdir(directory_.c_str()) == 0 || errno != ENOTEMPTY) return;
  }
}

void PrivateReport::read_on() noexcept {
  try {
    read_file();
  } catch (const std::exception&) {
    failed_ = true;
  }
}

void PrivateReport::finish() noexcept {
  read_on();
  try {
    lines_.finish();
  } catch (const std::exception&) {
    // Memory has run out, so one line is lost.
  }
  look_for_doubt();
}

/// Checks whether a guard can still write to the file.
void PrivateReport::look_for_doubt() {
  const int fd = open(file_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
  struct stat status = {};
  const bool open = fd >= 0 && fstat(fd, &status) == 0;
  if (!open || status.st_ino != inode_ || static_cast<uint64_t>(status.st_size) < offset_) {
    doubt_ = file_ + ", which holds the records, was removed or changed";
  } else if (write(fd, "\n", 1) != 1) {
    doubt_ = std::string("records can no longer be written: ") + strerror(errno);
  } else if ((status.st_mode & S_ISVTX) != 0) {  // append_report.cpp sets it
    doubt_ = kRecordsLost;
  } else if (failed_) {
    doubt_ = "the records could not be read to their end";
  }
  if (fd >= 0) close(fd);
}

void PrivateReport::read_file() {
  constexpr size_t kPart = 65536;
  const FileBytes file(file_);
  while (offset_ < file.size()) {
    std::string part(static_cast<size_t>(std::min<uint64_t>(kPart, file.size() - offset_)), '\0');
    if (!file.read(offset_, part.data(), part.size())) return;
    offset_ += part.size();
    lines_.feed(part);
  }
}

Records::Take UserReport::take(const NativeStack& native) {
  if (report_.empty()) return {};
  return [this, &native](std::string_view record, const WriterFields& writer,
                         const CallFields& /*call*/) {
    std::string lines = native.is_known() ? native_record(native, writer) : "";
    append(lines.append(record).append("\n"), static_cast<uint32_t>(writer.pid));
  };
}

void UserReport::append(const std::string& text, uint32_t pid) {
  if (report_ == "/dev/stderr") return write_stderr(text);
  // One write per record, like the guard, because other programs may append to the same file.
  int error = 0;
  const int fd = open_report(report_, static_cast<int>(pid), error);
  const ssize_t written = fd < 0 ? -1 : write(fd, text.data(), text.size());
  if (fd >= 0) {
    error = written < 0 ? errno : ENOSPC;
    close(fd);
  }
  if (written == static_cast<ssize_t>(text.size())) return;
  if (!failed_) {
    print_message("records are missing in the report " + in_quotes(report_) + ": " +
                  why_no_report(error, true));
  }
  failed_ = true;
}

}  // namespace cudaguard::launcher
