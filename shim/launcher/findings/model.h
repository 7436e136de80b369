// SPDX-License-Identifier: Apache-2.0
// What the records of one run, or of many jobs, say: put together once, shown as text, JSON, JUnit
// and HTML. Texts are as the records have them, not for a terminal or a page yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "policy/driver_api.h"

namespace cudaguard::launcher {

struct PythonFrame {
  std::string file;
  std::string function;
  uint32_t line = 0;
  auto operator<=>(const PythonFrame&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct NativeFrame {
  std::string module;   ///< full path
  uint64_t offset = 0;  ///< bytes from the start of the file; a return address
  auto operator<=>(const NativeFrame&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Innermost frame first. Where there are no frames, the reason.
struct Stack {
  std::vector<PythonFrame> python;
  std::vector<NativeFrame> native;
  std::string python_missing;
  std::string native_missing;
  auto operator<=>(const Stack&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The same call by the same code, in one process or many.
struct CallSite {
  DriverApi asked = DriverApi::kCuda;
  bool denied = true;
  std::string api;      ///< "cuInit", "nvmlInit_v2", "dlopen"
  std::string object;   ///< of dlopen: the library's name or path; of a request: which
  std::string library;  ///< who called, as the guard's line has it: "libc10_cuda.so", "ctypes/cffi"
  std::string line;     ///< the user's own, as the guard's line has it: "ppo.py:159"; of native
                        ///< code "app.cpp:12", by name_own_lines(); may be empty
  Stack stack;
  double first = 0;               ///< seconds since 1970-01-01 UTC; 0: not known
  double last = 0;                ///< likewise
  std::vector<size_t> processes;  ///< numbers in Findings::processes, each once
  std::vector<double> at;         ///< for each of these, when it first did so
  // By decide(), for a verify run.
  bool counts = false;            ///< --deny names what it asked for
  std::vector<size_t> forbidden;  ///< those of the processes that fail the run
  /// It spoke to the driver itself, and the kernel's fence saw it: no stack, no library.
  bool around_guard() const { return api == kRequestApi; }
};

/// What a person can change: a line of the user's code with all that it asked for. Where no line is
/// known, the user's own library or program that asked.
struct Place {
  std::string name;               ///< "/home/u/ppo.py:159", "libfoo.so", "around the guard"
  std::string line;               ///< "ppo.py:159"; empty: no line is known
  std::vector<size_t> touchers;   ///< numbers in Findings::touchers
  std::vector<size_t> processes;  ///< as Toucher's
  std::vector<double> at;         ///< as Toucher's
  std::set<DriverApi> asked;
  double first = 0;
  double last = 0;
  // By decide(): of its touchers.
  bool counts = false;
  std::vector<size_t> forbidden;
};

/// A list that many processes have alike: one copy of it.
class Texts {
 public:
  using List = std::vector<std::string>;
  Texts() = default;
  Texts(std::initializer_list<std::string> texts) : list_(std::make_shared<List>(texts)) {}
  const List& list() const {
    static const List none;
    return list_ == nullptr ? none : *list_;
  }
  bool empty() const { return list_ == nullptr; }
  size_t size() const { return list().size(); }
  const std::string& operator[](size_t i) const { return list()[i]; }
  List::const_iterator begin() const { return list().begin(); }
  List::const_iterator end() const { return list().end(); }
  /// The list with one more.
  Texts with(const std::string& text) const {
    auto longer = std::make_shared<List>(list());
    longer->push_back(text);
    Texts result;
    result.list_ = std::move(longer);
    return result;
  }

 private:
  std::shared_ptr<const List> list_;
};

inline constexpr uint32_t kNoUid = UINT32_MAX;  ///< not known

struct ObservedProcess {
  // Who it is.
  std::string host;
  uint32_t pid = 0;
  uint32_t ppid = 0;
  uint64_t since = 0;  ///< its start in clock ticks since boot; 0: unknown
  uint32_t uid = kNoUid;
  std::string exe;
  std::string command;  ///< its words
  std::string job;      ///< "slurm:1234", "kubernetes:POD", "systemd:UNIT"; may be empty
  // When: seconds since 1970-01-01 UTC; 0: not known.
  double started = 0;  ///< from its start record (CUDAGUARD_HELLO)
  double first = 0;    ///< its first record of any kind
  double last = 0;     ///< its last record
  std::string policy;  ///< from its start record; empty: there was none
  // What it did.
  bool initialised = false;
  std::string by;           ///< the file whose code called cuInit, without its directories
  std::string told;         ///< what the driver was told to show; empty: no list
  std::set<int> contexts;   ///< devices
  bool worked = false;      ///< loaded code
  bool nvml = false;        ///< was let into NVML
  bool found_none = false;  ///< asked the driver, which showed no GPU
  bool failed = false;      ///< asked, and was told of an error
  Texts tried;              ///< these two: "found no GPU by libx.so", each once
  Texts refused;            ///< "cuInit by libx.so", each once
  bool only_start = true;   ///< nothing but its start record
  bool asked() const { return !only_start; }
};

/// All of it. Processes in the order of each one's first record, touchers and places likewise.
struct Findings {
  std::deque<ObservedProcess> processes;  ///< hundreds of thousands: never moved
  std::vector<CallSite> touchers;
  std::vector<Place> places;  ///< by group_by_place()
  size_t records = 0;
  size_t not_understood = 0;  ///< lines that no guard has written
  size_t torn = 0;            ///< records of which only a piece is there: their writer was killed
};

/// The files that the records were read from.
struct ReadFiles {
  size_t files = 0;
  // Of directories: left out.
  size_t compressed = 0;
  size_t unreadable = 0;
  std::string why;  ///< of the first one
};

/// How sure it is that every process of a tree was guarded.
struct TreeTruth {
  enum class Value : uint8_t {
    kAllGuarded,  ///< --trace: every program that ptrace told of
    kNoneSeen,    ///< looked at from time to time; none that was not guarded
    kUnguarded,   ///< some
  };
  struct Unguarded {
    uint32_t pid = 0;
    std::string command;
    std::string reason;       ///< "a static executable", "LD_PRELOAD was replaced", "setuid"
    bool has_driver = false;  ///< maps it or has /dev/nvidia* open: worse than not guarded
    double seen = 0;
    bool only_nvml = false;  ///< it maps NVML, and not libcuda
    bool fails = false;      ///< counts as one that touched CUDA; by decide()
    uint64_t since = 0;      ///< as in ObservedProcess
  };
  /// Every process that was seen, guarded or not. `last`: its end, to a tenth of a second or so.
  struct Seen {
    uint32_t pid = 0;
    uint32_t ppid = 0;
    std::string command;
    double first = 0;
    double last = 0;
    bool guarded = false;
    bool heard = false;  ///< it, or the process it was forked from, has sent a start beacon
    uint64_t since = 0;  ///< as in ObservedProcess
  };
  Value value = Value::kNoneSeen;
  bool traced = false;
  bool some_untraced = false;  ///< a process was created with CLONE_UNTRACED
  size_t hello = 0;            ///< start records
  std::vector<Seen> seen;
  std::vector<Unguarded> unguarded;
  std::string left;  ///< processes that were not waited for; may be empty
  /// Clauses: "there is no /proc"; "train.py (12) sent no start beacon". Each means that
  /// an attempt may be missing, so the result is no PASS.
  std::vector<std::string> doubts;
  /// The guards wrote their records to a file, which a program can lose, and sent no beacons.
  bool by_file = false;
  std::string why_unheard;  ///< why there was no listener, or what it cannot hear; may be empty
};

/// What watch_tree() has seen of a program.
struct WatchedTree {
  Findings findings;
  TreeTruth tree;
  uint32_t pid = 0;    ///< the program's
  int status = 0;      ///< of the program, as waitpid gives it
  double started = 0;  ///< seconds since 1970-01-01 UTC
  double ended = 0;
};

/// Of a verify run: what all printers (text, JSON, JUnit, HTML) get.
struct Verdict : WatchedTree {
  std::vector<std::string> command;  ///< the program and its arguments
  std::vector<std::string> allow;    ///< --allow's patterns
  std::set<DriverApi> deny;          ///< --deny: what is forbidden, but for those
  bool no_new_privs = false;         ///< the fence took that: sudo and the like gained nothing
  bool allow_incomplete = false;     ///< --allow-incomplete
  // By decide().
  enum class Result : uint8_t { kPass, kFail, kIncomplete };
  Result result = Result::kPass;
  size_t processes = 0;  ///< all that were seen
  size_t heard = 0;      ///< those that sent beacons, or were forked from one that did
  size_t touched = 0;    ///< those that touched what is denied
  size_t allowed = 0;    ///< those that did, and may
  size_t places = 0;     ///< those that fail the run
  size_t lines = 0;      ///< of these: lines of the user's code
  /// PyTorch asked, which keeps the first answer for the rest of the process.
  bool torch_asked = false;
  int exit_code = 0;
  bool passed() const { return result == Result::kPass; }
  bool is_in_doubt() const { return !tree.doubts.empty() || !tree.left.empty(); }
};

}  // namespace cudaguard::launcher
