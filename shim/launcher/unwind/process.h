// SPDX-License-Identifier: Apache-2.0
// Gives unwinding the memory and the mapped files of another process. Unwinding opens none of the
// process's files, so a chroot, a deleted file or a mount namespace makes no difference.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// Appends the file, until `to` has `most` bytes. Returns 0 or errno.
int read_file(const std::string& path, std::string& to, size_t most);

/// A process; in unit tests a made-up one. Every byte may be hostile.
class ProcessView {
 public:
  ProcessView() = default;
  ProcessView(const ProcessView&) = delete;
  ProcessView& operator=(const ProcessView&) = delete;
  virtual ~ProcessView() = default;
  /// Copies all `size` bytes from `address` on, or returns false.
  virtual bool read(uint64_t address, void* to, size_t size) = 0;
  /// The text of /proc/PID/maps; empty if it cannot be read, for the reason in errno.
  virtual std::string maps() = 0;
};

/// A process whose thread waits. Keeps the pages that it has read, so use a new one for each stack.
class WaitingProcess : public ProcessView {
 public:
  /// `thread` is its id for this process. `in_proc`: /proc has the thread under this id, too.
  explicit WaitingProcess(pid_t thread, bool in_proc = true) : thread_(thread), in_proc_(in_proc) {}
  ~WaitingProcess() override;
  bool read(uint64_t address, void* to, size_t size) override;
  std::string maps() override;
  /// True if its memory was read through /proc, because process_vm_readv(2) is refused.
  bool is_read_through_proc() const { return memory_ >= 0; }
  /// Reads the pages of the first of these addresses by one system call, up to a quarter of the
  /// pages that are kept. Returns 0 or errno: EFAULT if some are not mapped.
  int fetch(std::span<const uint64_t> addresses);
  bool has(uint64_t address) const { return pages_.contains(address - address % kPageSize); }
  /// Appends the text at `address` up to its null byte, or `most` bytes of it.
  bool read_text(uint64_t address, size_t most, std::string& to);

 private:
  static constexpr uint64_t kPageSize = 4096;
  /// A stack of 20 frames of CPython takes 36 pages. A hostile stack can ask for any number.
  static constexpr size_t kMostPages = 256;
  using Page = std::array<char, kPageSize>;
  const Page* page_at(uint64_t address);
  bool read_page(uint64_t address, Page& page);

  pid_t thread_;
  bool in_proc_;
  int memory_ = -1;                 ///< /proc/PID/mem, if process_vm_readv is refused
  std::map<uint64_t, Page> pages_;  ///< by address
};

/// Reads a process's memory, but no more than a number of words: hostile tables could ask for any
/// amount of work.
class WordReader {
 public:
  WordReader(ProcessView& process, size_t most_words) : process_(process), left_(most_words) {}

  bool read(uint64_t address, void* to, size_t size) {
    const size_t words = size / sizeof(uint64_t) + 1;
    if (words > left_) return false;
    left_ -= words;
    return process_.read(address, to, size);
  }
  template <typename T = uint64_t>
  std::optional<T> word(uint64_t address) {
    T value = {};
    return read(address, &value, sizeof value) ? std::optional<T>(value) : std::nullopt;
  }

 private:
  ProcessView& process_;
  size_t left_;
};

/// Code of a file that is mapped executable.
struct MappedCode {
  std::string_view file;  ///< as maps names it: "/lib/libc.so.6", "[vdso]"; empty if there is none
  uint64_t offset = 0;    ///< in the file
  uint64_t tables = 0;    ///< address of .eh_frame_hdr in the process; 0 if there is none
};

/// The mappings of a process at one moment. They change when the process loads a library, so use
/// one image for one stack only.
class ProcessImage {
 public:
  /// `maps` is the text of /proc/PID/maps.
  explicit ProcessImage(std::string maps);
  ProcessImage(const ProcessImage&) = delete;  // The mappings refer to the text.
  ProcessImage& operator=(const ProcessImage&) = delete;
  bool empty() const { return mappings_.empty(); }

  struct Mapping {
    uint64_t from = 0;
    uint64_t to = 0;
    uint64_t offset = 0;
    bool executable = false;
    std::string_view file;  ///< "/lib/libc.so.6", "[vdso]"; empty if there is none
  };
  const std::vector<Mapping>& mappings() const { return mappings_; }
  MappedCode find(WordReader& memory, uint64_t address) const;
  /// The bits that an address of this process can have. The other bits of an AArch64 return address
  /// may hold its signature (pointer authentication).
  uint64_t address_bits() const;

 private:
  std::string text_;
  std::vector<Mapping> mappings_;  ///< sorted, as the kernel lists them
};

}  // namespace cudaguard::launcher
