// SPDX-License-Identifier: Apache-2.0
// Answers those that the filter hands over (fence/filter.h): requests to NVIDIA's driver, and the
// guards' beacons.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct seccomp_notif;

namespace cudaguard::launcher {

class Listener {
 public:
  /// While it waits for the answer. May throw.
  using Take = std::function<void(const seccomp_notif& call)>;
  /// `descriptor`: Fence::listener, which becomes this one's.
  Listener(int descriptor, Take request, Take beacon);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// For poll(2): it can be read where somebody waits.
  int descriptor() const { return descriptor_; }
  /// Answers those that wait now, or the first of very many. Waits for nobody, throws nothing: they
  /// wait for us. False: never again, and the kernel answers (ENOSYS).
  bool answer() noexcept;
  /// False: it was killed meanwhile, and its number may be another one's.
  bool still_waits(const seccomp_notif& call) const;
  /// Not all could be heard or written down.
  bool failed() const { return failed_; }

 private:
  int descriptor_;
  Take request_;
  Take beacon_;
  std::vector<uint64_t> calls_;    ///< room for a seccomp_notif of this kernel's size
  std::vector<uint64_t> answers_;  ///< likewise, seccomp_notif_resp
  bool failed_ = false;
};

}  // namespace cudaguard::launcher
