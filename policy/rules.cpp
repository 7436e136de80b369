// SPDX-License-Identifier: Apache-2.0
#include "policy/rules.h"

#include "policy/text.h"
#include "policy/variables.h"

namespace cudaguard {

std::string_view name_of(Policy policy) {
  std::string_view words = row_of(Variable::kPolicy).accepted;
  for (size_t place = 0; place < static_cast<size_t>(policy); ++place) take_word(words);
  return take_word(words);
}

}  // namespace cudaguard
