// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/fork_poison.h"

#include <atomic>

#include "policy/text/message.h"
#include "shim/elf/own_maps.h"
#include "shim/proxy/guard.h"
#include "shim/sys/system.h"

namespace cudaguard {

namespace {

uint64_t milliseconds() {
  const timespec time = sys::now();
  return static_cast<uint64_t>(time.tv_sec) * 1000 + static_cast<uint64_t>(time.tv_nsec) / 1000000;
}

struct Room {
  char path[4352];
};

}  // namespace

void remember_init(const void* caller) {
  InheritedState::Initialised& initialised = the_guard().inherited->initialised;
  const uint32_t pid = sys::getpid();
  if (initialised.pid.load(std::memory_order_relaxed) == pid) return;
  const sys::Mapped<Room> room;
  std::string_view by;
  if (room) by = base_name(place_of(caller, room->path, sizeof room->path).module);
  if (by.size() >= sizeof initialised.by) by = head(by, sizeof initialised.by - 1);
  for (size_t i = 0; i < by.size(); ++i) initialised.by[i] = by.data()[i];
  initialised.by[by.size()] = '\0';
  initialised.at = milliseconds();
  initialised.pid.store(pid, std::memory_order_release);
}

void check_fork(Process& process, const char* api) {
  if (process.fork_checked.load(std::memory_order_relaxed)) return;
  process.fork_checked.store(true, std::memory_order_relaxed);
  const InheritedState::Initialised& initialised = the_guard().inherited->initialised;
  const uint32_t parent = initialised.pid.load(std::memory_order_acquire);
  if (parent == 0 || parent == sys::getpid()) return;
  ForkFacts facts;
  facts.api = api;
  facts.parent = parent;
  facts.by = initialised.by;
  facts.milliseconds = milliseconds() - initialised.at;
  the_guard().print_message(process, Process::kForkPoison,
                            write_line_of<write_fork_poison, ForkFacts>, &facts);
  // init() records a cuInit, together with its caller. CUDA answers 3 to all other calls as well.
  constexpr int kNotInitialized = 3;
  if (std::string_view(api) != "cuInit") {
    the_guard().record_event(process, {.api = api, .result = kNotInitialized});
  }
}

}  // namespace cudaguard
