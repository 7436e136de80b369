// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/print/prometheus.h"

#include <string_view>

#include "policy/text.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

// A user can invent jobs, and Prometheus keeps each combination of labels for weeks.
constexpr size_t kMostSeries = 10000;
constexpr size_t kMostValue = 200;
constexpr const char* kOthers = "(others)";

void put_label(std::string& text, const char* name, std::string_view value) {
  if (value.empty()) return;
  text.append(text.back() == '{' ? "" : ",").append(name).append("=\"");
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  text += '"';
}

/// JSON can write "\udc00", which is no text; node_exporter would leave out the whole file.
std::string value_of(std::string_view text) { return printable(whole_head(text, kMostValue)); }

}  // namespace

void Metrics::add(const WriterFields& writer, const CallFields& call) {
  constexpr std::string_view kSlurm = "slurm:";
  if (call.decision.empty() || call.event == "health") return;
  const std::string job = job_of(writer.slurm, writer.cgroup);
  Labels labels{value_of(call.decision), value_of(call.rule),
                writer.uid < 0 ? "" : std::to_string(writer.uid),
                job.starts_with(kSlurm) ? value_of(tail(job, kSlurm.size())) : ""};
  if (counts_.size() >= kMostSeries && !counts_.contains(labels)) {
    labels = {value_of(call.decision), kOthers, kOthers, kOthers};
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
