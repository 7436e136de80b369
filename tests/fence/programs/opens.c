// SPDX-License-Identifier: Apache-2.0
// opens: opens each of its arguments in every way, and prints for each the way, the path and
// "opened" or the name of the error. After --openat2-3, it opens one with openat2 and the mode 3,
// and prints the answer of an ioctl, too.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

static const char* name_of(int error) {
  static char text[32];
  snprintf(text, sizeof text, "errno=%d", error);
  switch (error) {
    case EACCES:
      return "EACCES";
    case ENOSYS:
      return "ENOSYS";
    case ENOTTY:
      return "ENOTTY";
    default:
      return text;
  }
}

static void print(const char* way, const char* path, long file) {
  printf("%s %s %s\n", way, path, file >= 0 ? "opened" : name_of(errno));
  if (file >= 0) close((int)file);
}

static long open_2(const char* path, unsigned long flags) {
  const unsigned long how[3] = {flags, 0, 0};
  return syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how);
}

/// Opens the path again by a descriptor that may neither read nor write.
static int reopen(const char* path, int flags) {
  char name[64];
  const int held = open(path, O_PATH);
  if (held < 0) return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", held);
  const int file = open(name, flags);
  const int error = errno;
  close(held);
  errno = error;
  return file;
}

static int by_link(const char* path) {
  char name[] = "/tmp/opens-XXXXXX";
  const int made = mkstemp(name);
  if (made < 0) return -1;
  close(made);
  unlink(name);
  if (symlink(path, name) != 0) return -1;
  const int file = open(name, O_RDONLY);
  const int error = errno;
  unlink(name);
  errno = error;
  return file;
}

static int directory_of(const char* path) {
  char directory[4096];
  snprintf(directory, sizeof directory, "%s", path);
  *strrchr(directory, '/') = '\0';
  return open(directory, O_RDONLY | O_DIRECTORY);
}

/// Opens it from its own directory.
static int relative(const char* path) {
  const int above = directory_of(path);
  if (above < 0) return -1;
  const int file = openat(above, strrchr(path, '/') + 1, O_RDONLY);
  const int error = errno;
  close(above);
  errno = error;
  return file;
}

/// Opens it by a handle.
static int by_handle(const char* path, int flags) {
  struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
  } handle = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
  int mount;
  const int above = directory_of(path);
  const int file = name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0) == 0
                       ? open_by_handle_at(above, &handle.head, flags)
                       : -1;
  const int error = errno;
  close(above);
  errno = error;
  return file;
}

/// Only root may, and only if the directory is in the same file system. The fence allows O_PATH.
static int may_by_handle(const char* path) {
  const int file = by_handle(path, O_PATH);
  if (file >= 0) close(file);
  return file >= 0;
}

int main(int count, char** paths) {
  if (count == 3 && strcmp(paths[1], "--openat2-3") == 0) {
    const long file = open_2(paths[2], O_ACCMODE);
    if (file >= 0) printf("ioctl %s\n", ioctl((int)file, 0x5401, 0) == 0 ? "0" : name_of(errno));
    print("openat2-3", paths[2], file);
    return 0;
  }
  for (int i = 1; i < count; ++i) {
    const char* const path = paths[i];
#ifdef SYS_open
    print("open", path, syscall(SYS_open, path, O_RDONLY));
    print("open-3", path, syscall(SYS_open, path, O_ACCMODE));
#endif
    print("openat", path, openat(AT_FDCWD, path, O_RDWR));
    print("openat-3", path, openat(AT_FDCWD, path, O_ACCMODE));
    print("write", path, openat(AT_FDCWD, path, O_WRONLY | O_APPEND));
    print("creat", path, open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666));
    print("openat2", path, open_2(path, O_RDWR));
    if (may_by_handle(path)) {
      print("handle", path, by_handle(path, O_RDWR));
      print("handle-3", path, by_handle(path, O_ACCMODE));
    }
    print("reopened", path, reopen(path, O_RDWR));
    print("reopened-3", path, reopen(path, O_ACCMODE));
    print("link", path, by_link(path));
    print("relative", path, relative(path));
  }
  return 0;
}
