// SPDX-License-Identifier: Apache-2.0
// Answers those that run into the fence, and says who they are: processes that the guard is not in,
// or that have gone around it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "shim/launcher/observe/process.h"

struct seccomp_notif;

namespace cudaguard::launcher {

class Witness {
 public:
  /// Of each process and request once: its number, while it waits for the answer (0: it was killed
  /// before that), and the record.
  using Tell = std::function<void(pid_t pid, std::string_view record)>;
  /// `descriptor`: Fence::witness, which becomes this one's.
  Witness(int descriptor, Tell tell);
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// For poll(2): it can be read where somebody waits.
  int descriptor() const { return descriptor_; }
  /// Answers ENODEV to those that wait now, or to the first of very many. Waits for nobody, throws
  /// nothing: they wait for us. False: never again, and the kernel answers (ENOSYS).
  bool answer() noexcept;
  /// In the end: tells of those that were gone before they were looked at, by their numbers alone,
  /// unless they were told of at another time.
  void finish() noexcept;
  /// Who was not told: a clause, or empty.
  std::string doubt() const;

 private:
  /// A process or thread, the program in it, which of NVIDIA's requests (sizes differ), and: with
  /// NVML and without CUDA?
  using Key = std::tuple<pid_t, uint64_t, Image, uint32_t, bool>;
  void note(const seccomp_notif& asks);
  bool still_waits(uint64_t id) const;
  std::string record_of(const Owner& owner, pid_t thread, pid_t parent, uint32_t request,
                        bool nvml) const;

  int descriptor_;
  Tell tell_;
  std::vector<uint64_t> asks_;     ///< room for a seccomp_notif of this kernel's size
  std::vector<uint64_t> answers_;  ///< likewise, seccomp_notif_resp
  std::string host_;
  const bool can_look_ = has_own_numbers();  ///< else of nobody more is known than the number
  std::set<Key> told_;
  /// What was asked by processes that were gone before they were looked at; threads, where whose is
  /// not known.
  std::map<pid_t, uint32_t> lost_;
  bool failed_ = false;
};

}  // namespace cudaguard::launcher
