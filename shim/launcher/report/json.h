// SPDX-License-Identifier: Apache-2.0
// The findings as JSON, the same in each document that holds them (report.schema.json).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shim/launcher/report/groups.h"
#include "shim/launcher/report/model.h"

namespace cudaguard::launcher {

using Json = nlohmann::ordered_json;

const char* word_of(Asked asked);  ///< "cuda", "nvml", "opencl"
Json json_of(const Toucher& toucher);
Json json_of(const ObservedProcess& process);
Json json_of(const Group& group);

/// For a terminal too: ASCII alone.
std::string text_of_json(const Json& json, int indent = -1);

}  // namespace cudaguard::launcher
