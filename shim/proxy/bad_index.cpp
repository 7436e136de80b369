// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/bad_index.h"

#include "policy/config.h"
#include "policy/text/message.h"
#include "shim/elf/own_maps.h"
#include "shim/proxy/guard.h"
#include "shim/proxy/late_write.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

struct Room {
  char path[4352];
  char are[1024];
};

/// A number that identifies this case. Names are constants, so their addresses suffice.
uint64_t case_of(const BadIndex& facts) {
  uint64_t key = reinterpret_cast<uintptr_t>(facts.api);
  key = (key ^ static_cast<uint32_t>(facts.asked)) * 0x9e3779b97f4a7c15U;
  key ^= key >> 29;
  return (key ^ static_cast<uint32_t>(facts.count)) * 0xbf58476d1ce4e5b9U;
}

}  // namespace

void print_bad_index(Process& process, const BadIndex& facts) {
  check_late_write(process);
  if (process.config->log == Log::kOff) return;
  const sys::Mapped<Room> room;
  if (!room) return;
  IndexFacts line;
  line.api = facts.api;
  line.caller = place_of(facts.caller, room->path, sizeof room->path);
  line.asked = facts.asked;
  line.count = facts.count;
  line.used = facts.used;
  if (process.visible_known.load(std::memory_order_acquire)) {
    const VisibleGpus& visible = process.visible;
    Text are(room->are, sizeof room->are);
    for (int i = 0; i < visible.count; ++i) {
      if (i != 0) are.put(",");
      are.put_decimal(static_cast<uint64_t>(visible.devices[i].physical));
    }
    line.meant = did_you_mean(facts.asked, visible.devices, visible.count);
    line.are = are.view();
    line.are_whose = visible.by_variable ? "CUDA_VISIBLE_DEVICES=" : "GPUs ";
  }
  the_guard().print_case(process, case_of(facts), write_line_of<write_bad_index, IndexFacts>,
                         &line);
}

}  // namespace cudaguard
