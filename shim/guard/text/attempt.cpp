// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/text/attempt.h"

#include "policy/text.h"
#include "policy/user_code.h"

namespace cudaguard {

namespace {

/// True if the process runs CPython; its name decides if nothing else is known.
bool has_python(const Attempt& attempt, std::string_view program) {
  if (program.empty() || program.starts_with("py")) return true;
  if (attempt.stack == nullptr) return false;
  const char* missing = attempt.stack->python_missing;
  return missing == nullptr ? attempt.stack->python_count != 0
                            : std::string_view(missing) != kNoPython;
}

}  // namespace

std::string_view file_of(const Attempt& attempt) {
  return attempt.file.empty() ? base_name(attempt.caller.module) : attempt.file;
}

const PythonFrame* named_frame(const Attempt& attempt) {
  return attempt.stack == nullptr ? nullptr : attempt.stack->named();
}

PythonFrame named_code(const Attempt& attempt) {
  if (const PythonFrame* frame = named_frame(attempt); frame != nullptr) return *frame;
  if (attempt.stack == nullptr || attempt.stack->python_missing == nullptr) return {};
  const std::string_view missing = attempt.stack->python_missing;
  if (missing != kNoPython && missing != kUnknownPython) return {};
  std::string_view program = attempt.program;
  const Interpreter* interpreter = interpreter_of(base_name(take_argument(program)));
  if (interpreter == nullptr) return {};
  const Script script = script_of(*interpreter, attempt.program, attempt.script);
  return {script.is_module ? std::string_view() : script.name, {}, 0};
}

std::string_view library_of(const Attempt& attempt) {
  std::string_view program = attempt.program;
  const std::string_view name = base_name(take_argument(program));
  const std::string_view file = file_of(attempt);
  if (file.empty()) return name.empty() ? "code outside any file" : "generated code";
  return is_foreign_function(file) && has_python(attempt, name) ? "ctypes/cffi" : file;
}

}  // namespace cudaguard
