// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/prometheus.h"

#include <string_view>

#include "policy/text.h"
#include "shim/launcher/print/json.h"

namespace cudaguard::launcher {

namespace {

// A user can invent jobs, and Prometheus keeps each combination of labels for weeks.
constexpr size_t kMostSeries = 10000;
constexpr size_t kMostValue = 200;
constexpr const char* kOthers = "(others)";

void put_label(std::string& text, const char* name, std::string_view value) {
  if (value.empty()) return;
  text.append(text.back() == '{' ? "" : ",").append(name).append("=\"");
  // JSON can write "\udc00", which is no text; node_exporter would leave out the whole file.
  for (const char c : valid_utf8(value)) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  text += '"';
}

std::string cut(const std::string& text) { return std::string(whole_head(text, kMostValue)); }

}  // namespace

void Metrics::add(const WriterFields& writer, const CallFields& call) {
  constexpr std::string_view kSlurm = "slurm:";
  if (call.decision.empty() || call.event == "health") return;
  const std::string job = job_of(writer.slurm, writer.cgroup);
  Labels labels{call.decision, cut(call.rule), writer.uid < 0 ? "" : std::to_string(writer.uid),
                job.starts_with(kSlurm) ? cut(job.substr(kSlurm.size())) : ""};
  if (counts_.size() >= kMostSeries && !counts_.contains(labels)) {
    labels = {call.decision, kOthers, kOthers, kOthers};
  }
  ++counts_[labels];
}

std::string Metrics::text() const {
  std::string text =
      "# HELP cudaguard_records Calls that asked for CUDA or used it, in the records that were "
      "read.\n"
      "# TYPE cudaguard_records gauge\n";
  for (const auto& [labels, count] : counts_) {
    const auto& [decision, rule, user, job] = labels;
    text += "cudaguard_records{";
    put_label(text, "decision", decision);
    put_label(text, "rule", rule);
    put_label(text, "user", user);
    put_label(text, "slurm_job", job);
    text.append("} ").append(std::to_string(count)).append("\n");
  }
  return text;
}

}  // namespace cudaguard::launcher
