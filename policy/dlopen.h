// SPDX-License-Identifier: Apache-2.0
// Decides what a call of dlopen leads to. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/policies.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// A call of dlopen or dlmopen.
struct DlopenRequest {
  std::string_view name;   ///< empty for the program itself
  LibraryRequest wanted;   ///< what the name means
  bool no_load = false;    ///< RTLD_NOLOAD: the call loads nothing
  bool deep_bind = false;  ///< RTLD_DEEPBIND
};

/// Our library for the driver or NVML: the null driver under FORCE_CPU, the proxy otherwise.
enum class Substitute : uint8_t {
  kNone,       ///< not needed: another library is requested, or an NVIDIA library asks
  kReady,      ///< ld.so has loaded it
  kUnusable,   ///< its file cannot be used, or it cannot serve the library that the name means
  kNoLibrary,  ///< a proxy needs NVIDIA's library, which ld.so does not find
  /// The same, but the caller's run path, or its directory in place of $ORIGIN, may lead ld.so to
  /// the library, past the proxy.
  kForCallerOnly,
};

/// What a decision depends on, apart from the request.
struct DlopenSituation {
  Policy loads = Policy::kForceCpu;  ///< Decision's, as the next one
  Policy calls = Policy::kForceCpu;
  bool list = false;                ///< there is an allow-list
  bool null_drivers_tried = false;  ///< both are loaded or cannot be
  /// The program asks with RTLD_NOLOAD for a library that only we have loaded.
  bool loaded_for_us_alone = false;
  Substitute substitute = Substitute::kNone;
};

/// What the guard reports about a request.
enum class Report : uint8_t {
  kNothing,
  kAttempt,             ///< a denied attempt
  kNoOpenCl,            ///< NVIDIA's OpenCL is refused under an allow-list or NO_CONTEXT
  kNoDriver,            ///< the program may use CUDA, and there is no driver
  kRefusedLoad,         ///< a load is refused that might have led to a GPU
  kUnusableNullDriver,  ///< the same, and that our file is the reason
  kUnusableProxy,
};

struct DlopenDecision {
  Action action = Action::kPass;
  Report report = Report::kNothing;
  const char* never = nullptr;  ///< for kRefuse: the name that ld.so gets
};

/// True if the request lets its caller bypass our hook. A handle of libc gives libc's own dlopen to
/// any caller of dlsym. ld.so binds a library that is loaded with RTLD_DEEPBIND to libc's dlopen.
constexpr bool lets_bypass(const DlopenRequest& request) {
  return request.wanted.library == Library::kLibc || request.deep_bind;
}

/// True if the request neither loads nor names anything of ours. It must not make us load something
/// in a process where ld.so may wait permanently.
constexpr bool needs_nothing_of_ours(const DlopenRequest& request) {
  return request.wanted.library == Library::kOther || request.wanted.library == Library::kLibc;
}

/// On what ld.so's search for a file depends.
enum class FileSearch : uint8_t {
  kName,     ///< on the name alone: a path
  kToken,    ///< on the caller, whose directory replaces $ORIGIN
  kRunPath,  ///< on the caller, if it has a run path
};
constexpr FileSearch search_for(std::string_view name) {
  if (name.find('/') == std::string_view::npos) return FileSearch::kRunPath;
  return name.find('$') == std::string_view::npos ? FileSearch::kName : FileSearch::kToken;
}

DlopenDecision decide(const DlopenRequest& request, const DlopenSituation& now);

/// Finds out whether a search for a versioned definition comes past our export, which has no
/// version, before it ends. Without us the search would skip other libraries' hooks, too.
class VersionedSearch {
 public:
  /// `after`: the search begins after an object that is still to come.
  explicit constexpr VersionedSearch(bool after) : begun_(!after) {}

  /// True if the search looks at the next object.
  constexpr bool has_begun() const { return begun_; }
  /// Call this with each object in ld.so's order. Returns true at the end of the search.
  constexpr bool ends_at(bool is_ours, bool has_definition, bool is_start) {
    if (is_ours) comes_past_us_ = begun_;
    if (is_ours || (begun_ && has_definition)) return true;
    begun_ = begun_ || is_start;
    return false;
  }
  constexpr bool comes_past_us() const { return comes_past_us_; }

 private:
  bool begun_;
  bool comes_past_us_ = false;
};

}  // namespace cudaguard
