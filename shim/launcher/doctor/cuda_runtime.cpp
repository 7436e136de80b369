// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/cuda_runtime.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>

namespace cudaguard::launcher {

namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kOverlap = 128;  // more than any mark and any piece of code below

/// A string of the runtime's, in two parts: whole, it would be in this executable too.
struct Mark {
  std::string_view start;
  std::string_view rest;  ///< with its zero byte
};

// The text of an error, a row of the table of callback names, and the library that it opens. All
// three are in the runtimes 11.1 to 13.5, also where the linker dropped unused sections; none of
// the driver, NVML, CUPTI, nvrtc, nvJitLink has the first two.
constexpr std::array<Mark, 3> kMarks = {
    Mark{"CUDA driver version is insufficient", {" for CUDA runtime version\0", 26}},
    Mark{"cudaD3D9", {"GetDevice\0", 10}}, Mark{"libcuda.so", {".1\0", 3}}};

/// Calls `use` with pieces that overlap; a match counts in the piece in which it starts before
/// kPiece. `use` returns false to stop. False: the file cannot be read.
template <typename Use>
bool for_each_piece(const Bytes& file, Use use) {
  std::string piece;
  const uint64_t end = std::min(file.size(), kMostSearched);
  for (uint64_t at = 0; at < end; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(kPiece + kOverlap, end - at)));
    if (!file.read(at, piece.data(), piece.size())) return false;
    if (!use(std::string_view(piece))) return true;
  }
  return true;
}

/// std::string_view's own find is many times slower.
size_t find_in(std::string_view piece, std::string_view what, size_t from) {
  const void* found = memmem(piece.data() + from, piece.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - piece.data());
}

bool has_mark(std::string_view piece, const Mark& mark) {
  for (size_t at = find_in(piece, mark.start, 0); at != std::string_view::npos;
       at = find_in(piece, mark.start, at + 1)) {
    if (piece.substr(at + mark.start.size()).starts_with(mark.rest)) return true;
  }
  return false;
}

bool has_marks(const Bytes& file) {
  std::array<bool, kMarks.size()> seen = {};
  const auto all = [&] { return std::find(seen.begin(), seen.end(), false) == seen.end(); };
  const bool read = for_each_piece(file, [&](std::string_view piece) {
    for (size_t i = 0; i < kMarks.size(); ++i) seen[i] = seen[i] || has_mark(piece, kMarks[i]);
    return !all();
  });
  return read && all();
}

uint32_t word_at(std::string_view code, size_t at) {
  uint32_t word = 0;
  memcpy(&word, code.data() + at, sizeof word);
  return word;
}

/// 12090 is 12.9. Other numbers in such code are no versions of the runtime: NCCL's 22800.
bool is_version(uint32_t value) {
  return value >= 5000 && value < 100000 && value % 10 == 0 && value % 1000 < 200;
}

using Found = std::map<uint32_t, unsigned>;

/// cudaRuntimeGetVersion(int*) is `if (version != NULL) { *version = 12090; ... }`, and so is the
/// driver's table of functions for tools: test %rdi,%rdi; je; movl $12090,(%rdi).
void look_x86_64(std::string_view piece, Found& found) {
  constexpr std::string_view kStart("\x48\x85\xff\x74", 4);
  constexpr size_t kLength = 11;
  for (size_t at = find_in(piece, kStart, 0); at < kPiece && at + kLength <= piece.size();
       at = find_in(piece, kStart, at + 1)) {
    if (piece[at + 5] != '\xc7' || piece[at + 6] != '\x07') continue;
    const uint32_t value = word_at(piece, at + 7);
    if (is_version(value)) ++found[value];
  }
}

/// mov w2, #12090; mov w0, #0; str w2, [x1]; ret.
void look_aarch64(std::string_view piece, Found& found) {
  constexpr std::string_view kEnd("\x00\x00\x80\x52\x22\x00\x00\xb9\xc0\x03\x5f\xd6", 12);
  for (size_t at = find_in(piece, kEnd, 0); at < kPiece + 4; at = find_in(piece, kEnd, at + 1)) {
    if (at < 4) continue;
    const uint32_t move = word_at(piece, at - 4);
    const uint32_t value = (move >> 5) & 0xffff;
    if ((move & 0xffe0001f) == 0x52800002 && is_version(value)) ++found[value];
  }
}

std::string find_version(const Bytes& file, uint16_t machine) {
  Found found;
  if (!for_each_piece(file, [&](std::string_view piece) {
        if (machine == EM_X86_64) look_x86_64(piece, found);
        if (machine == EM_AARCH64) look_aarch64(piece, found);
        return true;
      })) {
    return {};
  }
  // The runtime has it twice; a library around it may have a function like that once.
  if (found.size() > 1) std::erase_if(found, [](const auto& row) { return row.second < 2; });
  if (found.size() != 1) return {};
  const uint32_t value = found.begin()->first;
  return std::to_string(value / 1000) + "." + std::to_string(value % 1000 / 10);
}

}  // namespace

CudaRuntime find_cuda_runtime(const Bytes& file, uint16_t machine) {
  CudaRuntime runtime;
  runtime.found = has_marks(file);
  if (runtime.found) runtime.version = find_version(file, machine);
  return runtime;
}

}  // namespace cudaguard::launcher
