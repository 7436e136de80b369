// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

[[noreturn]] void refuse(const char* option, const std::string& file, const char* why) {
  throw Refusal(kRefused, std::string(option) + " " + in_quotes(file) + ": " + why);
}

int open_output(const char* option, const std::string& file) {
  // O_NONBLOCK: a pipe without a reader must not stop us.
  const int fd =
      open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (fd < 0) refuse(option, file, strerror(errno));
  return fd;
}

}  // namespace

void empty_output(const char* option, const std::optional<std::string>& file) {
  if (!file) return;
  // They are the program's.
  for (const std::string_view other : {"", "-", "/dev/stdout", "/dev/stderr"}) {
    if (*file == other) refuse(option, *file, "not accepted (accepted: a file)");
  }
  close(open_output(option, *file));
}

void write_output(const char* option, const std::string& file, const std::string& text) {
  const int fd = open_output(option, file);
  std::string_view rest = text;
  int error = 0;
  while (!rest.empty() && error == 0) {
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      error = written == 0 ? ENOSPC : errno;
    }
  }
  if (close(fd) != 0 && error == 0) error = errno;  // NFS says it here
  if (error != 0) refuse(option, file, strerror(error));
}

}  // namespace cudaguard::launcher
