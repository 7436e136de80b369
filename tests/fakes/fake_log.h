// SPDX-License-Identifier: Apache-2.0
// Writes one line for each call with one write(), and uses async-signal-safe functions only.
#ifndef CUDAGUARD_TESTS_FAKES_FAKE_LOG_H
#define CUDAGUARD_TESTS_FAKES_FAKE_LOG_H

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void fake_log(const char* prefix, const char* name) {
  const int saved = errno;
  const char* path = getenv("CG_FAKE_LOG");
  if (path != NULL) {
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) {
      char line[256];
      size_t used = 0;
      for (; *prefix != '\0' && used < sizeof line - 1; ++prefix) line[used++] = *prefix;
      for (; *name != '\0' && used < sizeof line - 1; ++name) line[used++] = *name;
      line[used++] = '\n';
      const ssize_t written = write(file, line, used);
      (void)written;
      close(file);
    }
  }
  errno = saved;
}

// A function with these parameters that writes its line and gives this answer.
#define FAKE(name, answer, ...) \
  int name(__VA_ARGS__) {       \
    fake_log("", #name);        \
    return answer;              \
  }

#endif
