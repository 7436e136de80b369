// SPDX-License-Identifier: Apache-2.0
#include "policy/policies.h"

#include "policy/text.h"
#include "policy/variables.h"

namespace cudaguard {

std::string_view name_of(Policy policy) {
  return word_at(row_of(Variable::kPolicy).accepted, static_cast<size_t>(policy));
}

}  // namespace cudaguard
