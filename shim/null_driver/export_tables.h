// SPDX-License-Identifier: Apache-2.0
// The tables of cuGetExportTable, by which NVIDIA's own programs call the driver. They have no
// documentation.
#pragma once

#include <cstring>

namespace [[gnu::visibility("hidden")]] cudaguard {

using TableId = unsigned char[16];

/// Every CUDA runtime from 12.3 on asks for this table before it calls anything else, even for
/// cudaDriverGetVersion. Drivers that lack it, such as 535, refuse it, too.
inline constexpr TableId kOfRuntime = {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e,
                                       0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9};
/// nvidia-cuda-mps-server asks for this table alone.
inline constexpr TableId kOfMpsServer = {0xa3, 0x92, 0xd3, 0x87, 0x1c, 0xf4, 0x7f, 0x4d,
                                         0x84, 0xb1, 0x71, 0x9b, 0x17, 0xae, 0xac, 0x8f};

inline bool is_table(const void* id, const TableId& table) {
  return memcmp(id, table, sizeof table) == 0;
}

/// Returns the table for kOfMpsServer.
const void* mps_table();

}  // namespace cudaguard
