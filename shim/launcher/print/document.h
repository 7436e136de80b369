// SPDX-License-Identifier: Apache-2.0
// Writes the JSON of verify --json (verify.schema.json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// `indent` as in Json. Only `most_stacks` attempts get their stacks, failing ones first.
std::string document(const Verdict& verdict, unsigned indent = 1, size_t most_stacks = SIZE_MAX);

}  // namespace cudaguard::launcher
