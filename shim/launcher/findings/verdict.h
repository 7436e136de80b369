// SPDX-License-Identifier: Apache-2.0
// The result of a verify run: the findings, the tree of processes, and what decide() makes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "policy/driver_api.h"
#include "shim/launcher/findings/model.h"

namespace cudaguard::launcher {

/// The account of the programs that the processes of a tree have started. A process that calls
/// execve twice starts two programs, and a fork starts none.
struct TreeTruth {
  /// By decide(), except kNotWatched.
  enum class Value : uint8_t {
    kNotWatched,  ///< there was no listener
    kAllGuarded,  ///< every started program was guarded
    kUnguarded,   ///< some were unguarded
    kUnknown,     ///< none was known to be unguarded, but the kind of some is not known
  };
  /// A started program that was not guarded, or whose kind is not known.
  struct Unguarded {
    uint32_t pid = 0;
    Command command;          ///< that it was started with; at least the name of its process
    std::string reason;       ///< "static", "its LD_PRELOAD was replaced"; printed after its name
    bool has_driver = false;  ///< maps the driver or has /dev/nvidia* open: worse than unguarded
    double seen = 0;
    bool only_nvml = false;  ///< it maps NVML, and not libcuda
    bool fails = false;      ///< counts as a process that asked for CUDA; by decide()
    bool in_doubt = false;   ///< may have asked for CUDA unseen, and is not allowed; by decide()
    uint64_t since = 0;      ///< as in ObservedProcess
    /// Its file has "/dev/nvidia", "libcuda.so" or "libnvidia-ml.so" in it. This is a heuristic.
    bool names_nvidia = false;
    std::string program = {};  ///< the file, as execve got it: "./stat"; empty if it is not known
  };
  /// Every process that was seen, guarded or not. `last` is its end, to about a tenth of a second.
  struct Seen {
    uint32_t pid = 0;
    uint32_t ppid = 0;
    Command command;
    double first = 0;
    double last = 0;
    bool guarded = false;
    bool heard = false;  ///< the process, or the one it was forked from, has sent a start beacon
    uint64_t since = 0;  ///< as in ObservedProcess
  };
  Value value = Value::kAllGuarded;
  std::vector<Seen> seen;
  size_t guarded = 0;  ///< started programs that a start beacon has confirmed, or our own launcher
  std::vector<Unguarded> unguarded;  ///< one entry for each start
  /// The same; `reason` says why their kind is not known: "its memory cannot be read: another
  /// user's". Also one that should be guarded, and ended without a start beacon. Each makes the
  /// result INCOMPLETE, unless --allow names it.
  std::vector<Unguarded> unknown;
  size_t started() const { return guarded + unguarded.size() + unknown.size(); }
  std::string left;  ///< the processes that were still running; may be empty
  /// Clauses: "there is no /proc"; "train.py (12) sent no start beacon". Each means that an attempt
  /// may be missing, so the result cannot be PASS.
  std::vector<std::string> doubts;
  std::string why_unheard;  ///< why there was no listener, or what it misses; may be empty
};

/// The observations of watch_tree() about a program.
struct WatchedTree {
  Findings findings;
  TreeTruth tree;
  uint32_t pid = 0;    ///< the program's process id
  int status = 0;      ///< the program's, as waitpid returns it
  double started = 0;  ///< seconds since 1970-01-01 UTC
  double ended = 0;
};

/// A verify run: the input of all printers (text, JSON, JUnit, HTML).
struct Verdict : WatchedTree {
  std::vector<std::string> command;  ///< the program and its arguments
  std::vector<std::string> allow;    ///< --allow's patterns
  std::set<DriverApi> deny;          ///< --deny: forbidden unless `allow` matches
  /// With --deny=context: the programs could query the driver.
  bool queries() const { return deny.contains(DriverApi::kContext); }
  bool no_new_privs = false;      ///< the fence needed it: sudo and the like gain nothing
  bool lost_rights = false;       ///< the program itself is such a program
  bool devices_fenced = false;    ///< no GPU device node could be opened
  bool allow_incomplete = false;  ///< --allow-incomplete
  bool strict = false;            ///< --strict: no program may be unguarded
  /// A GPU device node can be opened, and the fence reports the ioctls, so that an unguarded
  /// program that asks for CUDA is noticed.
  bool ioctls_tell = false;
  // By decide().
  enum class Result : uint8_t { kPass, kFail, kIncomplete };
  Result result = Result::kPass;
  size_t processes = 0;  ///< all that were seen
  size_t heard = 0;      ///< processes that sent beacons, or were forked from one that did
  size_t asked = 0;      ///< processes that made a denied attempt
  size_t allowed = 0;    ///< processes that made one and are allowed to
  size_t places = 0;     ///< places that fail the run
  size_t lines = 0;      ///< of these, lines of the user's code
  /// PyTorch made an attempt; it caches the first answer for the rest of the process.
  bool torch_asked = false;
  int exit_code = 0;
  bool passed() const { return result == Result::kPass; }
  bool is_in_doubt() const { return !tree.doubts.empty() || !tree.left.empty(); }
};

}  // namespace cudaguard::launcher
