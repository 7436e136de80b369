// SPDX-License-Identifier: Apache-2.0
// The offsets of the frames' members are in a table for each version of Python up to 3.14. From
// 3.13 on, CPython describes itself (_Py_DebugOffsets); a build whose description is not as
// expected is not read. Frames are read without a look at /proc/self/maps only after a look has
// found frames of the right type, and only if no dlclose can unload this Python.
#include "shim/guard/stack/python.h"

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
  uint8_t globals;
  uint8_t instruction;
  uint8_t bytecode;  ///< PyCodeObject: base of the instruction pointer; 0 if that is a number
  uint8_t file;
  uint8_t name;
  uint8_t ascii;    ///< sizeof(PyASCIIObject)
  uint8_t compact;  ///< sizeof(PyCompactUnicodeObject)
  uint8_t object;   ///< of a frame: its PyFrameObject; 0 if it is one
  uint8_t line;     ///< PyFrameObject: f_lineno
  uint8_t trace;    ///< PyFrameObject: f_trace, without which f_lineno does not count; 0: it does
  uint8_t unit;     ///< that a number of an instruction counts, in bytes
};
constexpr uint8_t kFirst = 6;
constexpr Layout kLayouts[] = {
    {24, -1, 24, 32, 48, 120, 0, 96, 104, 48, 72, 0, 124, 80, 1},   // 3.6
    {24, -1, 24, 32, 48, 104, 0, 96, 104, 48, 72, 0, 108, 80, 1},   // 3.7
    {24, -1, 24, 32, 48, 104, 0, 104, 112, 48, 72, 0, 108, 80, 1},  // 3.8
    {24, -1, 24, 32, 48, 104, 0, 104, 112, 48, 72, 0, 108, 80, 1},  // 3.9
    {24, -1, 24, 32, 48, 96, 0, 104, 112, 48, 72, 0, 100, 0, 2},    // 3.10
    {56, 8, 48, 32, 8, 56, 184, 112, 120, 48, 72, 40, 40, 0, 1},    // 3.11
    {56, 0, 8, 0, 24, 56, 192, 112, 120, 40, 56, 48, 40, 0, 1},     // 3.12
    {72, -1, 8, 0, 24, 56, 200, 112, 120, 40, 56, 48, 40, 0, 1},    // 3.13
    {72, -1, 8, 0, 24, 56, 208, 112, 120, 40, 56, 48, 40, 0, 1},    // 3.14
};

/// Where _Py_DebugOffsets has its parts, in words. CPython describes its own structures there, at
/// the start of _PyRuntime, from 3.13 on. A new version adds members.
struct Description {
  uint8_t thread;
  uint8_t frame;
  uint8_t code;
  uint8_t object;
  uint8_t type;
  uint8_t text;
};
constexpr unsigned kFirstDescribed = 13;
constexpr Description kDescriptions[] = {
    {19, 28, 34, 44, 46, 67},  // 3.13
    {22, 31, 39, 50, 52, 77},  // 3.14
    {22, 39, 47, 58, 60, 89},  // 3.15; tried for later versions, too
};
constexpr unsigned kDescribedWords = 96;

constexpr uint64_t kType = 8;     // PyObject.ob_type
constexpr uint64_t kFrame = 24;   // PyFrameObject.f_frame, from 3.11 on
constexpr uint64_t kFlags = 168;  // PyTypeObject.tp_flags
constexpr uint64_t kIsText = uint64_t{1} << 28;
constexpr uint64_t kIsDict = uint64_t{1} << 29;
constexpr unsigned kLength = 16;
constexpr unsigned kState = 32;
// PyASCIIObject.state: two bits, and the bytes of a character.
constexpr uint32_t kIsCompact = 0x20;
constexpr uint32_t kIsAscii = 0x40;
constexpr unsigned width_of(uint32_t state) { return state >> 2 & 7; }
constexpr int kDeepest = 4096;
constexpr char kString[] = "<string>";  // a text that exec() runs

// PyDictObject.
constexpr uint64_t kKeys = 32;
constexpr uint64_t kValues = 40;  ///< null unless the values are elsewhere
/// The most names of a module that are searched. __file__ is among the first.
constexpr uint64_t kMostNames = 256;

/// Where PyDictKeysObject has its entries.
struct DictEntries {
  uint64_t at = 0;
  uint64_t count = 0;
  uint64_t size = 24;  ///< of an entry: hash, key, value
  uint64_t key = 8;
};

/// The symbols that CPython exports.
struct Symbols {
  uint64_t (*thread_state)();
  const char* (*version)();
  int (*is_initialized)();
  int (*line)(uint64_t code, int instruction);
  const void* (*newest)();
  uint64_t code_type;
  const void* (*main)();  ///< null in 3.6
  uint64_t runtime;       ///< _PyRuntime
  // The first name is that of CPython up to 3.12, the second that from 3.13 on.
  int (*is_finalizing[2])();
};

/// `program` may have copy relocations of the library's data, and then these copies are in use.
bool find(const LoadedObject& library, const LoadedObject& program, Symbols& names) {
  const auto set = [](auto& to, const void* found) {
    static_assert(sizeof to == sizeof found);
    memcpy(&to, &found, sizeof to);
    return found != nullptr;
  };
  const auto symbol = [&](const char* name) {
    const void* copied = program.symbol(name);
    return copied != nullptr ? copied : library.symbol(name);
  };
  if (!set(names.thread_state, library.code("PyGILState_GetThisThreadState")) ||
      !set(names.version, symbol("Py_GetVersion")) ||
      !set(names.is_initialized, symbol("Py_IsInitialized")) ||
      !set(names.line, symbol("PyCode_Addr2Line")) ||
      !set(names.newest, symbol("PyInterpreterState_Head")) ||
      !set(names.code_type, symbol("PyCode_Type"))) {
    return false;
  }
  set(names.main, symbol("PyInterpreterState_Main"));
  set(names.runtime, symbol("_PyRuntime"));
  set(names.is_finalizing[0], symbol("_Py_IsFinalizing"));
  set(names.is_finalizing[1], symbol("Py_IsFinalizing"));
  return true;
}

bool find_python(const Maps& maps, Symbols& names) {
  const Mapping* first = maps.find(getauxval(AT_PHDR));
  if (first == nullptr) return false;
  const LoadedObject program(maps, *first);
  if (find(program, program, names)) return true;
  for (const Mapping* mapping = nullptr;
       (mapping = maps.next_object(mapping, "libpython")) != nullptr;) {
    if (find(LoadedObject(maps, *mapping), program, names) && names.is_initialized() != 0)
      return true;
  }
  return false;
}

/// True if the function stays where it is: it is in the program, or in a library to which the
/// program is linked, which no dlclose unloads.
bool stays(const Maps& maps, const Symbols& names) {
  const Mapping* program = maps.find(getauxval(AT_PHDR));
  const Mapping* python = maps.find(reinterpret_cast<uint64_t>(names.thread_state));
  if (program == nullptr || python == nullptr) return false;
  return python->file() == program->file() ||
         LoadedObject(maps, *program).needs(base_name(python->file()));
}

void keep(const Maps& maps, const Symbols& names, const Layout& layout, PythonFrames& to) {
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
  to.line = names.line;
  to.code_type = names.code_type;
  to.thread_frame = layout.thread_frame;
  to.current = layout.current;
  to.back = layout.back;
  to.code = layout.code;
  to.instruction = layout.instruction;
  to.bytecode = layout.bytecode;
  to.unit = layout.unit;
  to.file = layout.file;
  to.ascii = layout.ascii;
  to.compact = layout.compact;
  to.state.store(stays(maps, names) ? PythonFrames::kKnown : PythonFrames::kMayMove,
                 std::memory_order_release);
}

/// Reads the interpreter's description of itself. Returns false if it is not one that is known.
bool read_description(const Maps& maps, uint64_t runtime, unsigned minor, Layout& layout) {
  uint64_t words[kDescribedWords];
  if (runtime == 0 || !maps.read(runtime, words)) return false;
  constexpr unsigned kLast = sizeof kDescriptions / sizeof *kDescriptions - 1;
  const unsigned row = minor - kFirstDescribed;
  const Description& at = kDescriptions[row < kLast ? row : kLast];
  const uint64_t* text = words + at.text;  // size, state, length, size if ASCII
  const bool is_known = memcmp(words, "xdebugpy", 8) == 0 && words[1] >> 16 == (0x300 | minor) &&
                        words[2] == 0 &&  // free-threaded
                        words[at.object + 1] == kType && words[at.type + 3] == kFlags &&
                        text[1] == kState && text[2] == kLength;
  if (!is_known) return false;
  const uint64_t instruction = words[at.frame + 3];
  const uint64_t values[] = {
      words[at.thread + 4],  // current_frame
      words[at.frame + 1],   // previous
      words[at.frame + 2],   // executable
      instruction - 32,      // The description lacks the globals; real_file() checks them.
      instruction,
      words[at.code + 9],  // co_code_adaptive
      words[at.code + 1],  // filename
      words[at.code + 2],  // name
      text[3],
      text[0] - 8,      // PyUnicodeObject has one more pointer
      instruction - 8,  // The description lacks frame_obj; own_line() checks it.
  };
  for (const uint64_t value : values) {
    if (value > UINT8_MAX) return false;
  }
  const auto value = [&](unsigned i) { return static_cast<uint8_t>(values[i]); };
  layout = {value(0), -1,       value(1), value(2),  value(3), value(4), value(5), value(6),
            value(7), value(8), value(9), value(10), 40,       0,        1};
  return true;
}

/// Finds the offsets for a version such as "3.11.2 (main, ...". Returns false for an unknown build.
bool find_layout(const Maps& maps, const Symbols& names, Layout& layout) {
  const std::string_view version = names.version();
  const bool free_threaded = cudaguard::find(version, "free-thread") != version.npos;
  if (!version.starts_with("3.") || free_threaded) return false;
  unsigned minor = 0;
  for (const char c : tail(version, 2)) {
    if (!is_digit(c)) break;
    minor = minor * 10 + static_cast<unsigned>(c - '0');
  }
  const unsigned row = minor - kFirst;
  const bool in_table = row < sizeof kLayouts / sizeof *kLayouts;
  if (in_table) layout = kLayouts[row];
  if (minor < kFirstDescribed) return in_table;
  Layout described;
  if (!read_description(maps, names.runtime, minor, described)) return false;
  if (in_table && memcmp(&layout, &described, sizeof layout) != 0) return false;
  layout = described;
  return true;
}

class Reader {
 public:
  Reader(const Maps& maps, const Symbols& names, const Layout& layout, PythonRoom& room)
      : maps_(maps), names_(names), layout_(layout), room_(room.names), owners_(room.owners) {}

  const char* walk(uint64_t thread, Stack& to);

 private:
  uint64_t pointer(uint64_t at) const {
    uint64_t value = 0;
    return maps_.read(at, value) ? value : 0;
  }
  std::string_view text(uint64_t object);
  bool is_text(uint64_t object, std::string_view wanted);
  DictEntries entries_of(uint64_t dict) const;
  uint64_t global(uint64_t frame, std::string_view name);
  std::string_view real_file(uint64_t frame, std::string_view file, bool& has_line);
  uint64_t code_of(uint64_t frame) const;
  bool find_script(uint64_t frame);
  bool read(uint64_t frame, uint64_t code, PythonFrame& row);
  unsigned own_line(uint64_t frame) const;
  unsigned line(uint64_t frame, uint64_t code) const;

  const Maps& maps_;
  const Symbols& names_;
  const Layout& layout_;
  char (&room_)[sizeof PythonRoom::names];
  Owners owners_;
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
  const unsigned width = width_of(state);
  uint64_t data = object + ((state & kIsAscii) != 0 ? layout_.ascii : layout_.compact);
  if ((state & kIsCompact) == 0) data = pointer(object + layout_.compact);  // of a derived class
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

bool Reader::is_text(uint64_t object, std::string_view wanted) {
  uint64_t length = 0;
  if (!maps_.read(object + kLength, length) || length != wanted.size()) return false;
  const size_t used = used_;
  const bool same = text(object) == wanted;
  used_ = used;
  return same;
}

DictEntries Reader::entries_of(uint64_t dict) const {
  DictEntries entries;
  if ((pointer(pointer(dict + kType) + kFlags) & kIsDict) == 0) return entries;
  const uint64_t keys = pointer(dict + kKeys);
  if (keys == 0 || pointer(dict + kValues) != 0) return entries;
  const uint64_t sizes = pointer(keys + 8);
  if (layout_.bytecode == 0) {  // up to 3.10: the number of indices, whose width depends on it
    if (sizes > 0xffff) return entries;
    entries.at = keys + 40 + sizes * (sizes <= 0xff ? 1 : 2);
    entries.count = pointer(keys + 32);
  } else {  // from 3.11 on: logarithms of the number of indices and of their bytes, and a kind
    const uint64_t index_bytes = sizes >> 8 & 0xff;
    if (index_bytes > 20) return entries;
    entries.at = keys + 32 + (uint64_t{1} << index_bytes);
    entries.count = pointer(keys + 24);
    if ((sizes >> 16 & 0xff) == 1) {  // all keys are strings, so there are no hashes
      entries.size = 16;
      entries.key = 0;
    }
  }
  return entries;
}

/// Returns a global variable of a frame's code, or 0. Another thread may change the variables
/// meanwhile. Each read is then of memory that was readable, and a wrong object is no string.
uint64_t Reader::global(uint64_t frame, std::string_view name) {
  const DictEntries entries = entries_of(pointer(frame + layout_.globals));
  for (uint64_t i = 0; i < entries.count && i < kMostNames; ++i) {
    const uint64_t key = entries.at + i * entries.size + entries.key;
    if (is_text(pointer(key), name)) return pointer(key + 8);
  }
  return 0;
}

/// Returns the file that the user can open if it is not that of the code: `exec` runs the text of a
/// file that it has read (setuptools runs setup.py so), the script is a copy in a temporary file
/// (Snakemake), or IPython runs a file's cells. All have the file's name in __file__. Otherwise
/// returns an empty text. Modules have a __loader__, too, and what exec() runs in one is no line of
/// that module's file. `has_line`: the file has the code's line at the same place.
std::string_view Reader::real_file(uint64_t frame, std::string_view file, bool& has_line) {
  const bool is_string = file == kString;
  const bool is_cell = cudaguard::is_cell(file);
  if (!is_string && !is_cell && !owners_.is_script(file)) return {};
  const uint64_t object = global(frame, "__file__");
  if (object == 0 || (is_string && global(frame, "__loader__") != 0)) return {};
  const size_t used = used_;
  const std::string_view real = text(object);
  using Copy = Owners::Copy;
  const Copy copy = real.empty() || real == file || real.ends_with(".pyc") ? Copy::kNone
                    : is_cell   ? owners_.compare_cell(real)
                    : is_string ? (owners_.is_file(real) ? Copy::kSame : Copy::kNone)
                                : owners_.compare(file, real);
  has_line = copy != Copy::kChanged;
  if (copy == Copy::kNone) used_ = used;
  return copy == Copy::kNone ? std::string_view() : real;
}

/// Returns f_lineno if it counts, otherwise 0. A trace function sets it, and Nuitka's code, whose
/// frames have no instruction pointer.
unsigned Reader::own_line(uint64_t frame) const {
  const uint64_t object = layout_.object == 0 ? frame : pointer(frame + layout_.object);
  if (object == 0 || (layout_.object != 0 && pointer(object + kFrame) != frame)) return 0;
  if (layout_.trace != 0 && pointer(object + layout_.trace) == 0) return 0;
  int32_t line = 0;
  maps_.read(object + layout_.line, line);
  return line > 0 ? static_cast<unsigned>(line) : 0;
}

unsigned Reader::line(uint64_t frame, uint64_t code) const {
  if (const unsigned line = own_line(frame); line != 0) return line;
  int64_t at = 0;
  if (layout_.bytecode != 0) {
    at = static_cast<int64_t>(pointer(frame + layout_.instruction) - code - layout_.bytecode);
  } else {
    int32_t number = 0;
    maps_.read(frame + layout_.instruction, number);
    at = int64_t{number} * layout_.unit;
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
  bool has_line = true;
  if (const std::string_view real = real_file(frame, row.file, has_line); !real.empty()) {
    row.file = real;
    if (!has_line) row.line = 0;
  }
  return true;
}

/// Returns the code object of a frame; 0 for a frame of the interpreter itself.
uint64_t Reader::code_of(uint64_t frame) const {
  const uint64_t code = pointer(frame + layout_.code) & ~uint64_t{3};  // 3.14 tags the pointer
  return pointer(code + kType) == names_.code_type ? code : 0;
}

/// Finds the program's own file, which is that of the outermost frame. Returns true if the program
/// is `python -c`.
bool Reader::find_script(uint64_t frame) {
  constexpr unsigned kOutermost = 16;
  uint64_t codes[kOutermost] = {};
  unsigned count = 0;
  for (int depth = 0; frame != 0 && depth < kDeepest; ++depth) {
    if (const uint64_t code = code_of(frame); code != 0) codes[count++ % kOutermost] = code;
    frame = pointer(frame + layout_.back);
  }
  for (unsigned i = 1; i <= kOutermost && i <= count; ++i) {
    const size_t used = used_;
    const uint64_t code = codes[(count - i) % kOutermost];
    const std::string_view file = text(pointer(code + layout_.file));
    const std::string_view function = text(pointer(code + layout_.name));
    if (file == kString && function == "<module>") {
      used_ = used;
      if (count == i || i == kOutermost) return true;
      const uint64_t inner = codes[(count - i - 1) % kOutermost];
      const bool is_child =
          starts_child(text(pointer(inner + layout_.file)), text(pointer(inner + layout_.name)));
      used_ = used;
      return !is_child;
    }
    const bool is_users = whose_code(file, function, false) != Whose::kPythons;
    if (is_users && owners_.set_script(file)) return false;
    used_ = used;
  }
  return false;
}

const char* Reader::walk(uint64_t thread, Stack& to) {
  uint64_t frame = pointer(thread + layout_.thread_frame);
  if (layout_.current >= 0) frame = pointer(frame + static_cast<uint64_t>(layout_.current));
  to.shown = Stack::kMostPython;
  FrameChoice choice;
  const bool is_command = find_script(frame);
  size_t last = 0;
  // The frame that the message names, if it is further out than there is room for.
  uint64_t far_frame = 0;
  uint64_t far_code = 0;
  for (int depth = 0; frame != 0 && depth < kDeepest; ++depth) {
    const uint64_t this_frame = frame;
    const uint64_t code = code_of(frame);
    frame = pointer(frame + layout_.back);
    if (code == 0) continue;
    const bool full = to.python_count == Stack::kMostPython;
    if (full && choice.is_final()) {
      to.python_cut = true;
      break;
    }
    const size_t used = used_;
    PythonFrame row;
    const bool shown = read(this_frame, code, row);
    if (full) used_ = used;
    if (!shown) continue;
    Whose whose = Whose::kPythons;  // This does not matter once the choice is final.
    if (!choice.is_final()) {
      whose = owners_.whose(row.file, whose_code(row.file, row.function, is_command));
    }
    const bool chosen = choice.takes(whose, row.file, row.function);
    if (full) {
      to.python_cut = true;
      if (!chosen) continue;
      far_frame = this_frame;
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

const char* read_python(const Maps& maps, Stack& to, PythonRoom& room, PythonFrames& frames) {
  Symbols names;
  const bool found = find_python(maps, names);
  Layout layout;
  if (!found || !find_layout(maps, names, layout)) {
    uint8_t unknown = PythonFrames::kUnknown;
    frames.state.compare_exchange_strong(unknown, PythonFrames::kNoFrames,
                                         std::memory_order_relaxed);
    return found ? kUnknownPython : kNoPython;
  }
  if (names.is_initialized() == 0) return "Python is not initialised";
  for (auto* is_finalizing : names.is_finalizing) {
    if (is_finalizing != nullptr && is_finalizing() != 0) return "Python is finalizing";
  }
  if (names.main != nullptr && names.newest() != names.main()) return "sub-interpreters";
  const uint64_t thread = names.thread_state();
  if (thread == 0) return "not a thread of Python's";
  const char* missing = Reader(maps, names, layout, room).walk(thread, to);
  // Frames of the right type show that this build of CPython has the offsets of the table.
  if (missing == nullptr) keep(maps, names, layout, frames);
  return missing;
}

/// Adds the characters of a string. Returns false for one of a derived class, which has them
/// elsewhere.
static bool add_text(const PythonFrames& frames, uint64_t object, Hash& hash) {
  uint32_t state = 0;
  uint64_t length = 0;
  memcpy(&state, reinterpret_cast<const void*>(object + kState), sizeof state);
  memcpy(&length, reinterpret_cast<const void*>(object + kLength), sizeof length);
  if ((state & kIsCompact) == 0) return false;
  uint64_t at = object + ((state & kIsAscii) != 0 ? frames.ascii : frames.compact);
  uint64_t left = length * width_of(state);
  uint64_t word = 0;
  for (hash.add(left); left >= sizeof word; left -= sizeof word, at += sizeof word) {
    memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
    hash.add(word);
  }
  for (; left != 0; --left, ++at) word = word << 8 | *reinterpret_cast<const uint8_t*>(at);
  hash.add(word);
  return true;
}

bool add_python(const PythonFrames& frames, Hash& hash) {
  const uint8_t state = frames.state.load(std::memory_order_acquire);
  if (state == PythonFrames::kNoFrames) return true;
  if (state != PythonFrames::kKnown) return false;
  if (frames.is_initialized() == 0) return true;
  for (auto* is_finalizing : frames.is_finalizing) {
    if (is_finalizing != nullptr && is_finalizing() != 0) return true;
  }
  if (frames.main != nullptr && frames.newest() != frames.main())
    return true;  // read_python() gives up, too
  const auto pointer = [](uint64_t at) {
    uint64_t value = 0;
    memcpy(&value, reinterpret_cast<const void*>(at), sizeof value);
    return value;
  };
  const uint64_t thread = frames.thread_state();
  if (thread == 0) return true;
  uint64_t frame = pointer(thread + frames.thread_frame);
  if (frames.current >= 0 && frame != 0)
    frame = pointer(frame + static_cast<uint64_t>(frames.current));
  bool is_exec = false;
  for (int depth = 0; frame != 0; ++depth, frame = pointer(frame + frames.back)) {
    if (depth == kDeepest) return false;
    const uint64_t code = pointer(frame + frames.code) & ~uint64_t{3};  // as in walk()
    if (code == 0 || pointer(code + kType) != frames.code_type) continue;
    int64_t at = 0;
    if (frames.bytecode != 0) {
      at = static_cast<int64_t>(pointer(frame + frames.instruction) - code - frames.bytecode);
    } else {
      int32_t number = 0;
      memcpy(&number, reinterpret_cast<const void*>(frame + frames.instruction), sizeof number);
      at = int64_t{number} * frames.unit;
    }
    const uint64_t file = pointer(code + frames.file);
    // No first instruction is a call. Nuitka's frames have none, so read_python() finds their line.
    // The frame with which 3.12 enters its interpreter stays at the first one, too.
    constexpr std::string_view kShim = "<shim>";
    const bool shim =
        pointer(file + kLength) == kShim.size() &&
        memcmp(reinterpret_cast<const void*>(file + frames.ascii), kShim.data(), kShim.size()) == 0;
    // The texts of two files that exec() runs may have the same address and line. Only a look at
    // their variables tells them apart, unless the text is the whole program (python -c).
    if (!shim && is_exec) return false;
    is_exec = is_exec || (pointer(file + kLength) == sizeof kString - 1 &&
                          memcmp(reinterpret_cast<const void*>(file + frames.ascii), kString,
                                 sizeof kString - 1) == 0);
    if (!shim && (at == 0 || (frames.bytecode == 0 && at < 0))) return false;
    // A later code object may have the same address, and its file's name, too. It is of another
    // line, though, or that name has other characters.
    hash.add(code)
        .add(static_cast<uint64_t>(at))
        .add(static_cast<uint64_t>(frames.line(code, static_cast<int>(at))));
    if (!add_text(frames, file, hash)) return false;
  }
  return true;
}

}  // namespace cudaguard
