// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace cudaguard::launcher {

Pipe::Pipe() {
  int made[2];
  if (pipe2(made, O_CLOEXEC) != 0) return;
  for (int i = 0; i < 2; ++i) ends_[i] = fcntl(made[i], F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  close(made[0]);
  close(made[1]);
  errno = error;
}

Pipe::~Pipe() {
  close_end(0);
  close_end(1);
}

void Pipe::close_end(int which) {
  if (ends_[which] >= 0) close(ends_[which]);
  ends_[which] = -1;
}

}  // namespace cudaguard::launcher
