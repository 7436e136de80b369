// SPDX-License-Identifier: Apache-2.0
// The driver's last answer, shared by all launches of one user. A file holds it: below
// /run/cudaguard for root, below XDG_RUNTIME_DIR or /run/user for others, who also read root's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "shim/launcher/child/variables.h"

namespace cudaguard::launcher {

struct Health {
  bool healthy = false;
  std::string reason;  ///< a clause: "the driver did not answer in 10 s"; empty if healthy
  std::chrono::milliseconds took{0};
  /// The limit that was too short, if there was no answer in time; otherwise 0. A launch that would
  /// wait longer does not use this answer.
  std::chrono::milliseconds limit{0};
  int gpus = 0;
  std::chrono::milliseconds at{0};  ///< when it was written; time since boot
  // These are not in the file:
  pid_t stuck = 0;    ///< as in DriverAnswer
  bool asked = true;  ///< false: this process could not ask, so the answer is not for others
};

/// How long an answer is valid.
inline constexpr std::chrono::seconds kValid{60};

class AnswerCache {
 public:
  /// `question` is what the answer depends on. If there is no directory, the cache stays empty.
  AnswerCache(const std::string& question, const Variables& variables);
  ~AnswerCache();
  AnswerCache(const AnswerCache&) = delete;
  AnswerCache& operator=(const AnswerCache&) = delete;

  /// The answer to this question, if there is one from this boot that is not older than `age`.
  /// Trusts only a file of this user or root that no one else can write.
  std::optional<Health> read(std::chrono::milliseconds age = kValid) const;
  /// Makes this process the one that asks. Returns false if another process asks now. True if there
  /// is no directory. The end of this process undoes it.
  bool lock();
  /// Call this with the lock. The file has the whole answer or the old one at any time.
  void write(const Health& health) const;

 private:
  std::string name_;
  std::string question_;
  int directory_ = -1;        ///< ours
  int roots_directory_ = -1;  ///< root's, if that is another one
  int lock_ = -1;
};

}  // namespace cudaguard::launcher
