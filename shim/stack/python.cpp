// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/python.h"

#include <sys/auxv.h>

#include "policy/user_code.h"

namespace cudaguard {

namespace {

/// The offsets of fields in CPython's headers, in bytes; the same on x86-64 and AArch64.
struct Layout {
  uint8_t thread_frame;  ///< PyThreadState: frame, cframe or current_frame
  int8_t current;        ///< _PyCFrame.current_frame; -1 if there is no _PyCFrame
  uint8_t back;          ///< of a frame: its caller's frame
  uint8_t code;
  uint8_t instruction;
  uint8_t bytecode;  ///< PyCodeObject: base of the instruction pointer; 0 if that is a number
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
constexpr uint64_t kType = 8;     // PyObject.ob_type
constexpr uint64_t kFlags = 168;  // PyTypeObject.tp_flags
constexpr uint64_t kIsText = uint64_t{1} << 28;
constexpr unsigned kLength = 16;
constexpr unsigned kState = 32;
constexpr int kDeepest = 4096;

/// The symbols that CPython exports.
struct Names {
  uint64_t (*thread_state)();
  const char* (*version)();
  int (*is_initialized)();
  int (*line)(uint64_t code, int instruction);
  const void* (*newest)();
  uint64_t code_type;
  const void* (*main)();  ///< null in 3.6
  // The first name is that of CPython up to 3.12, the second that from 3.13 on.
  int (*is_finalizing[2])();
};

/// `program` may have copy relocations of the library's data, and then these copies are in use.
bool find(const LoadedObject& it, const LoadedObject& program, Names& names) {
  const auto set = [](auto& to, const void* found) {
    static_assert(sizeof to == sizeof found);
    memcpy(&to, &found, sizeof to);
    return found != nullptr;
  };
  const auto symbol = [&](const char* name) {
    const void* copied = program.symbol(name);
    return copied != nullptr ? copied : it.symbol(name);
  };
  if (!set(names.thread_state, it.code("PyGILState_GetThisThreadState")) ||
      !set(names.version, symbol("Py_GetVersion")) ||
      !set(names.is_initialized, symbol("Py_IsInitialized")) ||
      !set(names.line, symbol("PyCode_Addr2Line")) ||
      !set(names.newest, symbol("PyInterpreterState_Head")) ||
      !set(names.code_type, symbol("PyCode_Type"))) {
    return false;
  }
  set(names.main, symbol("PyInterpreterState_Main"));
  set(names.is_finalizing[0], symbol("_Py_IsFinalizing"));
  set(names.is_finalizing[1], symbol("Py_IsFinalizing"));
  return true;
}

bool find_python(const Maps& maps, Names& names) {
  const Mapping* first = maps.find(getauxval(AT_PHDR));
  if (first == nullptr) return false;
  const LoadedObject program(maps, *first);
  if (find(program, program, names)) return true;
  for (const Mapping* it = nullptr; (it = maps.next_object(it, "libpython")) != nullptr;) {
    if (find(LoadedObject(maps, *it), program, names) && names.is_initialized() != 0) return true;
  }
  return false;
}

/// True if the function stays where it is: it is in the program, or in a library to which the
/// program is linked, which no dlclose unloads.
bool stays(const Maps& maps, const Names& names) {
  const Mapping* program = maps.find(getauxval(AT_PHDR));
  const Mapping* python = maps.find(reinterpret_cast<uint64_t>(names.thread_state));
  if (program == nullptr || python == nullptr) return false;
  return python->file() == program->file() ||
         LoadedObject(maps, *program).needs(base_name(python->file()));
}

void keep(const Maps& maps, const Names& names, const Layout& layout, PythonFrames& to) {
  uint8_t state = to.state.load(std::memory_order_relaxed);
  if (state >= PythonFrames::kBeingSet ||
      !to.state.compare_exchange_strong(state, PythonFrames::kBeingSet,
                                        std::memory_order_relaxed)) {
    return;
  }
  to.thread_state = names.thread_state;
  to.is_initialized = names.is_initialized;
  to.is_finalizing[0] = names.is_finalizing[0];
  to.is_finalizing[1] = names.is_finalizing[1];
  to.newest = names.newest;
  to.main = names.main;
  to.code_type = names.code_type;
  to.thread_frame = layout.thread_frame;
  to.current = layout.current;
  to.back = layout.back;
  to.code = layout.code;
  to.instruction = layout.instruction;
  to.instruction_size = layout.bytecode != 0 ? sizeof(uint64_t) : sizeof(int32_t);
  to.file = layout.file;
  to.state.store(stays(maps, names) ? PythonFrames::kKnown : PythonFrames::kMayMove,
                 std::memory_order_release);
}

/// Returns the table for a version such as "3.11.2 (main, ...", or null.
const Layout* layout_of(std::string_view version) {
  const bool free_threaded = cudaguard::find(version, "free-thread") != version.npos;
  if (!version.starts_with("3.") || free_threaded) return nullptr;
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
  Reader(const Maps& maps, const Names& names, const Layout& layout, PythonNames& room)
      : maps_(maps), names_(names), layout_(layout), room_(room) {}

  const char* walk(uint64_t thread, Stack& to);

 private:
  uint64_t pointer(uint64_t at) const {
    uint64_t value = 0;
    return maps_.read(at, value) ? value : 0;
  }
  std::string_view text(uint64_t object);
  bool read(uint64_t frame, uint64_t code, PythonFrame& row);
  unsigned line(uint64_t frame, uint64_t code) const;

  const Maps& maps_;
  const Names& names_;
  const Layout& layout_;
  PythonNames& room_;
  size_t used_ = 0;
  bool cut_ = false;
};

/// Returns a string as UTF-8, cut if there is no more room.
std::string_view Reader::text(uint64_t object) {
  uint64_t length = 0;
  uint32_t state = 0;
  if ((pointer(pointer(object + kType) + kFlags) & kIsText) == 0 ||
      !maps_.read(object + kLength, length) || !maps_.read(object + kState, state)) {
    return {};
  }
  constexpr uint64_t kLongest = 1024;
  if (length > kLongest) {
    length = kLongest;
    cut_ = true;
  }
  const unsigned width = state >> 2 & 7;
  uint64_t data = object + ((state & 0x40) != 0 ? layout_.ascii : layout_.compact);
  if ((state & 0x20) == 0) data = pointer(object + layout_.compact);  // of a derived class
  if (width > 4 || !maps_.readable(data, length * width)) return {};
  char* const start = room_ + used_;
  for (uint64_t i = 0; i < length && used_ + 4 <= sizeof room_; ++i) {
    uint32_t c = 0;
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): readable, so not null
    memcpy(&c, reinterpret_cast<const void*>(data + i * width), width);
    unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr uint8_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
    room_[used_++] = static_cast<char>(kLead[more] | c >> (6 * more));
    while (more != 0) room_[used_++] = static_cast<char>(0x80 | (c >> (6 * --more) & 0x3f));
  }
  return {start, static_cast<size_t>(room_ + used_ - start)};
}

unsigned Reader::line(uint64_t frame, uint64_t code) const {
  int64_t at = 0;
  if (layout_.bytecode != 0) {
    at = static_cast<int64_t>(pointer(frame + layout_.instruction) - code - layout_.bytecode);
  } else {
    int32_t number = 0;
    maps_.read(frame + layout_.instruction, number);
    // 3.10 counts in units of two bytes.
    at = &layout_ == &kLayouts[10 - kFirst] ? number * 2 : number;
  }
  const int line = names_.line(code, static_cast<int>(at));
  return line > 0 ? static_cast<unsigned>(line) : 0;
}

/// Returns false for a frame that a traceback omits. ("<shim>" is the frame with which 3.12 enters
/// its interpreter.)
bool Reader::read(uint64_t frame, uint64_t code, PythonFrame& row) {
  row.file = text(pointer(code + layout_.file));
  if (row.file.data() == nullptr) return false;
  if (row.file.starts_with("<frozen importlib") || row.file.starts_with("<shim>")) return false;
  row.function = text(pointer(code + layout_.name));
  row.line = line(frame, code);
  return true;
}

const char* Reader::walk(uint64_t thread, Stack& to) {
  uint64_t frame = pointer(thread + layout_.thread_frame);
  if (layout_.current >= 0) frame = pointer(frame + static_cast<uint64_t>(layout_.current));
  to.shown = Stack::kMostPython;
  FrameChoice choice;
  size_t last = 0;
  // The frame that the message names, if it is further out than there is room for.
  uint64_t far_frame = 0;
  uint64_t far_code = 0;
  for (int depth = 0; frame != 0 && depth < kDeepest; ++depth) {
    const uint64_t code = pointer(frame + layout_.code) & ~uint64_t{3};  // 3.14 tags the pointer
    const uint64_t here = frame;
    frame = pointer(frame + layout_.back);
    // Frames of the interpreter itself have no code object.
    if (pointer(code + kType) != names_.code_type) continue;
    const bool full = to.python_count == Stack::kMostPython;
    if (full && choice.is_final()) {
      to.python_cut = true;
      break;
    }
    const size_t used = used_;
    PythonFrame row;
    const bool shown = read(here, code, row);
    if (full) used_ = used;
    if (!shown) continue;
    const bool chosen = choice.takes(row.file, row.function);
    if (full) {
      to.python_cut = true;
      if (!chosen) continue;
      far_frame = here;
      far_code = code;
    } else {
      if (chosen) to.shown = to.python_count;
      last = used;
      to.python[to.python_count++] = row;
    }
  }
  if (far_code != 0) {  // This frame takes the last place.
    used_ = last;
    to.shown = Stack::kMostPython - 1;
    read(far_frame, far_code, to.python[to.shown]);
  }
  to.python_cut = to.python_cut || cut_;
  return to.python_count != 0 ? nullptr : "no Python code";
}

}  // namespace

const char* read_python(const Maps& maps, Stack& to, PythonNames& room, PythonFrames& frames) {
  Names names;
  const bool found = find_python(maps, names);
  const Layout* layout = found ? layout_of(names.version()) : nullptr;
  if (layout == nullptr) {
    uint8_t unknown = PythonFrames::kUnknown;
    frames.state.compare_exchange_strong(unknown, PythonFrames::kNoFrames,
                                         std::memory_order_relaxed);
    return found ? "unknown build of CPython" : kNoPython;
  }
  if (names.is_initialized() == 0) return "Python is not initialised";
  for (auto* is_finalizing : names.is_finalizing) {
    if (is_finalizing != nullptr && is_finalizing() != 0) return "Python is finalizing";
  }
  if (names.main != nullptr && names.newest() != names.main()) return "sub-interpreters";
  const uint64_t thread = names.thread_state();
  if (thread == 0) return "not a thread of Python's";
  const char* missing = Reader(maps, names, *layout, room).walk(thread, to);
  // Frames of the right type show that this build of CPython has the offsets of the table.
  if (missing == nullptr) keep(maps, names, *layout, frames);
  return missing;
}

bool add_python(const PythonFrames& it, Hash& hash) {
  const uint8_t state = it.state.load(std::memory_order_acquire);
  if (state == PythonFrames::kNoFrames) return true;
  if (state != PythonFrames::kKnown) return false;
  if (it.is_initialized() == 0) return true;
  for (auto* is_finalizing : it.is_finalizing) {
    if (is_finalizing != nullptr && is_finalizing() != 0) return true;
  }
  if (it.main != nullptr && it.newest() != it.main()) return true;  // read_python() gives up, too
  const auto pointer = [](uint64_t at) {
    uint64_t value = 0;
    memcpy(&value, reinterpret_cast<const void*>(at), sizeof value);
    return value;
  };
  const uint64_t thread = it.thread_state();
  if (thread == 0) return true;
  uint64_t frame = pointer(thread + it.thread_frame);
  if (it.current >= 0 && frame != 0) frame = pointer(frame + static_cast<uint64_t>(it.current));
  for (int depth = 0; frame != 0; ++depth, frame = pointer(frame + it.back)) {
    if (depth == kDeepest) return false;
    const uint64_t code = pointer(frame + it.code) & ~uint64_t{3};  // as in walk()
    if (code == 0 || pointer(code + kType) != it.code_type) continue;
    uint64_t instruction = 0;
    memcpy(&instruction, reinterpret_cast<const void*>(frame + it.instruction),
           it.instruction_size);
    // A later code object may have the same address. Its file has another name, though, and a
    // string keeps its length and its own hash.
    const uint64_t file = pointer(code + it.file);
    hash.add(code)
        .add(instruction)
        .add(file)
        .add(pointer(file + kLength))
        .add(pointer(file + kLength + sizeof file));
  }
  return true;
}

}  // namespace cudaguard
