// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/lines.h"

#include "policy/message.h"
#include "policy/text.h"
#include "shim/launcher/findings/records.h"

namespace cudaguard::launcher {

void Lines::feed(std::string_view part) {
  for (size_t end = part.find('\n'); end != std::string_view::npos; end = part.find('\n')) {
    if (rest_.empty() && !skipping_) {
      take_(head(part, end));
    } else {
      rest_.append(head(part, end));
      finish();
    }
    part.remove_prefix(end + 1);
  }
  if (!skipping_) rest_.append(part);
  if (rest_.size() <= kMaxRecord) return;
  // If a writer was killed, its record has no newline.
  const size_t mark = rest_.rfind(kRecordMark);
  if (mark != std::string::npos && mark != 0) {
    take_(head(rest_, mark));
    rest_.erase(0, mark);
  } else {
    skipping_ = true;
    rest_.clear();
  }
}

void Lines::finish() {
  if (skipping_) {
    take_({});
  } else if (!rest_.empty()) {
    take_(rest_);
  }
  rest_.clear();
  skipping_ = false;
}

}  // namespace cudaguard::launcher
