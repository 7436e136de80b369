// SPDX-License-Identifier: Apache-2.0
// gpu_opens LOG PROGRAM [ARGUMENT...]: runs a program and records, in strace's format, which files
// it and its children open and which programs they execute. A machine with a GPU may have no
// strace.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 4096, kPath = 1024 };

// A thread that is inside one of the calls below.
static struct thread {
  pid_t id;
  const char* call;
  char path[kPath];
} g_threads[kThreads];

static const struct {
  uint64_t number;
  const char* name;
  int path;  // index of the argument that is a path
} kCalls[] = {
#ifdef SYS_open
    {SYS_open, "open", 0},       {SYS_mknod, "mknod", 0},
#endif
    {SYS_openat, "openat", 1},
#ifdef SYS_openat2
    {SYS_openat2, "openat2", 1},
#endif
    {SYS_mknodat, "mknodat", 1}, {SYS_execve, "execve", 0}, {SYS_execveat, "execveat", 1},
};

static FILE* g_log;

static struct thread* find(pid_t id) {
  struct thread* free_slot = NULL;
  for (int i = 0; i < kThreads; ++i) {
    if (g_threads[i].id == id) return &g_threads[i];
    if (g_threads[i].id == 0 && free_slot == NULL) free_slot = &g_threads[i];
  }
  return free_slot;
}

// Reads as far as possible, because a path may end shortly before an unmapped page.
static void read_path(pid_t id, uint64_t address, char* path) {
  for (size_t used = 0; used < kPath - 1;) {
    const uint64_t at = address + used;
    size_t size = 4096 - at % 4096;
    if (size > kPath - 1 - used) size = kPath - 1 - used;
    const struct iovec local = {path + used, size};
    const struct iovec remote = {(void*)(uintptr_t)at, size};
    const ssize_t got = process_vm_readv(id, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      path[used] = '\0';
      return;
    }
    if (memchr(path + used, '\0', (size_t)got) != NULL) return;
    used += (size_t)got;
    path[used] = '\0';
  }
}

static void enter(pid_t id, const struct __ptrace_syscall_info* info) {
  for (size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i) {
    if (kCalls[i].number != info->entry.nr) continue;
    struct thread* thread = find(id);
    if (thread == NULL) return;
    thread->id = id;
    thread->call = kCalls[i].name;
    read_path(id, info->entry.args[kCalls[i].path], thread->path);
    for (char* letter = thread->path; *letter != '\0'; ++letter) {
      if (*letter == '"' || *letter == '\\' || (unsigned char)*letter < ' ') *letter = '?';
    }
    return;
  }
}

static void print_end(struct thread* thread, const char* answer) {
  fprintf(g_log, "%d %s(\"%s\") = %s\n", thread->id, thread->call, thread->path, answer);
  memset(thread, 0, sizeof *thread);
}

static void leave(pid_t id, const struct __ptrace_syscall_info* info) {
  struct thread* thread = find(id);
  if (thread == NULL || thread->id == 0) return;
  char answer[32];
  snprintf(answer, sizeof answer, "%lld", (long long)info->exit.rval);
  print_end(thread, answer);
}

static int on_stop(pid_t id, int status) {
  const int number = WSTOPSIG(status);
  if (number == (SIGTRAP | 0x80)) {
    struct __ptrace_syscall_info info;
    memset(&info, 0, sizeof info);
    if (ptrace(PTRACE_GET_SYSCALL_INFO, id, (void*)sizeof info, &info) > 0) {
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY) enter(id, &info);
      if (info.op == PTRACE_SYSCALL_INFO_EXIT) leave(id, &info);
    }
    return 0;
  }
  // This is an event, or the stop with which a new thread or process begins.
  if (status >> 16 != 0 || number == SIGSTOP) return 0;
  return number;
}

static int run(pid_t program) {
  int result = 1;
  int status = 0;
  const long wanted = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                      PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (waitpid(program, &status, __WALL) != program || !WIFSTOPPED(status) ||
      ptrace(PTRACE_SETOPTIONS, program, NULL, (void*)wanted) != 0) {
    return -1;
  }
  ptrace(PTRACE_SYSCALL, program, NULL, NULL);
  for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
    if (id <= 0) continue;
    if (WIFSTOPPED(status)) {
      ptrace(PTRACE_SYSCALL, id, NULL, (void*)(intptr_t)on_stop(id, status));
      continue;
    }
    struct thread* thread = find(id);
    // The thread ended inside a call: another thread called execve, or a signal killed it.
    if (thread != NULL && thread->id == id) print_end(thread, "?");
    if (id == program) result = status;
  }
  return result;
}

int main(int argc, char** argv) {
  if (argc < 3) return 125;
  g_log = fopen(argv[1], "we");
  if (g_log == NULL) return 125;
  const pid_t program = fork();
  if (program == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(125);
    raise(SIGSTOP);
    execvp(argv[2], argv + 2);
    _exit(127);
  }
  const int status = run(program);
  fclose(g_log);
  if (status == -1) return 125;
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
