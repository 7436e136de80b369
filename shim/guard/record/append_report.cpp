// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/record/append_report.h"

#include <cerrno>
#include <cstdint>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/guard/record/facts.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

namespace {

// O_NONBLOCK: a pipe without a reader must not stop the program. O_NOFOLLOW and, later, EMLINK: no
// symbolic or hard link in a shared directory may choose where this user writes.
constexpr int kAppend =
    O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;

/// Replaces %p, %u and %h. Returns false if the path is too long.
bool expand(std::string_view path, const ProcessFacts& facts, char* to, size_t size) {
  Text out(to, size - 1);
  char room[FactsRoom::kHost];
  // A start record has no host name, because reading the name takes as long as the rest. Only a
  // name with %h needs it.
  const bool wants_host = path.find('%') != std::string_view::npos;
  put_report_name(out, path,
                  {facts.pid.value, facts.uid.value,
                   wants_host ? read_host(room, sizeof room) : facts.host.value});
  to[out.view().size()] = '\0';
  return !out.cut();
}

int append(const sys::File& file, size_t limit, const ProcessFacts& facts, const Attempt& attempt,
           char* buffer) {
  Text record(buffer, limit);
  write_record(record, facts, attempt, limit);
  const long written = sys::quiet_write(file.fd(), record.view().data(), record.view().size());
  if (written < 0) return static_cast<int>(-written);
  return static_cast<size_t>(written) == record.view().size() ? 0 : ENOSPC;
}

int append_to_file(const ProcessFacts& facts, const Attempt& attempt, ReportRoom& room) {
  const sys::File file(room.path, kAppend, 0644);
  if (!file.ok()) return file.error();
  struct stat status = {};
  // A disk ignores O_APPEND: the record would overwrite its first block.
  if (sys::fstat(file.fd(), &status) != 0 || S_ISBLK(status.st_mode)) return EINVAL;
  if (S_ISREG(status.st_mode) && status.st_nlink > 1) return EMLINK;
  // On a pipe, more than PIPE_BUF bytes would mix with other processes' records.
  const size_t limit = S_ISFIFO(status.st_mode) ? kMaxLine : kMaxRecord;
  const int error = append(file, limit, facts, attempt, room.record);
  // A full disk still takes this bit, which means nothing else for a file. pytest's plug-in reads
  // it.
  if (error != 0 && S_ISREG(status.st_mode)) {
    sys::call(SYS_fchmod, file.fd(), status.st_mode | S_ISVTX);
  }
  return error;
}

/// Any user may create any name in a spool, so only a file that this user has created is written.
int append_to_spool(const ProcessFacts& facts, const Attempt& attempt, ReportRoom& room) {
  // With the slash, O_NOFOLLOW would follow a link.
  for (size_t end = std::string_view(room.path).size(); end > 1 && room.path[--end] == '/';) {
    room.path[end] = '\0';
  }
  uint32_t user = 0;
  if (!read_file_user(user)) return ENOENT;
  // O_PATH, because users cannot read the directory.
  const sys::File directory(room.path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (!directory.ok()) return directory.error();
  struct stat status = {};
  if (sys::fstat(directory.fd(), &status) != 0) return EBADF;
  const bool is_trusted = status.st_uid == 0 || status.st_uid == user;
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (!is_trusted || (others_write && (status.st_mode & S_ISVTX) == 0)) return kUnsafeDirectory;
  char name[48];
  Text out(name, sizeof name - 1);
  put_spool_name(out, user, facts.ts.seconds);
  name[out.view().size()] = '\0';
  const sys::File file(sys::open_at(directory.fd(), name, kAppend, 0600));
  const int error = file.ok() ? 0 : file.error();
  if (error != 0 && sys::lstat_at(directory.fd(), name, &status) != 0) return error;
  Text path(room.path, sizeof room.path - 1);
  path.put(std::string_view(room.path)).put("/").put(name);  // in place: begins with its own text
  room.path[path.view().size()] = '\0';
  room.has_file = true;
  // Another user's file with mode 0600 gives EACCES, their link ELOOP and so on.
  if (error != 0) return status.st_uid != user ? kAnothersFile : error;
  if (sys::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) return EINVAL;
  if (status.st_uid != user) return kAnothersFile;
  if (status.st_nlink > 1) return EMLINK;
  return append(file, kMaxRecord, facts, attempt, room.record);
}

/// Sends what syslog() would send. syslog() takes a lock, and waits if the socket is full.
int send_to_syslog(const ProcessFacts& facts, const Attempt& attempt, char* buffer) {
  constexpr size_t kMost = 8192;                    // rsyslog cuts longer messages
  constexpr int kUnix = 1;                          // AF_UNIX
  constexpr int kHow = 2 | O_NONBLOCK | O_CLOEXEC;  // SOCK_DGRAM
  struct {
    uint16_t family;
    char path[9];
  } const address = {kUnix, "/dev/log"};
  Text start(buffer, kMost);
  put_syslog_start(start, facts.pid.value, facts.ts.seconds);
  const size_t begun = start.view().size();
  Text record(buffer + begun, kMost - begun);
  write_record(record, facts, attempt, kMost - begun);
  const size_t size = begun + record.view().size() - 1;  // without the newline
  const sys::File socket(static_cast<int>(sys::call(SYS_socket, kUnix, kHow, 0)));
  if (!socket.ok()) return socket.error();
  const long sent = sys::send_now(socket.fd(), buffer, size, &address, sizeof address);
  if (sent == -EAGAIN) return ENOBUFS;
  return sent < 0 ? static_cast<int>(-sent) : 0;
}

}  // namespace

int append_to_report(std::string_view report, const ProcessFacts& facts, const Attempt& attempt,
                     ReportRoom& room) {
  if (report == kSyslog) return send_to_syslog(facts, attempt, room.record);
  if (!expand(report, facts, room.path, sizeof room.path)) return ENAMETOOLONG;
  return is_spool(report) ? append_to_spool(facts, attempt, room)
                          : append_to_file(facts, attempt, room);
}

}  // namespace cudaguard
