// SPDX-License-Identifier: Apache-2.0
// The few system calls that the guard makes directly, because libc's wrappers change errno, and its
// fstat is versioned GLIBC_2.33. Each returns the kernel's result: a negative errno value on
// failure. Thread-safe, async-signal-safe, callable before constructors.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

extern "C" [[gnu::weak]] const char* gnu_get_libc_version();

namespace cudaguard::sys {

/// False in a musl program. Such a program can preload the guard, but it cannot load libraries that
/// are linked to glibc, and musl gives constructors no arguments.
inline bool is_glibc() { return &gnu_get_libc_version != nullptr; }

inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                 long f = 0) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#else
#error "cudaguard knows x86-64 and AArch64"
#endif
}

inline long word(const void* pointer) { return reinterpret_cast<long>(pointer); }

[[gnu::noinline]] inline int open(const char* path, int flags, int mode = 0) {
  return static_cast<int>(call(SYS_openat, AT_FDCWD, word(path), flags, mode));
}
/// Opens a file of an open directory.
inline int open_at(int directory, const char* name, int flags, int mode = 0) {
  return static_cast<int>(call(SYS_openat, directory, word(name), flags, mode));
}
inline int close(int fd) { return static_cast<int>(call(SYS_close, fd)); }
inline long read(int fd, void* to, size_t size) {
  return call(SYS_read, fd, word(to), static_cast<long>(size));
}
inline long read_at(int fd, void* to, size_t size, long at) {
  return call(SYS_pread64, fd, word(to), static_cast<long>(size), at);
}
/// An entry of a directory, as the kernel writes it (struct linux_dirent64).
struct DirectoryEntry {
  uint64_t inode;
  int64_t next;
  uint16_t length;
  uint8_t type;
  char name[];
};
/// Reads entries of a directory.
inline long list(int fd, void* to, size_t size) {
  return call(SYS_getdents64, fd, word(to), static_cast<long>(size));
}
inline long write(int fd, const void* from, size_t size) {
  return call(SYS_write, fd, word(from), static_cast<long>(size));
}
inline int fstat(int fd, struct stat* to) {
  return static_cast<int>(call(SYS_fstat, fd, word(to)));
}
inline int fcntl(int fd, int command) { return static_cast<int>(call(SYS_fcntl, fd, command)); }
inline int stat(const char* path, struct stat* to) {
  return static_cast<int>(call(SYS_newfstatat, AT_FDCWD, word(path), word(to), 0));
}
/// Looks at a symbolic link itself.
inline int lstat_at(int directory, const char* name, struct stat* to) {
  return static_cast<int>(
      call(SYS_newfstatat, directory, word(name), word(to), AT_SYMLINK_NOFOLLOW));
}
inline int lstat(const char* path, struct stat* to) { return lstat_at(AT_FDCWD, path, to); }
inline long readlink(const char* path, char* to, size_t size) {
  return call(SYS_readlinkat, AT_FDCWD, word(path), word(to), static_cast<long>(size));
}
/// True if a message can be written to the descriptor at once. False for a pipe that is full or has
/// no reader.
inline bool takes_now(int fd) {
  struct {
    int fd;
    short events;
    short revents;
  } wanted = {fd, 4 /* POLLOUT */, 0};
  timespec none = {};
  return call(SYS_ppoll, word(&wanted), 1, word(&none), 0, 8) == 1 && wanted.revents == 4;
}

/// Writes to a socket; neither waits nor raises SIGPIPE. `address` may be null.
inline long send_now(int fd, const void* from, size_t size, const void* address = nullptr,
                     size_t address_size = 0) {
  constexpr long kFlags = 0x4040;  // MSG_DONTWAIT | MSG_NOSIGNAL
  return call(SYS_sendto, fd, word(from), static_cast<long>(size), kFlags, word(address),
              static_cast<long>(address_size));
}

/// A write(2) that cannot kill the program. It blocks SIGPIPE and SIGXFSZ (no reader, a limit on
/// file sizes) while it writes, and discards a signal that it raised.
inline long quiet_write(int fd, const void* from, size_t size) {
  constexpr uint64_t kHeld = 1ULL << (13 - 1) | 1ULL << (25 - 1);
  uint64_t before = 0;
  const long held =
      call(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, word(&kHeld), word(&before), sizeof before);
  const long written = write(fd, from, size);
  if (held != 0) return written;
  // A signal that the program has blocked may be its own, so it stays pending.
  const uint64_t ours = kHeld & ~before;
  if (written < 0 && ours != 0) {
    timespec none = {};
    call(SYS_rt_sigtimedwait, word(&ours), 0, word(&none), sizeof ours);
  }
  call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, word(&before), 0, sizeof before);
  return written;
}
/// Blocks signals, so that no handler can leave this code by a jump, and no signal ends the process
/// in it. Not blocked are those that the code itself may raise: a fault, a filter's SIGSYS, and the
/// two of quiet_write().
class HeldSignals {
 public:
  explicit HeldSignals(bool wanted) {
    constexpr auto kBit = [](int number) { return uint64_t{1} << (number - 1); };
    constexpr uint64_t kHeld =
        ~(kBit(4 /* ILL */) | kBit(5 /* TRAP */) | kBit(7 /* BUS */) | kBit(8 /* FPE */) |
          kBit(11 /* SEGV */) | kBit(13 /* PIPE */) | kBit(25 /* XFSZ */) | kBit(31 /* SYS */));
    held_ = wanted && call(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, word(&kHeld), word(&before_),
                           sizeof before_) == 0;
  }
  ~HeldSignals() {
    if (held_) call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, word(&before_), 0, sizeof before_);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  uint64_t before_ = 0;
  bool held_ = false;
};

inline uint32_t getpid() { return static_cast<uint32_t>(call(SYS_getpid)); }
inline uint32_t getppid() { return static_cast<uint32_t>(call(SYS_getppid)); }
inline uint32_t gettid() { return static_cast<uint32_t>(call(SYS_gettid)); }
inline timespec now() {
  timespec time = {};
  call(SYS_clock_gettime, CLOCK_REALTIME, word(&time));
  return time;
}

// The compiler may not repeat these two in each caller, because the guard must stay small.

/// Returns zeroed private memory, or null.
[[gnu::noinline]] inline void* map(size_t size) {
  const long at = call(SYS_mmap, 0, static_cast<long>(size), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at < 0 && at > -4096 ? nullptr : reinterpret_cast<void*>(at);
}
[[gnu::noinline]] inline void unmap(void* at, size_t size) {
  call(SYS_munmap, word(at), static_cast<long>(size));
}

/// Makes the kernel zero these pages in a forked child (Linux 4.14). Returns false if it cannot.
inline bool wipe_on_fork(void* at, size_t size) {
  return call(SYS_madvise, word(at), static_cast<long>(size), 18 /* MADV_WIPEONFORK */) == 0;
}

/// Zeroed work space in pages of its own, which are unmapped at the end of the scope. For rare code
/// that needs more than the smallest thread stack (16 KiB) or a signal handler has.
template <typename T>
class Mapped {
 public:
  Mapped() : at_(static_cast<T*>(map(sizeof(T)))) {}
  ~Mapped() {
    if (at_ != nullptr) unmap(at_, sizeof(T));
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  explicit operator bool() const { return at_ != nullptr; }
  T* operator->() const { return at_; }
  T& operator*() const { return *at_; }

 private:
  T* at_;
};

/// An open file that closes itself.
class File {
 public:
  explicit File(const char* path, int flags, int mode = 0) : fd_(open(path, flags, mode)) {}
  /// Takes a descriptor, or a negative errno value.
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool ok() const { return fd_ >= 0; }
  int error() const { return -fd_; }  ///< errno value, if !ok()
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace cudaguard::sys
