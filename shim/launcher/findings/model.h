// SPDX-License-Identifier: Apache-2.0
// The model of all records of one run or of many jobs, which is printed as text, JSON, JUnit and
// HTML. Its texts are as in the records, not yet escaped for a terminal or a page.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "policy/driver_api.h"
#include "shim/launcher/findings/command.h"
#include "shim/launcher/findings/stack.h"

namespace cudaguard::launcher {

/// Extends `span.first` and `span.last` to these times. A time of 0 is unknown.
void note_times(double first, double last, auto& span) {
  if (first != 0 && (span.first == 0 || first < span.first)) span.first = first;
  span.last = std::max(span.last, last);
}

/// One call by one piece of code, in one process or many.
struct CallSite {
  DriverApi asked = DriverApi::kCuda;
  bool denied = true;
  std::string api;      ///< "cuInit", "nvmlInit_v2", "dlopen"
  std::string object;   ///< for dlopen, the library's name or path; for an ioctl, which one
  std::string library;  ///< the caller as in the guard's message: "libc10_cuda.so", "ctypes/cffi"
  std::string started_by;  ///< as in the guard's message; for a tool such as nvidia-smi, and for a
                           ///< deleted script
  bool passes_on = false;  ///< the library only passes calls on, so another one has called it
  std::string line;        ///< the user's line as in the guard's message: "ppo.py:159"; for native
                           ///< code "app.cpp:12", by name_frames(); may be empty
  Stack stack;
  double first = 0;               ///< seconds since 1970-01-01 UTC; 0: unknown
  double last = 0;                ///< the same
  std::vector<size_t> processes;  ///< indexes into Findings::processes, each once
  std::vector<double> at;         ///< the time of the first attempt, for each of these
  // By decide(), for a verify run.
  bool counts = false;            ///< --deny names this kind of attempt
  std::vector<size_t> forbidden;  ///< the processes that fail the run
  /// True if the process bypassed the guard and the fence saw it: no stack, no library.
  bool bypassed_guard() const { return api == kRequestApi; }
};

/// What the user can change: a line of their code with all its attempts. If no line is known, the
/// user's own library or program that made the attempts.
struct Place {
  std::string name;               ///< "/home/u/ppo.py:159", "libfoo.so", "bypassing the guard"
  std::string line;               ///< "ppo.py:159"; empty if unknown
  std::vector<size_t> sites;      ///< indexes into Findings::sites
  std::vector<size_t> processes;  ///< as in CallSite
  std::vector<double> at;         ///< as in CallSite
  std::set<DriverApi> asked;
  double first = 0;
  double last = 0;
  // By decide(), for its sites.
  bool counts = false;
  std::vector<size_t> forbidden;
};

inline constexpr uint32_t kNoUid = UINT32_MAX;  ///< unknown

/// One copy serves all processes with the same text.
using SharedText = std::shared_ptr<const std::string>;

struct ObservedProcess {
  // The identity of the process.
  std::string host;
  uint32_t pid = 0;
  uint32_t ppid = 0;
  uint64_t since = 0;                  ///< start time in clock ticks since boot; 0: unknown
  std::array<uint64_t, 4> image = {};  ///< of its program (observe/process.h); last 0: unknown
  uint32_t uid = kNoUid;
  std::string exe;
  Command command;
  std::string job;  ///< "slurm:1234", "kubernetes:POD", "systemd:UNIT"; may be empty
  // Times in seconds since 1970-01-01 UTC; 0: unknown.
  double started = 0;  ///< from its start record (CUDAGUARD_HELLO)
  double first = 0;    ///< its first record of any kind
  double last = 0;     ///< its last record
  std::string policy;  ///< from its start record; empty: there was none
  // Facts from its records.
  bool initialised = false;
  std::string by;                   ///< the file that called cuInit, without its directories
  std::string visible_devices;      ///< the list of devices that the driver got; empty: no list
  std::set<int> contexts;           ///< devices
  bool memory = false;              ///< asked for GPU memory by a call that names no device
  bool worked = false;              ///< loaded code
  bool nvml = false;                ///< was allowed to use NVML
  bool found_none = false;          ///< asked the driver, which reported no GPU
  bool failed = false;              ///< asked the driver, which reported an error
  bool in_vain = false;             ///< asked, and got no CUDA or NVML that it could use
  std::vector<SharedText> tried;    ///< for these two: "found no GPU by libx.so", each once
  std::vector<SharedText> refused;  ///< "cuInit by libx.so", each once
  SharedText rule;                  ///< that gave its policy, "/etc/cudaguard.conf:7"; null: none
  bool only_start = true;           ///< has no record but its start record
  bool by_guard = false;            ///< its guard has sent or written a record of a call
  bool last_place = false;          ///< has asked from more places than a guard records
  std::set<DriverApi>
      not_loaded;               ///< libraries that were refused, because a file of ours is unusable
  std::set<DriverApi> exposed;  ///< libraries whose symbols the guard could not change
  bool asked() const { return !only_start; }
};

/// A machine on which `run --if-healthy` started programs without CUDA.
struct SickDriver {
  std::string host;
  std::string reason;  ///< of the last launch: "the driver did not answer in 10 s"
  size_t programs = 0;
  double first = 0;
  double last = 0;
};

/// Processes, sites and places are in the order of their first records.
struct Findings {
  std::deque<ObservedProcess> processes;  ///< hundreds of thousands: never moved
  std::vector<CallSite> sites;
  std::vector<Place> places;              ///< by group_by_place()
  std::vector<SickDriver> sick_drivers;   ///< one per host
  std::map<uint32_t, std::string> users;  ///< their names, if this machine knows them
  double since = 0;                       ///< `report --since`; 0: all records count
  size_t older = 0;                       ///< records from before
  size_t records = 0;
  size_t not_understood = 0;  ///< lines that no guard has written
  size_t torn = 0;            ///< records that are incomplete because their writer was killed
};

}  // namespace cudaguard::launcher
