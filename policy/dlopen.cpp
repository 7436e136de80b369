// SPDX-License-Identifier: Apache-2.0
#include "policy/dlopen.h"

namespace cudaguard {

namespace {

/// Decides about a request for the driver or NVML.
DlopenDecision decide_about_driver(const DlopenRequest& request, const DlopenSituation& now,
                                   Action action) {
  const bool driver = request.wanted.library == Library::kDriver;
  const char* never = driver ? kAbsentDriver : kAbsentNvml;
  // Only the SONAME shows that there is no driver. Under another name or path there may be one.
  const bool by_soname = driver && request.name == kDriverSoname;
  switch (now.substitute) {
    case Substitute::kReady:
      return {.action = action};
    case Substitute::kUnusable:
      return {Action::kRefuse,
              action == Action::kProxy ? Report::kUnusableProxy : Report::kUnusableNullDriver,
              never};
    case Substitute::kForCallerOnly:
      if (search_for(request.name) == FileSearch::kToken) {
        return {Action::kRefuse, Report::kRefusedLoad, never};
      }
      // ld.so would search the run path also for a library that is loaded already.
      if (request.no_load) return {.action = Action::kNotLoaded};
      return {Action::kRefuse, by_soname ? Report::kNoDriver : Report::kNothing, never};
    case Substitute::kNoLibrary:
      if (by_soname && !request.no_load) return {.report = Report::kNoDriver};
      return {};
    default:
      return {};
  }
}

}  // namespace

DlopenDecision decide(const DlopenRequest& request, const DlopenSituation& now) {
  if (now.loaded_for_us_alone) {
    // Before the null drivers are loaded, ld.so knows no library of that name either.
    const bool unknown = now.loads == Policy::kForceCpu && !now.null_drivers_tried;
    return {.action = unknown ? Action::kPass : Action::kNotLoaded};
  }
  const bool refusable = request.wanted.refused != nullptr;
  const bool denies = now.calls == Policy::kForceCpu;
  const Policy policy = refusable && denies ? now.calls : now.loads;
  const Action action = action_for(policy, now.list, request.wanted);
  if (action == Action::kNullDriver || action == Action::kProxy) {
    return decide_about_driver(request, now, action);
  }
  if (action != Action::kRefuse) return {.action = action};
  if (request.no_load) {  // loads nothing, so it is no attempt
    // ld.so may know a null driver by this name.
    const bool is_ours =
        request.wanted.refused->asked == DriverApi::kOpenCl && now.null_drivers_tried;
    return {.action = is_ours ? Action::kNotLoaded : Action::kPass};
  }
  return {Action::kRefuse, denies ? Report::kAttempt : Report::kNoOpenCl,
          request.wanted.refused->never};
}

}  // namespace cudaguard
