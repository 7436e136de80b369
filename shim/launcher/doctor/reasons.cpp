// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/reasons.h"

#include <algorithm>

namespace cudaguard::launcher {

namespace {

/// The weightiest first.
std::vector<std::string> clauses_of(const Reasons& reasons, Hold Reason::*way) {
  std::vector<std::string> clauses;
  for (const Hold hold : {Hold::kNo, Hold::kInPart}) {
    for (const Reason& reason : reasons) {
      if (reason.*way == hold) clauses.push_back(reason.why);
    }
  }
  return clauses;
}

std::string verdict(Hold hold, const std::string& why) {
  return Json(hold).get<std::string>() + (why.empty() ? "" : ", because " + why);
}

}  // namespace

Hold hold_of(const Reasons& reasons, Hold Reason::*way) {
  Hold hold = Hold::kYes;
  for (const Reason& reason : reasons) hold = std::max(hold, reason.*way);
  return hold;
}

Row row_of(const Reasons& reasons, bool fence) {
  const Hold run = hold_of(reasons, &Reason::run);
  const Hold preload = hold_of(reasons, &Reason::preload);
  Json list = Json::array();
  for (const Reason& reason : reasons) {
    list.push_back({{"id", reason.id},
                    {"run", reason.run},
                    {"preload", reason.preload},
                    {"file", reason.file},
                    {"text", reason.why}});
  }
  // With these `run --fence` refuses as well.
  const bool fenced =
      fence && std::none_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
        return reason.id == "policy_off" || reason.id == "stand_in";
      });
  Lines lines;
  if (preload != run) {
    std::string all;
    for (const std::string& clause : clauses_of(reasons, &Reason::preload)) {
      all += (all.empty() ? "" : "; ") + clause;
    }
    lines = named("LD_PRELOAD alone", {verdict(preload, all)});
  }
  std::vector<std::string> clauses = clauses_of(reasons, &Reason::run);
  const std::string first = clauses.empty() ? "" : clauses.front();
  if (!clauses.empty()) clauses.erase(clauses.begin());
  lines += named("also", clauses);
  if (fenced && run != Hold::kYes) {
    lines += named("with --fence", {"no CUDA all the same: cudaguard run --fence"});
  }
  lines.push_back({"guarded: " + verdict(run, first), ""});
  return {
      "guarded", {{"run", run}, {"preload", preload}, {"fence", fenced}, {"reasons", list}}, lines};
}

}  // namespace cudaguard::launcher
