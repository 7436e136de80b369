// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/stack.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostFrames = 10;
constexpr size_t kLastFrames = 2;          ///< of these, the outermost ones
constexpr std::string_view kRow = "    ";  ///< before the rows of a place
constexpr std::string_view kMark = "> ";   ///< the user's own line
constexpr size_t kLabel = 9;               ///< "python   "
constexpr const char* kMissing = "not available: ";

/// The path as a reader knows it: relative to this directory, otherwise whole. In a package, the
/// part after site-packages; in the standard library, "python3.11/json/decoder.py".
std::string short_file(const std::string& file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(part);
    if (at != std::string::npos) return printable(tail(file, at + part.size()));
  }
  for (const std::string_view part : {"/lib/python3", "/lib64/python3"}) {
    const size_t at = file.find(part);
    if (at != std::string::npos) return printable(tail(file, file.find('p', at)));
  }
  const std::unique_ptr<char, void (*)(void*)> directory(getcwd(nullptr, 0), free);
  const std::string here = directory == nullptr ? "/" : std::string(directory.get()) + "/";
  return printable(file.starts_with(here) ? tail(file, here.size()) : std::string_view(file));
}

std::string row_of(const NativeFrame& frame, Symbols& symbols) {
  const std::string module = printable(base_name(frame.module));
  const std::string name = printable(symbols.name_of(frame));
  const std::string line = symbols.line_of(frame);
  if (!line.empty()) return short_file(line) + (name.empty() ? "" : " in " + name);
  if (!name.empty()) return module + ": " + name;
  return text_of([&](Text& out) { out.put(module).put("+").put_hex(frame.offset); });
}

/// Omits the interpreter's own frames if there are Python frames.
std::vector<NativeFrame> native_frames(const Stack& stack) {
  const auto is_interpreter = [](const NativeFrame& frame) {
    const std::string_view file = base_name(frame.module);
    return file.starts_with("libpython") || file.starts_with("python");
  };
  auto end = stack.native.end();
  if (!stack.python.empty()) {
    end = std::find_if(stack.native.begin(), stack.native.end(), is_interpreter);
  }
  return {stack.native.begin(), end};
}

/// Returns whether there was a frame. Marks the frame that the guard's message names.
bool put_python(std::string& out, const CallSite& toucher) {
  const std::vector<PythonFrame>& frames = toucher.stack.python;
  const PythonFrame* named = own_frame(toucher);
  std::vector<std::string> rows;
  rows.reserve(frames.size());
  for (const PythonFrame& one : frames) rows.push_back(row_of(one));
  const size_t own = named == nullptr ? kNoFrame : static_cast<size_t>(named - frames.data());
  // A single frame repeats the title.
  if (rows.size() > 1 || own == kNoFrame) put_frames(out, "python", rows, own);
  return !frames.empty();
}

}  // namespace

std::string row_of(const PythonFrame& frame) {
  return short_file(frame.file) + ":" + std::to_string(frame.line) + " in " +
         printable(frame.function);
}

void put_frames(std::string& out, std::string_view label, const std::vector<std::string>& rows,
                size_t own) {
  std::string start = std::string(kRow) + std::string(label);
  start.resize(kRow.size() + kLabel, ' ');
  const auto put = [&](const std::string& row) {
    add_row(out, start + row);
    start.assign(kRow.size() + kLabel, ' ');
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool late = i >= kMostFrames - kLastFrames && i + kLastFrames < rows.size();
    if (rows.size() <= kMostFrames || !late || i == own) {
      put((i == own ? std::string(kMark) : "") + rows[i]);
      continue;
    }
    size_t next = rows.size() - kLastFrames;
    if (own > i && own < next) next = own;
    put("... " + std::to_string(next - i) + " more");
    i = next - 1;
  }
}

void put_stack(std::string& out, const CallSite& toucher, Symbols& symbols) {
  const Stack& stack = toucher.stack;
  const std::vector<NativeFrame> native = native_frames(stack);
  std::vector<std::string> rows;
  rows.reserve(native.size() + 1);
  for (const NativeFrame& frame : native) rows.push_back(row_of(frame, symbols));
  size_t own = kNoFrame;
  if (!put_python(out, toucher)) {
    const NativeFrame* frame = own_frame(native, symbols);
    if (frame != nullptr) own = static_cast<size_t>(frame - native.data());
    if (own != kNoFrame) add_row(out, std::string(kRow) + std::string(kMark) + rows[own]);
    const std::string& reason = stack.python_missing;
    if (!reason.empty() && reason != kNoPython)
      put_frames(out, "python", {kMissing + printable(reason)});
  }
  const bool is_said = rows.size() == 1 && own == 0;
  if (!stack.native_missing.empty()) {
    // At most the caller is known.
    rows.push_back(std::string(rows.empty() ? "" : "its callers: ") + kMissing +
                   printable(stack.native_missing));
  }
  if (is_said) rows.erase(rows.begin());
  put_frames(out, "native", rows, is_said ? kNoFrame : own);
}

}  // namespace cudaguard::launcher
