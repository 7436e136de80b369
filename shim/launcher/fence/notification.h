// SPDX-License-Identifier: Apache-2.0
// A call that the seccomp filter (filter.h) hands to the process with the listener. The calling
// thread waits for an answer.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>

namespace cudaguard::launcher {

/// The flag of an answer that lets the call pass. Older headers lack it.
inline constexpr uint32_t kContinue = 1;

/// True for execve and execveat. Pure.
bool is_exec(const seccomp_data& call);

/// True if a call waits that no process has received.
bool has_call(int listener);
/// Returns 0 or errno; EAGAIN if there is no such call. Blocks if another process receives it at
/// the same time.
int receive_call(int listener, seccomp_notif& to);

/// Returns false if the thread was killed meanwhile, or has its answer. Its id may then belong to
/// another thread.
bool still_waits(int listener, const seccomp_notif& call);

/// Lets execve pass, hears a beacon, refuses an ioctl. Returns false if the thread does not wait.
bool answer_call(int listener, const seccomp_notif& call);

}  // namespace cudaguard::launcher
