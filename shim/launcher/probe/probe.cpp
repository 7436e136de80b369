// SPDX-License-Identifier: Apache-2.0
// cudaguard-probe: asks the driver that ld.so finds, for `cudaguard doctor`, which is static and
// cannot. Linked to libcuda.so.1 and libc alone, with a start of its own: glibc 2.34's would not
// let it run on an older one. A line per answer, each written at once, so that a hang or a crash
// leaves what came before.
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

// All weak: an older driver, or what only has its name, may lack any of them.
extern "C" {
[[gnu::weak]] int cuInit(unsigned flags);
[[gnu::weak]] int cuDriverGetVersion(int* version);
[[gnu::weak]] int cuDeviceGetCount(int* count);
[[gnu::weak]] int cuDeviceGet(int* device, int ordinal);
[[gnu::weak]] int cuDeviceGetName(char* name, int size, int device);
[[gnu::weak]] int cuDeviceGetUuid(unsigned char* uuid, int device);
[[gnu::weak]] int cuDeviceGetUuid_v2(unsigned char* uuid, int device);
}

namespace {

constexpr int kMostGpus = 256;

/// "\ncudaguard-probe KEY ...\n": the driver may have left half a line of its own.
class Line {
 public:
  explicit Line(const char* key) {
    put("\ncudaguard-probe ");
    put(key);
  }
  ~Line() {
    text_[size_++] = '\n';
    // Nobody is left to tell if this fails.
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, text_, size_);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void put(const char* text) {
    for (; *text != '\0'; ++text) put_byte(*text);
  }
  void put_number(int64_t value) {
    char digits[24];
    size_t at = sizeof digits;
    const bool negative = value < 0;
    uint64_t rest = negative ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest > 0);
    put(negative ? " -" : " ");
    while (at < sizeof digits) put_byte(digits[at++]);
  }
  void put_uuid(const char* prefix, const unsigned char* uuid) {
    put(prefix);
    for (int i = 0; i < 16; ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) put_byte('-');
      put_byte("0123456789abcdef"[uuid[i] >> 4]);
      put_byte("0123456789abcdef"[uuid[i] & 15]);
    }
  }

 private:
  void put_byte(char c) {
    if (size_ + 1 == sizeof text_) return;
    text_[size_] = c == '\n' && size_ > 0 ? '?' : c;
    ++size_;
  }
  char text_[512];
  size_t size_ = 0;
};

int64_t microseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

bool differ(const unsigned char* a, const unsigned char* b) {
  for (int i = 0; i < 16; ++i) {
    if (a[i] != b[i]) return true;
  }
  return false;
}

/// "gpu UUID NAME"; "-" for a UUID that is not known.
void tell_gpu(int ordinal) {
  int device = 0;
  char name[256] = {};
  unsigned char uuid[16] = {};
  unsigned char part[16] = {};
  Line line("gpu ");
  if (cuDeviceGet == nullptr || cuDeviceGet(&device, ordinal) != 0) return line.put("-");
  const bool known = cuDeviceGetUuid != nullptr && cuDeviceGetUuid(uuid, device) == 0;
  // Of a MIG device the second form gives the part's, the first one the GPU's.
  const bool mig = known && cuDeviceGetUuid_v2 != nullptr &&
                   cuDeviceGetUuid_v2(part, device) == 0 && differ(uuid, part);
  if (known) {
    line.put_uuid(mig ? "MIG-" : "GPU-", mig ? part : uuid);
  } else {
    line.put("-");
  }
  if (cuDeviceGetName == nullptr || cuDeviceGetName(name, sizeof name - 1, device) != 0) return;
  line.put(" ");
  line.put(name);
}

void tell(const char* key, int64_t first, int64_t second) {
  Line line(key);
  line.put_number(first);
  line.put_number(second);
}

int probe() {
  if (cuInit == nullptr) {
    const Line line("no-cuInit");
    return 1;
  }
  int version = 0;
  if (cuDriverGetVersion != nullptr) {
    const int answer = cuDriverGetVersion(&version);
    tell("version", answer, version);
  }
  { const Line line("asks"); }
  const int64_t start = microseconds();
  const int answer = cuInit(0);
  tell("init", answer, microseconds() - start);
  if (answer != 0 || cuDeviceGetCount == nullptr) return 0;
  int count = 0;
  const int counted = cuDeviceGetCount(&count);
  tell("count", counted, count);
  for (int i = 0; counted == 0 && i < count && i < kMostGpus; ++i) tell_gpu(i);
  return 0;
}

}  // namespace

extern "C" [[noreturn, gnu::used, gnu::visibility("hidden")]] void cudaguard_probe_main() {
  // Without the driver's own farewell, which may hang too.
  _exit(probe());
}

#if defined(__x86_64__)
asm(".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    "  endbr64\n"
    "  xorl %ebp, %ebp\n"
    "  andq $-16, %rsp\n"
    "  call cudaguard_probe_main\n"
    "  ud2\n"
    ".size _start, . - _start\n");
#elif defined(__aarch64__)
asm(".globl _start\n"
    ".type _start, %function\n"
    "_start:\n"
    "  hint #34\n"  // bti c
    "  mov x29, #0\n"
    "  mov x30, #0\n"
    "  bl cudaguard_probe_main\n"
    "  brk #1\n"
    ".size _start, . - _start\n");
#endif
