// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/symbols.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/program.h"
#include "policy/text.h"
#include "shim/launcher/child/child.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/findings/model.h"
#include "shim/launcher/format.h"

/// libstdc++'s own function (cp-demangle.c). __cxa_demangle has no limit, and 300 bytes can encode
/// a name that does not fit into memory.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled,
                                             void (*put)(const char*, size_t, void*), void* to);

namespace cudaguard::launcher {

namespace {

using Clock = std::chrono::steady_clock;

/// "/src/app.cpp:12" for each frame with a known line, by its file and offset.
using NativeLines = std::map<std::pair<std::string, uint64_t>, std::string>;

constexpr std::chrono::seconds kPatience{10};  ///< for binutils' programs, and for all else
constexpr size_t kMostFrames = 1000;           ///< per file, because they are words of a command
constexpr size_t kMostRustNames = 1000;
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

/// Where the hash begins with which Rust's older scheme ends a name: "17h0123456789abcdefE".
/// npos: the name is not of this scheme.
size_t hash_of_rust(std::string_view name) {
  constexpr size_t kSize = 20;
  const size_t at = name.starts_with("_ZN") ? name.rfind("17h") : std::string_view::npos;
  if (at == std::string_view::npos || name.size() < at + kSize || name[at + kSize - 1] != 'E') {
    return std::string_view::npos;
  }
  const std::string_view digits = name.substr(at + 3, kSize - 4);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos
             ? at
             : std::string_view::npos;
}

bool is_rust(std::string_view name) {
  return name.starts_with("_R") || hash_of_rust(name) != std::string_view::npos;
}

/// The name without c++filt. The newer scheme needs it, so such a name is unchanged.
std::string demangled_rust(const std::string& name) {
  const size_t hash = hash_of_rust(name);
  return hash == std::string::npos ? name : demangled(name.substr(0, hash) + "E");
}

std::string without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return std::string(text);
}

/// That line of a source file, without its newline and outer blanks: "device = torch.device(...)".
/// Empty if it cannot be read.
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

/// A line of the text that `python -c` was given.
std::string line_of_command(const Findings& findings, const CallSite& site, uint32_t number) {
  if (site.processes.empty()) return {};
  using namespace std::string_view_literals;
  std::string_view code = findings.processes[site.processes[0]].command.text;
  // Elsewhere, -c is an option of the program or the script: "python3 train.py -c config.yaml".
  std::string_view rest = code;
  const Interpreter* interpreter = interpreter_of(base_name(take_argument(rest)));
  if (interpreter == nullptr) return {};
  const Script script = script_of(*interpreter, code, {});
  const size_t option = code.find("\0-c\0"sv);
  const bool is_piped = !script.name.empty() || code.find("\0-\0"sv) < option;
  if (!script.is_code || is_piped || option == std::string_view::npos) return {};
  code = tail(code, option + 4);
  code = head(code, code.find('\0'));
  for (uint32_t line = 1; line < number && !code.empty(); ++line) {
    code = tail(code, head(code, code.find('\n')).size() + 1);
  }
  return without_blanks(head(code, std::min(code.find('\n'), kLongestLine)));
}

/// The question about one file.
struct Question {
  std::set<uint64_t> offsets;
  double first = 0;  ///< time of the first record of a frame; 0: unknown
};

std::map<std::string, Question> questions_of(const Findings& findings) {
  std::map<std::string, Question> questions;
  for (const CallSite& site : findings.sites) {
    for (const NativeFrame& frame : site.stack.native) {
      if (!frame.module.starts_with("/") || frame.offset == 0) continue;
      Question& question = questions[frame.module];
      if (question.offsets.size() < kMostFrames) question.offsets.insert(frame.offset);
      if (question.first == 0 || site.first < question.first) question.first = site.first;
    }
  }
  return questions;
}

/// Runs in the child, because a crafted file must not use up this machine's memory.
bool limit_memory() {
  const rlimit most = {uint64_t{4} << 30, uint64_t{4} << 30};
  return setrlimit(RLIMIT_AS, &most) == 0;
}

bool has_changed(const std::string& path, double since) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return true;
  const timespec& time = status.st_ctim;
  return since != 0 &&
         static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec) > since;
}

/// "/src/app.cpp:12 (discriminator 3)"; if unknown, "??:0", "??:?" or "/src/app.cpp:?". Go's build
/// deletes "x.cgo2.c", by which x.go calls C; the line of x.go is not known.
std::string line_of(std::string_view answer) {
  constexpr std::string_view kCgo = ".cgo2.c";
  answer = head(answer, answer.find(" (discriminator "));
  const std::string_view number = tail(answer, std::min(answer.size(), answer.rfind(':') + 1));
  const bool is_known = !answer.starts_with("?") && !number.empty() && number != "0" &&
                        number.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_known) return {};
  const std::string_view file = head(answer, answer.size() - number.size() - 1);
  if (!file.ends_with(kCgo)) return std::string(answer);
  return std::string(head(file, file.size() - kCgo.size())) + ".go";
}

void ask(const std::string& tool, const std::string& path, const std::set<uint64_t>& offsets,
         std::chrono::milliseconds patience, NativeLines& lines) {
  const FileBytes file(path);
  const ElfFunctions functions(file);
  if (!functions.has_lines()) return;
  std::vector<std::string> words = {tool, "-e", path};
  for (const uint64_t offset : offsets) {
    // The call precedes the return address, which may belong to the next line.
    words.push_back(text_of([&](Text& out) { out.put_hex(functions.address_of(offset - 1)); }));
  }
  const char* const no_variables[] = {nullptr};
  const ChildEnd end = run_child(std::move(words), Variables(no_variables), patience, limit_memory);
  if (!end.in_time || end.status != 0) return;
  // The answer must have one line for each offset.
  if (std::count(end.out.begin(), end.out.end(), '\n') !=
      static_cast<std::ptrdiff_t>(offsets.size()))
    return;
  std::string_view rest = end.out;
  for (const uint64_t offset : offsets) {
    const std::string_view answer = head(rest, rest.find('\n'));
    rest = tail(rest, answer.size() + 1);
    if (std::string line = line_of(answer); !line.empty()) lines[{path, offset}] = std::move(line);
  }
}

NativeLines find_native_lines(const Findings& findings, const char* search) {
  NativeLines lines;
  const std::map<std::string, Question> questions = questions_of(findings);
  if (questions.empty()) return lines;
  const auto limit = Clock::now() + kPatience;
  try {
    const std::string tool = find_program("addr2line", search).path;
    for (const auto& [path, question] : questions) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now());
      if (left <= left.zero()) break;
      if (!has_changed(path, question.first)) ask(tool, path, question.offsets, left, lines);
    }
  } catch (const Refusal&) {
    // addr2line is not installed, or no process can be created.
  }
  return lines;
}

/// Names the functions that Rust's compiler has mangled, most of which only c++filt can read.
void name_rust(Findings& findings, const char* search) {
  std::map<std::string, std::string> names;
  for (const CallSite& site : findings.sites) {
    for (const NativeFrame& frame : site.stack.native) {
      if (is_rust(frame.symbol) && frame.symbol.size() <= kLongestName &&
          names.size() < kMostRustNames) {
        names.try_emplace(frame.symbol, demangled_rust(frame.symbol));
      }
    }
  }
  if (names.empty()) return;
  try {
    std::vector<std::string> words = {find_program("c++filt", search).path, "-i", "-s", "rust"};
    for (const auto& [name, _] : names) words.push_back(name);
    const char* const no_variables[] = {nullptr};
    const ChildEnd end = run_child(std::move(words), Variables(no_variables),
                                   std::chrono::milliseconds(kPatience), limit_memory);
    std::string_view rest = end.out;
    const bool is_whole =
        std::count(rest.begin(), rest.end(), '\n') == static_cast<std::ptrdiff_t>(names.size());
    if (end.in_time && end.status == 0 && is_whole) {
      for (auto& [name, shown] : names) {
        const std::string_view answer = head(rest, rest.find('\n'));
        rest = tail(rest, answer.size() + 1);
        if (answer == name) continue;
        shown = head(answer, kLongestName);
        if (answer.size() > kLongestName) shown += "...";
      }
    }
  } catch (const Refusal&) {
    // c++filt is not installed, or no process can be created.
  }
  for (CallSite& site : findings.sites) {
    for (NativeFrame& frame : site.stack.native) {
      const auto found = names.find(frame.symbol);
      if (found != names.end()) frame.symbol = found->second;
    }
  }
}

}  // namespace

std::string Symbols::name_of(const NativeFrame& frame) {
  if (!frame.module.starts_with("/") || frame.offset == 0) return {};
  const File& file = files_.try_emplace(frame.module, frame.module).first->second;
  // The call precedes the return address, which may belong to the next function.
  std::string name = file.functions.name_at(file.bytes, frame.offset - 1);
  return is_rust(name) ? name : demangled(name);
}

void name_frames(Findings& findings, const char* search) {
  Symbols symbols;
  NativeLines lines = find_native_lines(findings, search);
  std::map<std::string, std::string> sources;
  const auto limit = Clock::now() + kPatience;
  for (CallSite& site : findings.sites) {
    // A hostile program may have named any number of large files.
    if (Clock::now() > limit) break;
    for (PythonFrame& frame : site.stack.python) {
      if (frame.file == "<string>") {
        frame.source = line_of_command(findings, site, frame.line);
        continue;
      }
      const auto [source, is_new] = sources.try_emplace(file_and_line(frame));
      if (is_new) source->second = source_line(frame.file, frame.line);
      frame.source = source->second;
    }
    for (NativeFrame& frame : site.stack.native) {
      frame.symbol = symbols.name_of(frame);
      frame.line = lines[{frame.module, frame.offset}];
    }
  }
  name_rust(findings, search);
  for (CallSite& site : findings.sites) {
    if (!site.line.empty() || !site.stack.python.empty()) continue;
    const NativeFrame* own = own_frame(site.stack.native);
    if (own != nullptr) site.line = base_name(own->line);
  }
}

}  // namespace cudaguard::launcher
