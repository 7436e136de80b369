// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard::launcher {

/// A pipe whose ends are none of 0-2, which may be closed where we are started, and stay with this
/// process (O_CLOEXEC).
class Pipe {
 public:
  /// made() is false and errno says why, where there can be none.
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool made() const { return ends_[0] >= 0 && ends_[1] >= 0; }
  /// 0 to read from, 1 to write to; -1: closed.
  int end(int which) const { return ends_[which]; }
  void close_end(int which);

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace cudaguard::launcher
