// SPDX-License-Identifier: Apache-2.0
// What is behind one of the names that the guard exports.
#pragma once

#include "shim/state/process.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

struct NextDefinition {
  void* function;  ///< null under FORCE_CPU, and where there is none
  Process* process;

  /// With the type of `like`.
  template <typename Function>
  [[gnu::always_inline]] Function* as(Function* /*like*/) const {
    return reinterpret_cast<Function*>(function);
  }
};

/// Of `name`, a constant: under OFF, and for the runtime's functions, what the caller would have
/// reached without us; else the proxy's. Made for calls in loops: limit 3 ns, scripts/bench F1.
NextDefinition next_definition(const char* name, const void* caller);

}  // namespace cudaguard

#define CG_CALLER __builtin_return_address(0)
#define CG_NEXT(name) next_definition(#name, CG_CALLER)
