// SPDX-License-Identifier: Apache-2.0
// Counts records for Prometheus, in its text format, which node_exporter's textfile collector
// reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "shim/launcher/findings/fields.h"

namespace cudaguard::launcher {

class Metrics {
 public:
  /// Counts the record of a call. Starts, native stacks and health checks are none.
  void add(const WriterFields& writer, const CallFields& call);
  std::string text() const;

 private:
  /// The values of the labels, in their order. An empty one is left out.
  using Labels = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Labels, size_t> counts_;
};

}  // namespace cudaguard::launcher
