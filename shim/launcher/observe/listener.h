// SPDX-License-Identifier: Apache-2.0
// Answers the system calls that the seccomp filter hands to the launcher (fence/filter.h), and
// makes records of them. Beacons come from the guards (shim/guard/text/beacon.h): their registers
// are enough to count a CUDA attempt, and the memory of the waiting thread has the details. NVIDIA
// ioctls come from processes that bypassed the guard. An execve goes on after it was judged
// (observe/start.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "shim/guard/text/beacon.h"
#include "shim/launcher/observe/keeper.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/unwind/unwind.h"

struct seccomp_data;
struct seccomp_notif;

namespace cudaguard::launcher {

class Listener {
 public:
  /// Called with the process, the kind of its beacon, a record of the report format, and the native
  /// stack of an attempt, before the calling thread gets its answer. Returns false if the record is
  /// not of that kind. There is no kind for an ioctl, of which it is called once for each process
  /// and ioctl. If the process was killed before it could be identified, `who.stat.started` is 0.
  /// May throw.
  using Report = std::function<bool(const Identity& who, std::optional<Beacon> what,
                                    std::string_view record, const NativeStack& native)>;
  /// Called for each start beacon, before the calling thread gets its answer. `off`: its policy is
  /// OFF. Returns the program's arguments; empty if they are not known. `Report` comes afterwards.
  /// May throw.
  using Begin = std::function<std::string(const Identity& who, bool off)>;
  /// Called for each execve before it goes on. Reads the waiting thread, and then lets it go on by
  /// `go_on`, which returns false if the call does not count: the thread was killed, or repeats it,
  /// or the keeper has answered it. May throw.
  using Exec = std::function<void(const Identity& who, const seccomp_data& call,
                                  const std::function<bool()>& go_on)>;
  /// Takes over `descriptor`, which is Fence::listener. `keeper` has it, too. Throws Refusal.
  Listener(int descriptor, Keeper& keeper, Report report, Begin begin, Exec exec);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// For poll(2): readable while a thread waits for an answer. -1: it is closed.
  int descriptor() const { return descriptor_; }
  /// Answers one thread, if any waits (Keeper::receive). Does not throw. If the descriptor is
  /// unusable from now on, the keeper answers.
  void answer() noexcept;
  /// Call this at the end of the run: reports the announced attempts whose record never came, and
  /// the processes that ended before they were examined, by their ids alone.
  void finish() noexcept;
  /// Clauses about what was lost.
  std::vector<std::string> doubts() const;

 private:
  /// What a process has announced, with the record to report if it ends before it sends its own.
  struct Announcement {
    Identity who;
    std::string record;
  };
  /// By thread and kind.
  using Announced = std::map<std::pair<pid_t, Beacon>, Announcement>;
  /// A process, the program in it, the NVIDIA ioctl without its size, and whether NVML made the
  /// ioctl without CUDA.
  using Ioctl = std::tuple<pid_t, uint64_t, Image, uint32_t, bool>;

  void handle(const seccomp_notif& call) noexcept;
  void take_start(const seccomp_notif& call, const std::function<bool()>& go_on);
  void take_beacon(const seccomp_notif& call);
  void take_ioctl(const seccomp_notif& call);
  void report_ended(const Announced::value_type& one);
  /// Reports what earlier programs of this process or of this thread's id have announced. They have
  /// ended, because another one runs there now.
  void report_ended_by(const Identity& who, Announced::iterator from, Announced::iterator to);

  int descriptor_;
  Keeper& keeper_;
  Report report_;
  Begin begin_;
  Exec exec_;
  bool failed_ = false;  ///< a call could not be received or recorded
  Announced announced_;
  size_t bytes_ = 0;  ///< of all records of beacons so far
  bool too_many_ = false;
  std::set<Ioctl> reported_;
  /// The ioctls of processes that ended before they were examined. The key is the thread if the
  /// process is not known.
  std::map<pid_t, uint32_t> lost_;
};

}  // namespace cudaguard::launcher
