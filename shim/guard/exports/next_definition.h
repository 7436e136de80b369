// SPDX-License-Identifier: Apache-2.0
// The next definition of a name that the guard exports.
#pragma once

#include "shim/guard/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct NextDefinition {
  void* function;  ///< null under FORCE_CPU, or if there is none
  Process* process;

  /// Returns the function with the type of `like`.
  template <typename Function>
  [[gnu::always_inline]] Function* as(Function* /*like*/) const {
    return reinterpret_cast<Function*>(function);
  }
};

/// Finds the next definition of `name`, which must be a constant. Under OFF, and for the runtime's
/// functions, this is the definition that the caller would have reached without us. Otherwise it is
/// the proxy's. Fast enough for calls in loops (scripts/bench, F1).
NextDefinition next_definition(const char* name, const void* caller);

/// Returns the kept result of an earlier next_definition(); its function is null if there is none.
[[gnu::always_inline]] inline NextDefinition known_definition(const char* name,
                                                              const void* caller) {
  Process* process = inherited.process.load(std::memory_order_acquire);
  void* known;
  if (process != nullptr &&
      process->exports.answers.know(
          name, caller, inherited.hook.answers_age.load(std::memory_order_relaxed), known))
      [[likely]] {
    return {known, process};
  }
  return {nullptr, nullptr};
}

}  // namespace cudaguard

#define CG_CALLER __builtin_return_address(0)
#define CG_NEXT(name) next_definition(#name, CG_CALLER)
