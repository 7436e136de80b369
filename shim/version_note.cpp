// SPDX-License-Identifier: Apache-2.0
// Which cudaguard a file is, for people (`strings FILE | grep cudaguard`, `readelf -n FILE`) and
// for programs: an ELF note of the owner "cudaguard" with the text "cudaguard VERSION". It is
// mapped, so that a running process and a core dump have it too.
#include <cstdint>

namespace {

constexpr char kText[] = "cudaguard " CUDAGUARD_VERSION;

struct VersionNote {
  std::uint32_t owner_size;
  std::uint32_t text_size;
  std::uint32_t type;
  char owner[12];  // "cudaguard" and what fills it up to a multiple of 4
  char text[(sizeof kText + 3) / 4 * 4];
};

[[gnu::section(".note.cudaguard"), gnu::used,
  gnu::aligned(4)]] constexpr VersionNote kVersionNote = {
    sizeof "cudaguard", sizeof kText, 1, "cudaguard", "cudaguard " CUDAGUARD_VERSION};

}  // namespace
