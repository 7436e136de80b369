// SPDX-License-Identifier: Apache-2.0
// landlock [--lists] PATH... -- PROGRAM...: starts the program in a Landlock domain that reads and
// writes only below these paths, as sandboxes of coding agents do. With --lists, the domain also
// lists only these directories.
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct __attribute__((packed)) rule {
  uint64_t allowed;
  int32_t parent;
};

static int is_directory(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int main(int count, char** words) {
  const uint64_t files = 1 << 1 | 1 << 2;  // WRITE_FILE, READ_FILE
  const int lists = strcmp(words[1], "--lists") == 0;
  const uint64_t rights = lists ? files | 1 << 3 /* READ_DIR */ : files;
  const int ruleset = (int)syscall(444, &rights, sizeof rights, 0);
  int at = 1 + lists;
  for (; at < count && strcmp(words[at], "--") != 0; ++at) {
    const struct rule one = {is_directory(words[at]) ? rights : files, open(words[at], O_PATH)};
    if (syscall(445, ruleset, 1, &one, 0) != 0) return 2;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(446, ruleset, 0) != 0) return 3;
  close(ruleset);
  execvp(words[at + 1], words + at + 1);
  return 4;
}
