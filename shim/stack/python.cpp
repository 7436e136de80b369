// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/python.h"

#include <sys/auxv.h>

#include "policy/user_code.h"

namespace cudaguard {

namespace {

/// Where CPython's headers have their fields, in bytes; the same on x86-64 and AArch64.
struct Layout {
  uint8_t thread_frame;  ///< PyThreadState: frame, cframe or current_frame
  int8_t current;        ///< _PyCFrame.current_frame; -1: there is none in between
  uint8_t back;          ///< of a frame: the one that called it
  uint8_t code;
  uint8_t instruction;
  uint8_t bytecode;  ///< PyCodeObject: what the instruction points into; 0: it is a number
  uint8_t file;
  uint8_t name;
  uint8_t ascii;    ///< sizeof(PyASCIIObject)
  uint8_t compact;  ///< sizeof(PyCompactUnicodeObject)
};
constexpr uint8_t kFirst = 6;
constexpr Layout kLayouts[] = {
    {24, -1, 24, 32, 120, 0, 96, 104, 48, 72},   // 3.6
    {24, -1, 24, 32, 104, 0, 96, 104, 48, 72},   // 3.7
    {24, -1, 24, 32, 104, 0, 104, 112, 48, 72},  // 3.8
    {24, -1, 24, 32, 104, 0, 104, 112, 48, 72},  // 3.9
    {24, -1, 24, 32, 96, 0, 104, 112, 48, 72},   // 3.10
    {56, 8, 48, 32, 56, 184, 112, 120, 48, 72},  // 3.11
    {56, 0, 8, 0, 56, 192, 112, 120, 40, 56},    // 3.12
    {72, -1, 8, 0, 56, 200, 112, 120, 40, 56},   // 3.13
    {72, -1, 8, 0, 56, 208, 112, 120, 40, 56},   // 3.14
};
constexpr uint64_t kType = 8;  // PyObject.ob_type
constexpr unsigned kLength = 16;
constexpr unsigned kState = 32;
constexpr int kDeepest = 4096;

/// What CPython exports.
struct Names {
  uint64_t (*thread_state)() = nullptr;
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // none in 3.6
  const char* (*version)() = nullptr;
  int (*line)(uint64_t code, int instruction) = nullptr;
  const void* (*newest)() = nullptr;
  const void* (*main)() = nullptr;  // none in 3.6
  uint64_t code_type = 0;
  uint64_t text_type = 0;
};

/// `program` may have copies of the library's data, which are the ones in use then.
bool find(const LoadedObject& it, const LoadedObject& program, Names& names) {
  const auto data = [&](const char* name) {
    const void* copied = program.symbol(name);
    return reinterpret_cast<uint64_t>(copied != nullptr ? copied : it.symbol(name));
  };
  if (!it.function("PyGILState_GetThisThreadState", names.thread_state) ||
      !it.function("Py_IsInitialized", names.is_initialized) ||
      !it.function("Py_GetVersion", names.version) ||
      !it.function("PyCode_Addr2Line", names.line) ||
      !it.function("PyInterpreterState_Head", names.newest)) {
    return false;
  }
  it.function("PyInterpreterState_Main", names.main);
  if (!it.function("Py_IsFinalizing", names.is_finalizing)) {
    it.function("_Py_IsFinalizing", names.is_finalizing);
  }
  names.code_type = data("PyCode_Type");
  names.text_type = data("PyUnicode_Type");
  return true;
}

bool find_python(const Maps& maps, Names& names) {
  const Mapping* first = maps.find(getauxval(AT_PHDR));
  if (first == nullptr) return false;
  const LoadedObject program(maps, *first);
  if (find(program, program, names)) return true;
  for (unsigned i = 0; i < maps.count; ++i) {
    const Mapping& here = maps.at[i];
    if (here.offset != 0 || !base_name(here.file()).starts_with("libpython")) continue;
    if (find(LoadedObject(maps, here), program, names) && names.is_initialized() != 0) return true;
  }
  return false;
}

/// "3.11.2 (main, ...": the table of that version, or null.
const Layout* layout_of(std::string_view version) {
  if (!version.starts_with("3.") || version.find("free-thread") != std::string_view::npos) {
    return nullptr;
  }
  unsigned minor = 0;
  for (const char c : tail(version, 2)) {
    if (!is_digit(c)) break;
    minor = minor * 10 + static_cast<unsigned>(c - '0');
  }
  const unsigned row = minor - kFirst;
  return row < sizeof kLayouts / sizeof *kLayouts ? &kLayouts[row] : nullptr;
}

class Reader {
 public:
  Reader(const Maps& maps, const Names& names, const Layout& layout, PythonStack& to)
      : maps_(maps), names_(names), layout_(layout), to_(to) {}

  const char* walk(uint64_t thread);

 private:
  uint64_t pointer(uint64_t at) const {
    uint64_t value = 0;
    return maps_.read(at, value) ? value : 0;
  }
  std::string_view text(uint64_t object);
  unsigned line(uint64_t frame, uint64_t code) const;

  const Maps& maps_;
  const Names& names_;
  const Layout& layout_;
  PythonStack& to_;
  size_t used_ = 0;
};

/// A string as UTF-8, cut where there is no more room.
std::string_view Reader::text(uint64_t object) {
  uint64_t length = 0;
  uint32_t state = 0;
  if (pointer(object + kType) != names_.text_type || !maps_.read(object + kLength, length) ||
      !maps_.read(object + kState, state)) {
    return {};
  }
  constexpr uint64_t kLongest = 1024;
  if (length > kLongest) length = kLongest;
  const unsigned width = state >> 2 & 7;
  const uint64_t data = object + ((state & 0x40) != 0 ? layout_.ascii : layout_.compact);
  if (width > 4 || !maps_.readable(data, length * width)) return {};
  char* const start = to_.text + used_;
  for (uint64_t i = 0; i < length && used_ + 4 <= sizeof to_.text; ++i) {
    uint32_t c = 0;
    memcpy(&c, reinterpret_cast<const void*>(data + i * width), width);
    unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr uint8_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
    to_.text[used_++] = static_cast<char>(kLead[more] | c >> (6 * more));
    while (more != 0) to_.text[used_++] = static_cast<char>(0x80 | (c >> (6 * --more) & 0x3f));
  }
  return {start, static_cast<size_t>(to_.text + used_ - start)};
}

unsigned Reader::line(uint64_t frame, uint64_t code) const {
  int64_t at = 0;
  if (layout_.bytecode != 0) {
    at = static_cast<int64_t>(pointer(frame + layout_.instruction) - code - layout_.bytecode);
  } else {
    int32_t number = 0;
    maps_.read(frame + layout_.instruction, number);
    // From 3.10 on in units of two bytes.
    at = &layout_ == &kLayouts[10 - kFirst] ? number * 2 : number;
  }
  const int line = names_.line(code, static_cast<int>(at));
  return line > 0 ? static_cast<unsigned>(line) : 0;
}

const char* Reader::walk(uint64_t thread) {
  uint64_t frame = pointer(thread + layout_.thread_frame);
  if (layout_.current >= 0) frame = pointer(frame + static_cast<uint64_t>(layout_.current));
  bool users = false;
  size_t last = 0;
  for (int depth = 0; frame != 0 && depth < kDeepest; ++depth) {
    const uint64_t code = pointer(frame + layout_.code) & ~uint64_t{3};  // 3.14 marks it
    const uint64_t here = frame;
    frame = pointer(frame + layout_.back);
    // Frames of the interpreter itself have none.
    if (pointer(code + kType) != names_.code_type) continue;
    if (to_.count == PythonStack::kMost) {
      to_.cut = true;
      if (users) break;
      // The last place is for what the line names: the user's own, else the outermost.
      --to_.count;
      used_ = last;
    }
    last = used_;
    PythonFrame& row = to_.at[to_.count];
    row.file = text(pointer(code + layout_.file));
    // As in a traceback.
    if (row.file.empty() || row.file.starts_with("<frozen importlib")) continue;
    row.function = text(pointer(code + layout_.name));
    row.line = line(here, code);
    if (!users) to_.shown = to_.count;
    users = users || is_user_file(row.file);
    ++to_.count;
  }
  return to_.count != 0 ? nullptr : "no Python code in this thread";
}

}  // namespace

const char* read_python(const Maps& maps, PythonStack& to) {
  Names names;
  if (!find_python(maps, names)) return "no CPython in the process";
  const Layout* layout = layout_of(names.version());
  if (layout == nullptr) return "not a known build of CPython";
  if (names.is_initialized() == 0) return "Python is not initialised";
  if (names.is_finalizing != nullptr && names.is_finalizing() != 0) return "Python is finalizing";
  if (names.main != nullptr && names.newest() != names.main()) return "sub-interpreters";
  const uint64_t thread = names.thread_state();
  if (thread == 0) return "not a thread of Python's";
  return Reader(maps, names, *layout, to).walk(thread);
}

}  // namespace cudaguard
