// SPDX-License-Identifier: Apache-2.0
// verify --json, as verify.schema.json has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/launcher/findings/model.h"
#include "shim/launcher/print/symbols.h"

namespace cudaguard::launcher {

/// `indent`: as Json's. `most_stacks`: so many attempts have their stacks, those that fail first.
std::string document(const Verdict& verdict, Symbols& symbols, unsigned indent = 1,
                     size_t most_stacks = SIZE_MAX);

}  // namespace cudaguard::launcher
