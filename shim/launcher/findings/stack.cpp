// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/stack.h"

#include <algorithm>

#include "policy/program.h"
#include "policy/user_code.h"

namespace cudaguard::launcher {

std::string file_and_line(const PythonFrame& frame) {
  return frame.line == 0 ? frame.file : frame.file + ":" + std::to_string(frame.line);
}

const PythonFrame* own_frame(const Stack& stack) {
  const auto own = static_cast<uint64_t>(stack.line_frame);  // -1 becomes too large
  return own < stack.python.size() ? &stack.python[own] : nullptr;
}

const NativeFrame* own_frame(std::span<const NativeFrame> frames) {
  const auto own = std::find_if(frames.begin(), frames.end(), [](const NativeFrame& frame) {
    return !passes_calls_on(frame.module) && !is_interpreter(frame.module) &&
           !is_runtime_function(frame.symbol);
  });
  return own == frames.end() ? nullptr : &*own;
}

}  // namespace cudaguard::launcher
