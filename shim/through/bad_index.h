// SPDX-License-Identifier: Apache-2.0
// A device index that CUDA refused, or that CLAMP replaced: one line per distinct case.
#pragma once

namespace [[gnu::visibility("hidden")]] cudaguard {

struct Process;

struct BadIndex {
  const char* api = nullptr;
  const void* caller = nullptr;
  int asked = 0;
  int count = 0;  ///< visible devices; 0: not known
  int used = -1;  ///< under CLAMP: what was used instead
};

void say_bad_index(Process& process, const BadIndex& facts);

}  // namespace cudaguard
