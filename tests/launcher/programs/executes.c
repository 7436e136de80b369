// SPDX-License-Identifier: Apache-2.0
// executes WAY WORDS: executes WORDS in this way, waits, and ends with their exit code. If that
// fails, it prints the errno value in words, and ends with 99.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;
static char** g_words;

static int failed(void) {
  printf("%s\n", strerror(errno));
  fflush(stdout);
  return 99;
}

static int ends(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return failed();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static void* run(void* unused) {
  execv(g_words[0], g_words);
  _exit(failed());
  return unused;
}

/* Changes one character of a variable, again and again. */
static void* change(void* variable) {
  volatile char* at = variable;
  const char one = *at;
  for (;;) *at = *at == one ? '_' : one;
  return NULL;
}

static int copy_of(const char* path) {
  const int from = open(path, O_RDONLY | O_CLOEXEC);
  const int to = memfd_create("copy", MFD_CLOEXEC);
  struct stat status;
  if (from < 0 || to < 0 || fstat(from, &status) != 0) return -1;
  for (off_t at = 0; at < status.st_size;) {
    char part[65536];
    const ssize_t got = pread(from, part, sizeof part, at);
    if (got <= 0 || write(to, part, got) != got) return -1;
    at += got;
  }
  return to;
}

int main(int argc, char** argv) {
  if (argc < 3) return 97;
  const char* way = argv[1];
  char** words = g_words = argv + 2;
  char text[64];
  if (strcmp(way, "exec") == 0) {
    execv(words[0], words);
  } else if (strcmp(way, "child") == 0) {
    const pid_t child = fork();
    if (child != 0) return ends(child);
    execv(words[0], words);
    _exit(failed());
  } else if (strcmp(way, "vfork") == 0) {
    const pid_t child = vfork();
    if (child != 0) return ends(child);
    execv(words[0], words);
    _exit(99);
  } else if (strcmp(way, "spawn") == 0) {
    pid_t child = -1;
    errno = posix_spawn(&child, words[0], NULL, NULL, words, environ);
    return errno != 0 ? failed() : ends(child);
  } else if (strcmp(way, "thread") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    for (;;) pause();
  } else if (strcmp(way, "changing") == 0 || strcmp(way, "changes_preload") == 0) {
    pthread_t thread;
    static char variable[] = "CHANGING=a";
    putenv(variable);
    char* const preload = getenv("LD_PRELOAD");
    pthread_create(&thread, NULL, change, way[6] == 's' && preload != NULL ? preload : variable);
    execv(words[0], words);
  } else if (strcmp(way, "fexecve") == 0) {
    fexecve(open(words[0], O_RDONLY | O_CLOEXEC), words, environ);
  } else if (strcmp(way, "empty_path") == 0 || strcmp(way, "empty_no_link") == 0) {
    const int file = open(words[0], O_PATH | O_CLOEXEC);
    const int follows = strcmp(way, "empty_path") == 0 ? 0 : AT_SYMLINK_NOFOLLOW;
    syscall(SYS_execveat, file, "", words, environ, AT_EMPTY_PATH | follows);
  } else if (strcmp(way, "no_link") == 0) {
    snprintf(text, sizeof text, "/proc/self/fd/%d", open(words[0], O_RDONLY));
    syscall(SYS_execveat, AT_FDCWD, text, words, environ, AT_SYMLINK_NOFOLLOW);
  } else if (strcmp(way, "directory") == 0) {
    char* slash = strrchr(words[0], '/');
    *slash = '\0';
    const int directory = open(words[0], O_PATH | O_CLOEXEC);
    *slash = '/';
    syscall(SYS_execveat, directory, slash + 1, words, environ, 0);
  } else if (strcmp(way, "check") == 0) {
    const int kCheck = 0x10000; /* AT_EXECVE_CHECK, Linux 6.14 */
    syscall(SYS_execveat, AT_FDCWD, words[0], words, environ, kCheck);
    return 7;
  } else if (strcmp(way, "wrong_flag") == 0) {
    syscall(SYS_execveat, AT_FDCWD, words[0], words, environ, 1);
  } else if (strcmp(way, "relative") == 0) {
    char* slash = strrchr(words[0], '/');
    *slash = '\0';
    if (chdir(words[0]) != 0) return failed();
    *slash = '/';
    execv(slash + 1, words);
  } else if (strcmp(way, "memfd") == 0) {
    fexecve(copy_of(words[0]), words, environ);
  } else if (strcmp(way, "descriptor") == 0) {
    snprintf(text, sizeof text, "/proc/self/fd/%d", open(words[0], O_RDONLY));
    execv(text, words);
  } else if (strcmp(way, "large") == 0 || strcmp(way, "too_large") == 0) {
    /* Either many variables of 1.5 MB in all, or one that is longer than the kernel takes. */
    const int large = way[0] == 'l';
    static char one[140000];
    memset(one, 'x', large ? 1000 : sizeof one - 1);
    for (int i = 0; i < (large ? 1500 : 1); ++i) {
      snprintf(text, sizeof text, "LARGE_%d", i);
      setenv(text, one, 1);
    }
    execv(words[0], words);
  } else if (strcmp(way, "too_many") == 0) {
    /* With their zero bytes and pointers, these words need more than a quarter of the stack. */
    const struct rlimit stack = {1 << 20, 1 << 20};
    static char* many[28001];
    setrlimit(RLIMIT_STACK, &stack);
    for (int i = 0; i < 28000; ++i) many[i] = "x";
    execv(words[0], many);
  } else if (strcmp(way, "fills") == 0) {
    /* Two words and what else is needed take exactly a quarter of the stack. */
    const struct rlimit stack = {1 << 20, 1 << 20};
    static char fill[2][1 << 17];
    char* all[] = {words[0], fill[0], fill[1], NULL};
    size_t rest = (1 << 18) - 2 * (strlen(words[0]) + 1) - 3 * sizeof(char*);
    for (char** one = environ; *one != NULL; ++one) rest -= strlen(*one) + 1 + sizeof(char*);
    memset(fill[0], 'x', rest / 2 - 1);
    memset(fill[1], 'x', rest - rest / 2 - 1);
    setrlimit(RLIMIT_STACK, &stack);
    execv(words[0], all);
  } else if (strcmp(way, "search") == 0) {
    setenv("PATH", "/no/1:/no/2:/etc:/no/3", 1);
    execvp(strrchr(words[0], '/') + 1, words);
    execv(words[0], words);
  } else if (strcmp(way, "written") == 0) {
    const int file = open(words[0], O_WRONLY | O_CLOEXEC);
    if (file < 0) return failed();
    execv(words[0], words);
  } else if (strcmp(way, "slow_end") == 0) {
    /* The end of a child takes long after its memory is gone, because it closes many files. */
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 20000 ? limit.rlim_max : 20000;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (open("/dev/null", O_RDONLY) >= 0) continue;
    for (int file = 3; file < 100; ++file) close(file);
    int code = 99;
    for (int i = 0; i < 10 && code == 99; ++i) {
      const pid_t child = fork();
      if (child == 0) execl(argv[0], argv[0], "exec", words[0], NULL);
      code = ends(child);
    }
    return code;
  } else if (strcmp(way, "bad_pointer") == 0) {
    syscall(SYS_execve, 8, words, environ);
  } else {
    return 97;
  }
  return failed();
}
