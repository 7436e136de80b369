// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/symbols.h"

#include <algorithm>
#include <csetjmp>
#include <string_view>

#include "policy/text.h"
#include "shim/launcher/elf/elf_symbols.h"

/// libstdc++'s own function (cp-demangle.c). __cxa_demangle has no limit, and 300 bytes can encode
/// a name that does not fit into memory.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled,
                                             void (*put)(const char*, size_t, void*), void* to);

namespace cudaguard::launcher {

namespace {

constexpr size_t kLongestName = 4096;
constexpr uint64_t kMostSource = uint64_t{32} << 20;
constexpr size_t kLongestLine = 1000;

struct Demangled {
  std::string name;
  std::jmp_buf full;
};

void put_demangled(const char* text, size_t size, void* to) {
  auto* out = static_cast<Demangled*>(to);
  out->name.append(text, size);
  // The skipped stack frames hold no object of ours and nothing that has to be freed.
  if (out->name.size() > kLongestName) std::longjmp(out->full, 1);  // NOLINT(cert-err52-cpp)
}

/// Returns the name unchanged if it is no C++ name.
std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return name;
  Demangled out;
  out.name.reserve(2 * kLongestName);
  // NOLINTNEXTLINE(cert-err52-cpp): the frames between are C's
  if (setjmp(out.full) != 0) return out.name + "...";
  if (__gcclibcxx_demangle_callback(name.c_str(), put_demangled, &out) != 0) return name;
  // Uses the common spelling of std::string.
  constexpr std::string_view kString =
      "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
  for (size_t at = 0; (at = out.name.find(kString, at)) != std::string::npos;) {
    out.name.replace(at, kString.size(), "std::string");
  }
  return out.name;
}

std::string without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return std::string(text);
}

}  // namespace

struct Symbols::Impl {
  struct File {
    explicit File(const std::string& path) : bytes(path), functions(bytes) {}
    FileBytes bytes;
    ElfFunctions functions;
  };
  std::map<std::string, File> files;
};

Symbols::Symbols() : impl_(std::make_unique<Impl>()) {}
Symbols::~Symbols() = default;

std::string Symbols::name_of(const NativeFrame& frame) {
  if (!frame.module.starts_with("/") || frame.offset == 0) return {};
  const auto& file = impl_->files.try_emplace(frame.module, frame.module).first->second;
  // The call precedes the return address, which may belong to the next function.
  return demangled(file.functions.name_at(file.bytes, frame.offset - 1));
}

std::string source_line(const std::string& file, uint32_t line) {
  constexpr size_t kPiece = size_t{64} << 10;
  const FileBytes bytes(file);
  if (bytes.error() != 0 || line == 0) return {};
  const uint64_t end = std::min(bytes.size(), kMostSource);
  std::string found;
  std::string piece;
  uint32_t number = 1;
  for (uint64_t at = 0; at < end && number <= line; at += piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, end - at)));
    if (!bytes.read(at, piece.data(), piece.size())) return {};
    for (const char c : piece) {
      if (number == line && c != '\n' && found.size() < kLongestLine) found += c;
      number += c == '\n' ? 1 : 0;
    }
  }
  return without_blanks(found);
}

std::string source_of(const Findings& findings, const CallSite& toucher, const PythonFrame& frame) {
  if (frame.file != "<string>") return source_line(frame.file, frame.line);
  if (toucher.processes.empty()) return {};
  const std::string& command = findings.processes[toucher.processes[0]].command;
  const size_t option = command.find(" -c ");
  if (option == std::string::npos) return {};
  std::string_view code = tail(command, option + 4);
  for (uint32_t line = 1; line < frame.line && !code.empty(); ++line) {
    code = tail(code, head(code, code.find('\n')).size() + 1);
  }
  return without_blanks(head(code, std::min(code.find('\n'), kLongestLine)));
}

}  // namespace cudaguard::launcher
