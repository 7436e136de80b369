// SPDX-License-Identifier: Apache-2.0
// Answers the system calls that the seccomp filter hands to the launcher (fence/filter.h): ioctls
// of NVIDIA's driver, and beacons.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct seccomp_notif;

namespace cudaguard::launcher {

class Listener {
 public:
  /// Called before the calling thread gets its answer. May throw.
  using Take = std::function<void(const seccomp_notif& call)>;
  /// Takes over `descriptor`, which is Fence::listener.
  Listener(int descriptor, Take request, Take beacon);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// For poll(2): readable while a thread waits for an answer.
  int descriptor() const { return descriptor_; }
  /// Answers the threads that wait now, at most 256 of them. Does not block or throw. Returns false
  /// if the descriptor is unusable from now on; the kernel then answers ENOSYS.
  bool answer() noexcept;
  /// Returns false if the thread was killed meanwhile. Its id may then belong to another thread.
  bool still_waits(const seccomp_notif& call) const;
  /// True if a call could not be received or recorded.
  bool failed() const { return failed_; }

 private:
  int descriptor_;
  Take request_;
  Take beacon_;
  std::vector<uint64_t> calls_;    ///< room for a seccomp_notif of this kernel's size
  std::vector<uint64_t> answers_;  ///< the same for a seccomp_notif_resp
  bool failed_ = false;
};

}  // namespace cudaguard::launcher
