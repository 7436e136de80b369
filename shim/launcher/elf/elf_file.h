// SPDX-License-Identifier: Apache-2.0
// Reads an ELF file's own description. The file is untrusted: truncated, damaged, or malicious.
// Every offset is checked against the file before it is used.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// This machine's values in an ELF header.
#if defined(__x86_64__)
inline constexpr uint16_t kMachine = EM_X86_64;
inline constexpr uint16_t kOlderMachine = EM_386;  ///< whose programs it also runs
#elif defined(__aarch64__)
inline constexpr uint16_t kMachine = EM_AARCH64;
inline constexpr uint16_t kOlderMachine = EM_ARM;
#endif

/// A file or a piece of memory.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  virtual ~Bytes() = default;
  virtual uint64_t size() const = 0;
  /// Reads all `count` bytes from `at` on. Returns false on failure.
  virtual bool read(uint64_t at, void* to, size_t count) const = 0;
};

/// An open file, read by system calls, because a mapping would fault if the file were truncated.
/// Small reads use the start of the file and the last other piece that was read, because headers
/// and tables are read entry by entry.
class FileBytes : public Bytes {
 public:
  explicit FileBytes(const std::string& path);
  ~FileBytes() override;
  /// 0, or the reason why the file cannot be read (errno).
  int error() const { return error_; }
  uint64_t size() const override { return size_; }
  bool read(uint64_t at, void* to, size_t count) const override;

 private:
  bool read_all(uint64_t at, char* to, size_t count) const;
  struct Piece {
    uint64_t at = 0;
    size_t size = 0;
    std::unique_ptr<char[]> bytes;
  };
  mutable Piece start_;
  mutable Piece last_;
  int fd_ = -1;
  int error_ = 0;
  uint64_t size_ = 0;
};

// A linker makes far shorter names; a file that claims more is not worth the memory.
inline constexpr size_t kLongestName = 4096;

/// The string that starts at `at` and ends before `end`. Returns false if it does not end there, or
/// is longer than any name.
bool read_string(const Bytes& file, uint64_t at, uint64_t end, std::string& to);

struct ElfFacts {
  bool is_elf = false;  ///< the file starts with the ELF magic
  std::string damage;   ///< a clause: "its program header is cut short"; empty: undamaged
  bool is_64 = false;
  bool little_endian = false;
  uint16_t machine = 0;           ///< EM_*, valid if little_endian
  uint16_t type = 0;              ///< ET_EXEC, ET_DYN; 0: not read
  std::vector<Elf64_Phdr> loads;  ///< PT_LOAD
  std::string interpreter;        ///< PT_INTERP; empty: static, or ld.so itself
  std::string soname;
  std::vector<std::string> needed;
  std::string run_path;        ///< DT_RUNPATH
  bool steers_search = false;  ///< by other means than DT_RUNPATH: DT_RPATH, filters, auditors...
  uint64_t loaded_end = 0;     ///< no byte of the file after this offset is loaded
  uint64_t gnu_hash = 0;       ///< offset in the file of DT_GNU_HASH's table; 0: none
};

/// Reads only the header, and the interpreter of a 32-bit file, unless the file is for a 64-bit
/// little-endian machine.
ElfFacts read_elf(const Bytes& file);

/// An open file and what it says of itself.
struct ElfFile {
  explicit ElfFile(const std::string& path) : bytes(path), facts(read_elf(bytes)) {}
  FileBytes bytes;
  ElfFacts facts;
};

/// The most bytes to search, because a crafted file may claim any size.
inline constexpr uint64_t kMostSearched = uint64_t{512} << 20;

/// True if `text` (at most 64 bytes) is in the file, before `end`.
bool contains(const Bytes& file, std::string_view text, uint64_t end = kMostSearched);

}  // namespace cudaguard::launcher
