// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/symbols.h"

namespace cudaguard::launcher {

struct Symbols::Impl {};

Symbols::Symbols() : impl_(std::make_unique<Impl>()) {}
Symbols::~Symbols() = default;

std::string Symbols::name_of(const NativeFrame& /*frame*/) { return {}; }

std::string source_line(const std::string& /*file*/, uint32_t /*line*/) { return {}; }

}  // namespace cudaguard::launcher
