// SPDX-License-Identifier: Apache-2.0
#include "policy/dlopen.h"

#include <gtest/gtest.h>

#include <ostream>

namespace cudaguard {
namespace {

constexpr Substitute kEverySubstitute[] = {Substitute::kNone, Substitute::kReady,
                                           Substitute::kUnusable, Substitute::kNoLibrary,
                                           Substitute::kForCallerOnly};

/// A decision that a test can compare and print.
struct Outcome {
  Action action;
  Report report = Report::kNothing;
  std::string_view never;

  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    return out << "action " << static_cast<int>(outcome.action) << ", report "
               << static_cast<int>(outcome.report) << ", never \"" << outcome.never << '"';
  }
};

DlopenRequest request_for(std::string_view name, bool no_load = false) {
  return {.name = name, .wanted = classify(name), .no_load = no_load};
}

Outcome outcome(const DlopenRequest& request, const DlopenSituation& now) {
  const DlopenDecision decision = decide(request, now);
  return {decision.action, decision.report,
          decision.never == nullptr ? std::string_view{} : decision.never};
}

constexpr Outcome kPass = {Action::kPass};
constexpr Outcome kNotLoaded = {Action::kNotLoaded};

TEST(Dlopen, OtherLibrariesPassInEverySituation) {
  for (const char* name : {"", "libm.so.6", "libc.so.6", "/opt/x/plugin.so", "$ORIGIN/libm.so"}) {
    for (const PolicyRow& row : kPolicies) {
      const Policy policy = row.policy;
      for (const Substitute substitute : kEverySubstitute) {
        for (const bool list : {false, true}) {
          EXPECT_EQ(
              outcome(request_for(name),
                      {.loads = policy, .calls = policy, .list = list, .substitute = substitute}),
              kPass)
              << name;
        }
      }
    }
  }
}

TEST(Dlopen, DriverBecomesOurLibrary) {
  for (const char* name : {"libcuda.so.1", "/usr/lib/libcuda.so", "libnvidia-ml.so.1"}) {
    for (const PolicyRow& row : kPolicies) {
      const Policy policy = row.policy;
      if (policy == Policy::kOff) continue;
      const bool cpu = policy == Policy::kForceCpu;
      EXPECT_EQ(outcome(request_for(name),
                        {.loads = policy, .calls = policy, .substitute = Substitute::kReady}),
                Outcome({cpu ? Action::kNullDriver : Action::kProxy}))
          << name;
    }
  }
}

TEST(Dlopen, DriverIsRefusedIfOurFileCannotBeUsed) {
  for (const auto& [name, never] :
       {std::pair("libcuda.so.535", kAbsentDriver), std::pair("/x/libnvidia-ml.so", kAbsentNvml)}) {
    const DlopenRequest request = request_for(name);
    EXPECT_EQ(outcome(request, {.substitute = Substitute::kUnusable}),
              Outcome({Action::kRefuse, Report::kUnusableNullDriver, never}));
    for (const PolicyRow& row : kPolicies) {
      const Policy policy = row.policy;
      if (!allows_cuda(policy)) continue;
      EXPECT_EQ(
          outcome(request, {.loads = policy, .calls = policy, .substitute = Substitute::kUnusable}),
          Outcome({Action::kRefuse, Report::kUnusableProxy, never}));
    }
  }
}

TEST(Dlopen, NameAndSubstituteDecideAboutTheDriver) {
  const DlopenSituation off = {.loads = Policy::kOff, .calls = Policy::kOff};
  const DlopenSituation validate = {.loads = Policy::kValidate, .calls = Policy::kValidate};
  DlopenSituation absent = validate;
  absent.substitute = Substitute::kNoLibrary;
  DlopenSituation callers = validate;  // on the caller's run path
  callers.substitute = Substitute::kForCallerOnly;
  const struct {
    const char* name;
    bool no_load;
    const DlopenSituation& now;
    Outcome outcome;
  } cases[] = {
      {"libcuda.so.1", false, off, kPass},
      {"libnvidia-ml.so.1", false, off, kPass},
      {"libnvidia-opencl.so.1", false, off, kPass},
      // NVIDIA's own libraries reach the driver.
      {"libcuda.so.1", false, validate, kPass},
      // Only the SONAME shows that there is no driver.
      {"libcuda.so.1", false, absent, {Action::kPass, Report::kNoDriver}},
      {"libcuda.so.1", true, absent, kPass},
      {"libcuda.so", false, absent, kPass},
      {"/x/libcuda.so.1", false, absent, kPass},
      {"libnvidia-ml.so.1", false, absent, kPass},
      {"libcuda.so.1", false, callers, {Action::kRefuse, Report::kNoDriver, kAbsentDriver}},
      {"libcuda.so", false, callers, {Action::kRefuse, Report::kNothing, kAbsentDriver}},
      {"libnvidia-ml.so.1", false, callers, {Action::kRefuse, Report::kNothing, kAbsentNvml}},
      {"libcuda.so.1", true, callers, kNotLoaded},
      // Only ld.so expands these.
      {"$LIB/libcuda.so.1", false, callers, {Action::kRefuse, Report::kRefusedLoad, kAbsentDriver}},
      {"$PLATFORM/libnvidia-ml.so.1",
       true,
       callers,
       {Action::kRefuse, Report::kRefusedLoad, kAbsentNvml}},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(outcome(request_for(one.name, one.no_load), one.now), one.outcome) << one.name;
  }
}

TEST(Dlopen, RefusedLibrary_IsAnAttemptUnderForceCpu) {
  const DlopenSituation validate = {.loads = Policy::kValidate, .calls = Policy::kValidate};
  DlopenSituation list = validate;
  list.list = true;
  // A parent that only loads for its children.
  const DlopenSituation parent = {
      .loads = Policy::kValidate, .calls = Policy::kForceCpu, .substitute = Substitute::kReady};
  EXPECT_EQ(decide(request_for("libcuda.so.1"), parent).action, Action::kProxy);
  for (const auto& row : kRefusedLibraries) {
    SCOPED_TRACE(row.never);
    const Outcome attempt = {Action::kRefuse, Report::kAttempt, row.never};
    const Outcome no_opencl = {Action::kRefuse, Report::kNoOpenCl, row.never};
    EXPECT_EQ(outcome(request_for(row.name()), {}), attempt);
    EXPECT_EQ(outcome(request_for(row.name()), parent), attempt);
    EXPECT_EQ(outcome(request_for(row.name()), list), row.no_proxy ? no_opencl : kPass);
    // If it is only looked for, it is no attempt. ld.so may know NVML's null driver by OpenCL's
    // name.
    const DlopenRequest request = request_for(row.name(), true);
    EXPECT_EQ(outcome(request, {}), kPass);
    EXPECT_EQ(outcome(request, {.null_drivers_tried = true}),
              row.asked == DriverApi::kOpenCl ? kNotLoaded : kPass);
  }
}

TEST(Dlopen, LibraryThatIsLoadedForUsAloneIsNotLoaded) {
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    const DlopenRequest request = request_for(name, true);
    DlopenSituation now = {.loaded_for_us_alone = true};
    EXPECT_EQ(outcome(request, now), kPass) << name;  // ld.so does not know it either
    now.null_drivers_tried = true;
    EXPECT_EQ(outcome(request, now), kNotLoaded) << name;
    now = {.loads = Policy::kValidate, .calls = Policy::kValidate, .loaded_for_us_alone = true};
    EXPECT_EQ(outcome(request, now), kNotLoaded) << name;
  }
}

TEST(Dlopen, HandleOfLibcAndDeepBindBypassTheHook) {
  EXPECT_TRUE(lets_bypass(request_for("libc.so.6")));
  EXPECT_TRUE(lets_bypass({.name = "x.so", .wanted = {}, .deep_bind = true}));
  EXPECT_FALSE(lets_bypass(request_for("x.so")));
  EXPECT_FALSE(lets_bypass(request_for("libcuda.so.1")));
}

TEST(Dlopen, FileSearchDependsOnTheCallerWithoutAPathOrWithAToken) {
  EXPECT_EQ(search_for("/usr/lib/x.so"), FileSearch::kName);
  EXPECT_EQ(search_for("./x.so"), FileSearch::kName);
  EXPECT_EQ(search_for("$ORIGIN/x.so"), FileSearch::kToken);
  EXPECT_EQ(search_for("x.so"), FileSearch::kRunPath);
  EXPECT_EQ(search_for("$x.so"), FileSearch::kRunPath);
}

/// Searches objects for a definition: 'a' is an object without one, 'd' has one, 'g' is the guard,
/// and an upper-case letter is the object after which the search begins.
bool comes_past_us(std::string_view objects) {
  bool after = false;
  for (const char c : objects) after = after || (c >= 'A' && c <= 'Z');
  VersionedSearch search(after);
  for (const char c : objects) {
    const char lower = static_cast<char>(c | 0x20);
    if (search.ends_at(lower == 'g', lower == 'd', c != lower)) break;
  }
  return search.comes_past_us();
}

TEST(VersionedSearch, ComesPastUsOnlyBeforeTheFirstDefinition) {
  EXPECT_TRUE(comes_past_us("agd"));
  EXPECT_TRUE(comes_past_us("ga"));
  EXPECT_FALSE(comes_past_us("dg"));
  EXPECT_FALSE(comes_past_us("ad"));
}

TEST(VersionedSearch, BeginsAfterTheCaller) {
  EXPECT_TRUE(comes_past_us("Agd"));
  EXPECT_TRUE(comes_past_us("Dgd"));  // the caller's own definition does not count
  EXPECT_FALSE(comes_past_us("gAd"));
  EXPECT_FALSE(comes_past_us("Adg"));
  EXPECT_FALSE(comes_past_us("Gd"));  // the guard itself searches
}

}  // namespace
}  // namespace cudaguard
