// SPDX-License-Identifier: Apache-2.0
#include "policy/text/attempt.h"

#include "policy/text.h"
#include "policy/text/user_code.h"

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

std::string_view take_argument(std::string_view& arguments) {
  const std::string_view argument = head(arguments, arguments.find('\0'));
  arguments = tail(arguments, argument.size() + 1);
  return argument;
}

const PythonFrame* named_frame(const Attempt& attempt) {
  return attempt.stack == nullptr ? nullptr : attempt.stack->named();
}

std::string_view library_of(const Attempt& attempt) {
  std::string_view program = attempt.program;
  const std::string_view name = base_name(take_argument(program));
  const std::string_view file = base_name(attempt.caller.module);
  if (file.empty()) return name.empty() ? "code outside any file" : "generated code";
  return is_foreign_function(file) && has_python(attempt, name) ? "ctypes/cffi" : file;
}

}  // namespace cudaguard
